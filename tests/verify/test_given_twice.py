"""Records without a unit: whose unit stands in their place, whose topic was made again, and which command mends it."""

from pathlib import Path
from typing import Any

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding, FindingRow
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support.outcome_stores import outcome_store
from tests.support.whole_stores import WholeStore


def judge(folder: Path, level: str = "deep") -> VerifyResult:
    return verify(open_store([str(folder)]), VerifyOptions(level=level))


def of_code(outcome: VerifyResult, code: str) -> list[Finding]:
    return [row for row in outcome.findings.rows if row.code == code]


def rows_of(outcome: VerifyResult, code: str) -> list[FindingRow]:
    return [row for row in outcome.findings.as_rows(["STORE"], "STORE") if row.code == code]


def message(number: int, queue_id: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": "orders", "queue_id": queue_id, "properties": {"UNIQ_KEY": f"{number:032X}"}} | more


# --- an offset given out twice -------------------------------------------------------------------------


def test_an_offset_of_a_light_queue_that_was_given_out_twice_is_named() -> None:
    (row,) = rows_of(judge(outcome_store("lmq-duplicate")), "CQ-MISSING")
    assert "queue offset 21 was given out twice: the unit at 21 leads to record 165 212" in row.message
    assert "record 166 022 has none" in row.message
    assert (row.expected, row.found) == ("queue offset 21", "the unit of record 165212")
    assert row.do is not None and "rmqinspect salvage STORE" in row.do and "rebuild" not in row.do


def test_offsets_that_were_given_out_twice_are_counted(tmp_path: Path) -> None:
    """A start cut the queue at 4, and the broker went on there: the old records 4 to 9 have no unit."""
    pieces = [message(n) for n in range(10)] + [message(n, queue_offset=n - 6) for n in range(10, 14)]
    folder = WholeStore(pieces, segment_size=8192).write(tmp_path / "store")
    file = next((folder / "consumequeue" / "orders" / "0").iterdir())
    for path in sorted(file.parent.iterdir())[1:]:
        path.unlink()
    units = b"".join((folder / "consumequeue" / "orders" / "0" / name).read_bytes() for name in [file.name])
    rebuilt = WholeStore(pieces[:4] + pieces[10:], segment_size=8192)
    assert len(units) == rebuilt.queue_rows * 20
    # Units 4 to 7 lead to the newer records, as a broker writes them.
    whole = WholeStore(pieces, segment_size=8192, queue_rows=64).write(tmp_path / "whole")
    raw = next((whole / "consumequeue" / "orders" / "0").iterdir()).read_bytes()
    file.write_bytes(raw[: 4 * 20] + raw[10 * 20 : 14 * 20])
    (finding,) = of_code(judge(folder), "CQ-MISSING")
    assert "queue offsets 4 to 7 were given out twice: the units there lead to other records" in finding.message
    assert (finding.count, finding.queue_offset, finding.mend) == (6, 4, "salvage")


def test_a_unit_of_another_offset_in_the_place_is_no_offset_given_out_twice(tmp_path: Path) -> None:
    folder = WholeStore([message(n) for n in range(6)], segment_size=8192).write(tmp_path / "store")
    file = next((folder / "consumequeue" / "orders" / "0").iterdir())
    raw = file.read_bytes()
    file.write_bytes(raw[20:] + bytes(20))  # every unit one place too early
    (finding,) = of_code(judge(folder), "CQ-MISSING")
    assert "; at queue offset 0 the unit at 0 leads to record" in finding.message
    assert "twice" not in finding.message and (finding.found or "").startswith("the unit of record")


def test_no_unit_is_said_where_none_stands(tmp_path: Path) -> None:
    folder = WholeStore([message(n) for n in range(6)], segment_size=8192).write(tmp_path / "store")
    file = next((folder / "consumequeue" / "orders" / "0").iterdir())
    raw = file.read_bytes()
    file.write_bytes(raw[:60] + bytes(20) + raw[80:])
    (finding,) = of_code(judge(folder), "CQ-MISSING")
    assert finding.found == "no unit" and finding.do == ""
    file.write_bytes(raw[:60] + (7).to_bytes(8, "big") + raw[68:])  # a unit that leads into a record
    (finding,) = of_code(judge(folder), "CQ-MISSING")
    assert finding.found == "a unit that leads to no record"


# --- a topic made again ----------------------------------------------------------------------------------


def life(queues: str, first: int = 0) -> list[dict[str, Any]]:
    """Return messages to the queues whose numbers are given, one after the other, each queue from 0 on."""
    given: dict[str, int] = {}
    found = []
    for number, queue in enumerate(queues):
        offset = given.get(queue, 0)
        given[queue] = offset + 1
        found.append(message(first + number, int(queue), queue_offset=offset))
    return found


def made_again(folder: Path, former: str, now: str, kept: int) -> Path:
    """Write a store whose queues have units of the last `kept` records only."""
    pieces = life(former) + life(now, len(former))
    store = WholeStore(pieces, segment_size=16384).write(folder / "log")
    units = WholeStore(pieces[-kept:], segment_size=16384).write(folder / "units")
    places = sorted(store.glob("consumequeue/*/*/*"))
    for path in places:
        path.unlink()
    raw = {}  # by queue: the bytes of all units, which the writer keeps in the order of the log
    whole = WholeStore(pieces, segment_size=16384, queue_rows=128).write(folder / "whole")
    for path in units.glob("consumequeue/*/*/*"):
        queue = path.parent.name
        number = sum(piece["queue_id"] == int(queue) for piece in pieces[-kept:])
        total = sum(piece["queue_id"] == int(queue) for piece in pieces)
        source = next((whole / "consumequeue" / "orders" / queue).iterdir()).read_bytes()
        raw[queue] = source[(total - number) * 20 : total * 20]
    for queue, content in raw.items():
        home = store / "consumequeue" / "orders" / queue
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{0:020}").write_bytes(content.ljust(160, b"\0"))
    return store


def missing(folder: Path) -> dict[int, int]:
    """Return how many records each queue lacks units of."""
    found: dict[int, int] = {}
    for row in of_code(judge(folder), "CQ-MISSING"):
        assert row.queue_id is not None
        found[row.queue_id] = found.get(row.queue_id, 0) + row.count
    return found


@pytest.mark.parametrize(
    ("former", "now", "lacking"),
    [
        ("0101230", "00", {}),  # queues 1 to 3 have had no message since
        ("0101230", "0213", {}),  # all go on, each from 0
        ("0101230", "0", {}),
        ("00", "01", {}),  # a queue that had none before
    ],
)
def test_a_topic_made_again_takes_its_former_records_with_it(
    former: str, now: str, lacking: dict[int, int], tmp_path: Path
) -> None:
    assert missing(made_again(tmp_path, former, now, len(now))) == lacking


def test_one_queue_that_was_lost_is_no_topic_made_again(tmp_path: Path) -> None:
    """Queue 1 has units from before the place where queue 0 begins again at 0."""
    pieces = life("010101") + life("00", 6)
    folder = WholeStore(pieces, segment_size=16384, queue_rows=128).write(tmp_path / "store")
    file = next((folder / "consumequeue" / "orders" / "0").iterdir())
    raw = file.read_bytes()
    file.write_bytes(raw[3 * 20 : 5 * 20].ljust(len(raw), b"\0"))
    outcome = judge(folder)
    (finding,) = of_code(outcome, "CQ-MISSING")
    assert (finding.queue_id, finding.count, finding.queue_offset) == (0, 3, 0)
    assert "queue offsets 0 to 1 were given out twice" in finding.message


def test_a_queue_that_goes_on_across_the_restart_speaks_against_a_topic_made_again(tmp_path: Path) -> None:
    pieces = life("010101") + life("00", 6) + [message(8, 1, queue_offset=3)]
    folder = WholeStore(pieces, segment_size=16384, queue_rows=128).write(tmp_path / "store")
    file = next((folder / "consumequeue" / "orders" / "0").iterdir())
    raw = file.read_bytes()
    file.write_bytes(raw[3 * 20 : 5 * 20].ljust(len(raw), b"\0"))
    next((folder / "consumequeue" / "orders" / "1").iterdir()).unlink()
    assert missing(folder) == {0: 3, 1: 4}


# --- what makes the store whole ---------------------------------------------------------------------------


def test_a_queue_that_ends_before_the_log_is_to_be_rebuilt_before_a_start() -> None:
    row = rows_of(judge(outcome_store("s03"), "standard"), "CQ-MISSING")[0]
    assert row.do is not None and row.do.startswith("before the broker is started")
    assert row.do.endswith("run rmqinspect rebuild STORE -o NEW: it makes queues and index again from a sound log")


def test_where_groups_would_skip_the_command_is_salvage() -> None:
    """`rebuild` ends the queues where the log ends, before the offsets of the groups."""
    rows = rows_of(judge(outcome_store("s02"), "standard"), "CQ-BEYOND")
    assert rows and all("rmqinspect salvage STORE" in (row.do or "") for row in rows)
    assert not any("rebuild" in (row.do or "") for row in rows)


def test_a_damaged_log_needs_salvage_for_its_queues_too(tmp_path: Path) -> None:
    folder = WholeStore([message(n, body=b"x" * 40) for n in range(8)], segment_size=8192).write(tmp_path / "store")
    file = next((folder / "consumequeue" / "orders" / "0").iterdir())
    raw = file.read_bytes()
    file.write_bytes(raw[:60] + bytes(20) + raw[80:])
    (row,) = rows_of(judge(folder), "CQ-HOLE")
    assert row.do is not None and "rmqinspect rebuild STORE" in row.do
    log = next((folder / "commitlog").iterdir())
    content = bytearray(log.read_bytes())
    content[content.index(b"x" * 40)] ^= 1
    log.write_bytes(content)
    rows = list(judge(folder).findings.as_rows(["STORE"], "STORE"))
    assert {row.code for row in rows} >= {"CL-CRC-BODY", "CQ-HOLE"}
    assert all("rebuild" not in (row.do or "") for row in rows)


# --- copies of a running broker ------------------------------------------------------------------------------


def hot_copy(folder: Path, *, abort: bool = True) -> Path:
    return WholeStore([message(n, n % 2) for n in range(12)], segment_size=8192, abort=abort).write(folder)


@pytest.mark.parametrize("abort", [True, False])
def test_a_copy_of_the_log_before_the_queues_is_to_be_made_again(abort: bool, tmp_path: Path) -> None:
    """The log as it was nine messages earlier, at a record's border."""
    folder, early = hot_copy(tmp_path / "store", abort=abort), tmp_path / "early"
    WholeStore([message(n, n % 2) for n in range(3)], segment_size=8192).write(early)
    (name,) = (path.name for path in (folder / "commitlog").iterdir())
    (folder / "commitlog" / name).write_bytes((early / "commitlog" / name).read_bytes())
    rows = rows_of(judge(folder), "CQ-BEYOND")
    assert sum(row.count for row in rows) == 9
    assert all((row.do or "").startswith("if these files were copied while the broker ran") for row in rows)


def test_a_copy_of_the_queues_before_the_log_is_to_be_made_again(tmp_path: Path) -> None:
    folder = hot_copy(tmp_path / "store", abort=False)
    for queue in (0, 1):
        file = next((folder / "consumequeue" / "orders" / str(queue)).iterdir())
        file.write_bytes(file.read_bytes()[: 2 * 20].ljust(160, b"\0"))
    rows = rows_of(judge(folder), "CQ-MISSING")
    assert {row.queue_id: row.count for row in rows} == {0: 4, 1: 4}
    assert all("no newer record has a unit in any queue" in row.message for row in rows)
    assert all((row.do or "").startswith("if these files were copied while the broker ran") for row in rows)


def test_one_queue_that_ends_early_is_no_copy(tmp_path: Path) -> None:
    folder = hot_copy(tmp_path / "store", abort=False)
    file = next((folder / "consumequeue" / "orders" / "0").iterdir())
    file.write_bytes(file.read_bytes()[: 2 * 20].ljust(160, b"\0"))
    (row,) = rows_of(judge(folder), "CQ-MISSING")
    assert "copied" not in (row.do or "") and (row.do or "").startswith("before the broker is started")
