"""Every code of verify has a log that shows it and a near miss that stays silent; and what its options do."""

import csv
import io
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.codes import BY_CODE, CODES
from rmqinspect.verify.findings import COLUMNS, Finding, what_to_do
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import STORED, blank, fill, lay, pad, record, write_queue, write_segment
from tests.support.command import Run, runner
from tests.support.samples import sample

SIZE = 16384
FLIPPED = sample("flipped-bit-5.3.3")
HEALTHY = sample("healthy-5.5.0")


run = runner("verify")


# --- one store that shows each code, and one that nearly does -----------------------------------------------


def _log(root: Path, *segments: bytes, base: int = 0) -> list[Path]:
    """Write segments one after the other into a commitlog folder, which is then what is given."""
    for number, raw in enumerate(segments):
        write_segment(root / "commitlog", raw, base + number * SIZE)
    return [root / "commitlog"]


def _store(root: Path, **files: bytes) -> list[Path]:
    """Write a whole store with a small log, its checkpoint, and more files by name."""
    _log(root, pad(lay([{}]), SIZE))
    write_queue(root, {})
    for name, raw in {"checkpoint": _checkpoint(STORED), **files}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(raw)
    return [root]


def _checkpoint(*times: int) -> bytes:
    return struct.pack(f">{len(times)}q", *times).ljust(4096, b"\0")


def _pieces(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return records of one queue, numbered and a millisecond apart unless told otherwise."""
    return [{"queue_offset": n, "store_timestamp": STORED + n} | change for n, change in enumerate(changes)]


def _one(root: Path, *changes: dict[str, Any]) -> list[Path]:
    return _log(root, pad(lay(_pieces(*changes)), SIZE))


def _changed(raw: bytes, at: int, new: bytes) -> bytes:
    return raw[:at] + new + raw[at + len(new) :]


def _stray(root: Path, name: str) -> list[Path]:
    _store(root)
    (root / name).write_bytes(b"hello")
    return [root]


def _duplicate(root: Path, base: int) -> list[Path]:
    full = fill(lay(_pieces({}, {}), 0), SIZE)
    other = lay(_pieces({"queue_offset": 2, "store_timestamp": STORED + 9}), base)
    return [*_log(root / "a", full), *_log(root / "b", pad(other, SIZE), base=base)]


def _hole(root: Path, *numbers: int) -> list[Path]:
    for number in numbers:
        raw = lay([{"queue_offset": number, "store_timestamp": STORED + number}], number * SIZE)
        write_segment(root / "commitlog", fill(raw, SIZE), number * SIZE)
    return [root / "commitlog"]


def _behind_junk(root: Path, millis: int) -> list[Path]:
    first = lay(_pieces({}, {})) + b"\xff" * 100
    later = record(len(first), queue_offset=1, store_timestamp=STORED + millis)
    return _log(root, pad(first + later, SIZE))


def _torn(root: Path, kept: int) -> list[Path]:
    whole = lay(_pieces({}, {"body": b"x" * 1000}))
    return _log(root, pad(whole[: len(whole) - 1000 + kept], SIZE))


def _zeros(root: Path, *, behind: bool) -> list[Path]:
    before, after = _pieces({}, {"queue_offset": 1})
    log = lay([before, bytes(4096), after]) if behind else lay([before, after])
    return _log(root, pad(log, SIZE))


def _length(root: Path, more: int) -> list[Path]:
    whole = lay(_pieces({"properties": b""}, {}))
    end = len(lay(_pieces({"properties": b""})))
    return _log(root, pad(_changed(whole, end - 2, struct.pack(">h", more)), SIZE))


def _covered(root: Path, flag: bytes) -> list[Path]:
    return _log(root, pad(_changed(lay(_pieces({"crc": True}, {})), 16, flag), SIZE))


def _locked(root: Path, *, held: bool) -> list[Path]:
    """Let another process lock the first byte of `lock` until the test ends, as a broker does."""
    paths = _store(root, lock=b"")
    if held:
        script = (
            "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); "
            "print('locked', flush=True); sys.stdin.read()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", script, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        HOLDERS.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
    return paths


HOLDERS: list[subprocess.Popen[bytes]] = []


def _with_rocksdb(root: Path, *, part: bool) -> list[Path]:
    _store(root)
    if part:
        (root / "rocksdbstore").mkdir()
        (root / "rocksdbstore" / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    return [root]


def _linked(root: Path, *, outside: bool) -> list[Path]:
    place = root.parent / "elsewhere" if outside else root / "old"
    segment = write_segment(place, pad(lay([{}]), SIZE))
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020}").symlink_to(segment.path)
    return [root]


class Show(NamedTuple):
    """How to make a store with a code, and one without it."""

    shown: Callable[[Path], list[Path]]
    near_miss: Callable[[Path], list[Path]]


BATCH = {"sys_flag": 0x80, "properties": {"INNER_NUM": "3"}}
# The other codes are shown beside the rules of their files.
SHOWN_ELSEWHERE = {
    "CQ-": "test_queue_checks",
    "IX-": "test_index_join",
    "BQ-": "test_queue_checks",
    "EX-": "test_ext_checks",
    "TM-": "test_timer_checks",
    "DL-": "test_dledger_checks",
    "ST-GROUP": "test_group_checks",
    "ST-GROUP-OLD": "test_offset_age",
    "ST-NOT-READ": "test_not_read",
    "CQ-NO-TOPIC": "test_unqueued",
    "ST-DELAY": "test_delay_offsets",
    "ST-CLOCK": "test_delay_offsets",
    "ST-CONFIG": "test_config_checks",
    "CL-NOT-READ": "test_unread",
    "CQ-NAME": "test_names",
    "IX-NAME": "test_names",
    "CL-FIRST": "test_lost_files",
    "IX-FIRST": "test_lost_files",
    "IX-ORDER": "test_lost_files",
    "IX-DUPLICATE": "test_lost_files",
}
BRIDGE = {"flag": 0x42726467, "sys_flag": 0xC, "topic": "RMQINSPECT_BRIDGE"}

SHOWS: dict[str, Show] = {
    "CL-NAME": Show(lambda r: _stray(r, "commitlog/x.bak"), lambda r: _stray(r, "x.bak")),
    "CL-SIZE": Show(
        lambda r: _log(r, fill(lay([{}]), SIZE), bytes(SIZE), bytes(SIZE + 1)),
        lambda r: _log(r, fill(lay([{}]), SIZE), bytes(SIZE), bytes(SIZE)),
    ),
    "CL-HOLE": Show(lambda r: _hole(r, 0, 1, 3), lambda r: _hole(r, 1, 2, 3)),
    "CL-DUPLICATE": Show(lambda r: _duplicate(r, 0), lambda r: _duplicate(r, SIZE)),
    "CL-MAGIC": Show(
        lambda r: _log(r, pad(lay([*_pieces({}), b"junk" * 50, *_pieces({})]), SIZE)),
        lambda r: _log(r, fill(lay(_pieces({}, {})), SIZE, junk=b"junk" * 50)),
    ),
    "CL-LENGTH": Show(lambda r: _length(r, 1), lambda r: _length(r, 0)),
    "CL-OFFSET": Show(
        lambda r: _log(r, pad(lay([record(5000)]), SIZE), base=SIZE),
        lambda r: _log(r, pad(lay([{}], 5 * SIZE), SIZE), base=5 * SIZE),
    ),
    "CL-CRC-BODY": Show(
        lambda r: _log(r, pad(_changed(lay(_pieces({})), 90, b"?"), SIZE)), lambda r: _one(r, {"body": b""}, {})
    ),
    "CL-CRC-RECORD": Show(lambda r: _covered(r, b"\1"), lambda r: _covered(r, b"\0")),
    "CL-BLANK-SIZE": Show(
        lambda r: _log(r, pad(lay([{}]) + blank(SIZE), SIZE), bytes(SIZE)),
        lambda r: _log(r, fill(lay([{}]), SIZE), bytes(SIZE)),
    ),
    "CL-BLANK-INSIDE": Show(
        lambda r: _log(r, pad(_changed(lay(_pieces({}, {})), 4, blank(8)[4:]), SIZE)),
        lambda r: _log(r, fill(lay(_pieces({}, {})), SIZE)),
    ),
    "CL-TORN-TAIL": Show(lambda r: _torn(r, 500), lambda r: _torn(r, 1000)),
    "CL-ZERO-INSIDE": Show(lambda r: _zeros(r, behind=True), lambda r: _zeros(r, behind=False)),
    "CL-STALE-TAIL": Show(lambda r: _behind_junk(r, -5000), lambda r: _behind_junk(r, 5000)),
    "CL-QUEUE-OFFSET": Show(
        lambda r: _one(r, {}, {}, {"queue_offset": 3}, {}),
        # A prepared and a rolled-back message count nothing, an inner batch counts three.
        lambda r: _one(
            r,
            {},
            {"sys_flag": 4, "queue_offset": 0},
            {"sys_flag": 12, "queue_offset": 0},
            {"queue_offset": 1} | BATCH,
            {"queue_offset": 4},
        ),
    ),
    "CL-TIME": Show(
        lambda r: _one(r, {"store_timestamp": STORED + 1500}, {}),
        lambda r: _one(r, {"store_timestamp": STORED + 900}, {}),
    ),
    "CL-BRIDGED": Show(lambda r: _one(r, BRIDGE), lambda r: _one(r, BRIDGE | {"sys_flag": 8}, BRIDGE | {"flag": 0})),
    "CL-FIELD": Show(
        lambda r: _one(r, {"topic": "a b"}),
        lambda r: _one(
            r,
            {"topic": "%RETRY%g+t|%"},
            {"born_host": "1.2.3.4:65535"},
            {"properties": b"a\1b\1c\2x\1y"},
            {"sys_flag": 0x700},
        ),
    ),
    "ST-ABORT": Show(lambda r: _store(r, abort=b""), lambda r: _store(r, **{"abort.bak": b""})),
    "ST-TYPE": Show(lambda r: _store(r, **{"lock/inside": b""}), lambda r: _store(r, lock=b"")),
    "ST-RUNNING": Show(lambda r: _locked(r, held=True), lambda r: _locked(r, held=False)),
    "ST-UNCHECKED": Show(lambda r: _with_rocksdb(r, part=True), lambda r: _with_rocksdb(r, part=False)),
    "ST-CHECKPOINT": Show(
        lambda r: _store(r, checkpoint=_checkpoint(STORED + 1001)),
        lambda r: _store(r, checkpoint=_checkpoint(STORED + 1000)),
    ),
    "ST-IO": Show(lambda r: _linked(r, outside=True), lambda r: _linked(r, outside=False)),
}


# What the near miss cannot but show: what lies before the newer records is damage, if not a stale tail; and the
# store with a link in it has no checkpoint.
BESIDE = {"CL-STALE-TAIL": {"CL-MAGIC"}, "ST-IO": {"ST-CHECKPOINT"}}


@pytest.fixture(autouse=True)
def locks_end() -> Any:
    yield
    while HOLDERS:
        holder = HOLDERS.pop()
        holder.communicate()
        assert holder.returncode == 0


def rows_of(paths: list[Path]) -> list[Finding]:
    return verify(open_store([str(path) for path in paths]), VerifyOptions()).findings.rows


def codes_of(paths: list[Path]) -> set[str]:
    return {row.code for row in rows_of(paths)}


def test_every_code_has_a_store_that_shows_it() -> None:
    elsewhere = {code: name for code in BY_CODE for lead, name in SHOWN_ELSEWHERE.items() if code.startswith(lead)}
    assert SHOWS.keys() | elsewhere.keys() == BY_CODE.keys()
    texts = {name: (Path(__file__).parent / f"{name}.py").read_text() for name in SHOWN_ELSEWHERE.values()}
    texts["test_index_join"] += (Path(__file__).parent / "test_index_checks.py").read_text()
    assert [code for code, name in elsewhere.items() if code not in texts[name]] == []


@pytest.mark.parametrize("code", SHOWS)
def test_a_code_is_shown_and_its_near_miss_is_not(tmp_path: Path, code: str) -> None:
    shown, silent = tmp_path / "shown", tmp_path / "silent"
    shown.mkdir()
    silent.mkdir()
    found, missed = codes_of(SHOWS[code].shown(shown)), codes_of(SHOWS[code].near_miss(silent))
    assert (found, missed) == ({code}, BESIDE.get(code, set()))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"queue_id": -1}, "negative queue id"),
        ({"queue_offset": -1}, "impossible queue offset"),
        ({"queue_offset": 1 << 60}, "impossible queue offset"),
        ({"born_host": "1.2.3.4:65536"}, "impossible producer port"),
        ({"store_host": "1.2.3.4:-1"}, "impossible broker port"),
        ({"sys_flag": 0x401}, "unknown compression type"),
        ({"topic": "a\x1b[2J"}, "the topic is empty or has illegal characters"),
        ({"properties": b"no separator"}, "the properties cannot be parsed"),
        ({"properties": b"a\1b\2no separator\2"}, "the properties cannot be parsed"),
        ({"properties": b"a\1\xe6\xb6\2"}, "the properties are not UTF-8"),
        ({"properties": b"\xff"}, "the properties are not UTF-8"),
    ],
)
def test_a_field_out_of_its_domain_is_told(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    (row,) = rows_of(_one(tmp_path, change))
    assert (row.code, row.message) == ("CL-FIELD", what)


def test_a_chain_that_runs_into_older_records_of_the_same_queues_is_a_stale_tail(tmp_path: Path) -> None:
    """The new end met the beginning of an old record exactly: no gap lies between the two lives of the file."""
    paths = _one(tmp_path, {}, {}, {}, {"queue_offset": 1, "store_timestamp": STORED - 60_000}, {"queue_offset": 2})
    rows = rows_of(paths)
    assert {"CL-STALE-TAIL", "CL-QUEUE-OFFSET", "CL-TIME"} == {row.code for row in rows}
    assert len({row.physical_offset for row in rows}) == 1


def test_a_topic_made_again_starts_at_0_without_a_warning(tmp_path: Path) -> None:
    (row,) = rows_of(_one(tmp_path, {}, {}, {"queue_offset": 0}))
    assert (row.code, row.severity) == ("CL-QUEUE-OFFSET", "info")


# --- options ------------------------------------------------------------------------------------------------


def damaged(root: Path, number: int, *, apart: bool) -> Path:
    """Write a store with `number` records with a damaged body, whole records between them or not."""
    raw = bytearray()
    for at in range(number * (2 if apart else 1)):
        start = len(raw)
        raw += record(start, queue_offset=at)
        if not apart or at % 2:
            raw[start + 90] ^= 1
    write_segment(root / "commitlog", pad(bytes(raw), SIZE))
    return root / "commitlog"


def test_fail_on_decides_from_which_severity_on_the_status_is_3(run: Run, tmp_path: Path) -> None:
    (warned,) = SHOWS["CL-BLANK-SIZE"].shown(tmp_path)
    expected = {FLIPPED: [3, 3, 3, 0], warned: [0, 0, 3, 0], HEALTHY: [0, 0, 0, 0]}
    for path, statuses in expected.items():
        levels = ((), ("--fail-on", "error"), ("--fail-on", "warning"), ("--fail-on", "never"))
        assert [run(path, *words)[0] for words in levels] == statuses


def test_the_verdict_counts_warnings(run: Run, tmp_path: Path) -> None:
    SHOWS["CL-BLANK-SIZE"].shown(tmp_path)
    assert "VERDICT      WHOLE, 1 WARNING at level deep: 0 errors, 1 warning in" in run(tmp_path / "commitlog")[1]


@pytest.mark.parametrize(
    "words",
    [("--skip", "CL-CRC-BODY"), ("--skip", "cl-crc-body,ST-ABORT"), ("--check", "CL-MAGIC"), ("--check", "ST-ABORT")],
)
def test_a_code_that_is_not_looked_for_is_not_found(run: Run, words: tuple[str, str]) -> None:
    status, out, _ = run(FLIPPED, *words)
    findings, start = out.split("NEXT START", 1)
    assert "CL-CRC-BODY" not in findings
    assert "VERDICT      WHOLE at level deep" in start
    # What the next start deletes is no code that one leaves out.
    assert "STARTS, LOSES DATA" in start
    assert status == 3


def test_a_code_that_is_looked_for_alone_is_found(run: Run) -> None:
    status, out, _ = run(FLIPPED, "--check", "CL-CRC-BODY")
    assert status == 3
    assert "CL-CRC-BODY" in out
    assert "ST-ABORT" not in out


def test_a_code_that_does_not_exist_is_wrong_usage(run: Run) -> None:
    status, out, err = run(FLIPPED, "--check", "CL-EVERYTHING")
    assert (status, out) == (2, "")
    assert "CL-EVERYTHING is not a code" in err


def test_list_checks_is_the_table_of_codes(run: Run) -> None:
    status, out, _ = run("--list-checks")
    assert status == 0
    listed = [line.split(maxsplit=3) for line in out.splitlines()]
    assert listed == [[code.code, code.severity, code.level, code.rule] for code in CODES]


def test_nothing_is_printed_when_it_shall_be_quiet(run: Run) -> None:
    assert run(FLIPPED, "-q") == (3, "", "")
    assert run(HEALTHY, "-q") == (0, "", "")


@pytest.mark.parametrize("apart", [True, False])
def test_a_limit_of_findings_keeps_the_counts_exact(run: Run, tmp_path: Path, apart: bool) -> None:
    """Neighbours that are alike are one row."""
    path = damaged(tmp_path, 10, apart=apart)
    status, out, err = run(path, "--max-findings", "3", "-f", "json")
    rows = json.loads(out)["rows"]
    assert status == 3
    assert [row["count"] for row in rows] == ([1, 1, 1] if apart else [10])
    assert "DAMAGED at level deep: 10 errors, 0 warnings" in err
    printed = run(path, "--max-findings", "3")[1]
    assert "             10 in all\n" in printed
    assert ("and 7 more: --max-findings shows them" in printed) == apart
    assert "10 errors" in printed
    rows = json.loads(run(path, "-f", "json")[1])["rows"]
    assert [row["count"] for row in rows] == ([1] * 10 if apart else [10])


@pytest.mark.parametrize("format_", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_findings_are_a_table_in_every_format(run: Run, tmp_path: Path, format_: str) -> None:
    file = tmp_path / "findings"
    status, out, err = run(FLIPPED, "-f", format_, "-o", file)
    assert (status, out) == (3, "")
    assert err.splitlines()[-1].startswith("VERDICT      DAMAGED at level deep: 1 error")
    match format_:
        case "jsonl":
            rows = [json.loads(line) for line in file.read_text().splitlines()]
        case "json":
            rows = json.loads(file.read_text())["rows"]
        case "csv":
            rows = list(csv.DictReader(io.StringIO(file.read_text())))
        case "parquet":
            rows = pq.read_table(file).to_pylist()
        case "arrow":
            rows = pa.ipc.open_file(file).read_all().to_pylist()
    assert [row["code"] for row in rows] == ["CL-CRC-BODY", "ST-ABORT"]
    assert tuple(rows[0]) == COLUMNS
    assert str(rows[0]["physical_offset"]) == "97187"
    assert rows[0]["next"] == f"rmqinspect show {FLIPPED} --at 97187"


def test_what_a_person_has_to_do_names_the_file() -> None:
    told = Finding("ST-IO", "unreadable", file="consumequeue/{odd}", do="move {file} out of {folder}/")
    assert what_to_do(told) == "move consumequeue/{odd} out of consumequeue/"
    assert what_to_do(Finding("ST-IO", "unreadable")) == BY_CODE["ST-IO"].do
    assert what_to_do(Finding("CL-TIME", "backwards")) is None


def test_what_a_stranger_named_a_topic_is_shown_escaped(run: Run, tmp_path: Path) -> None:
    path = _one(tmp_path, {"topic": "a\x1b[2J\n[red]b", "properties": {"KEYS": "k\x1b[0m"}})[0]
    out = run(path)[1]
    assert "\x1b" not in out
    assert r"a\x1b[2J\n[red]b" in out


def test_the_command_to_run_next_can_be_pasted(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "my store's copy"
    folder.mkdir()
    damaged(folder, 1, apart=True)
    printed = run(folder, "--skip", "ST-CHECKPOINT")[1]
    (line,) = [line for line in printed.splitlines() if "--at" in line]
    script = "printf '%s\\n' " + line.split("next    ")[1]
    words = subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout.splitlines()
    assert words == ["rmqinspect", "show", str(folder), "--at", str(len(record(0)))]


# --- the report ---------------------------------------------------------------------------------------------


def test_the_report_says_what_the_screen_says_and_more(run: Run, tmp_path: Path) -> None:
    run(FLIPPED, "--level", "standard", "--report", tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text())
    assert (document["verdict"], document["errors"], document["complete"]) == ("DAMAGED", 1, True)
    assert document["counts"] == {"CL-CRC-BODY": 1, "ST-ABORT": 1, "ST-UNCHECKED": 3}
    assert [row["code"] for row in document["findings"]] == ["CL-CRC-BODY", "ST-ABORT", "ST-UNCHECKED"]
    assert all(tuple(row)[: len(COLUMNS)] == COLUMNS for row in document["findings"])
    for segment in document["segments"]:
        kinds = ("record_bytes", "filler_bytes", "zero_bytes", "unknown_bytes")
        assert sum(segment[kind] for kind in kinds) == segment["file_size"] == 65536
    assert document["segments"][0]["first_store_timestamp"] == "2026-11-21T08:48:39.819Z"
    assert document["checks"] == [code.code for code in CODES]
    files = {path.relative_to(FLIPPED).as_posix(): path.stat().st_size for path in FLIPPED.rglob("*") if path.is_file()}
    assert {entry["file"]: entry["size"] for entry in document["inputs"]} == files
    assert document["run"]["store"] == str(FLIPPED)


@pytest.mark.parametrize("name", ["abort", "checkpoint", "lock", "timerwheel", "config/timercheck"])
def test_a_folder_in_the_place_of_a_file_is_an_error(name: str, tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.1.4-clean", tmp_path)
    (root / name).unlink(missing_ok=True)
    (root / name).mkdir(parents=True)
    outcome = verify(open_store([str(root)]), VerifyOptions(level="quick"))
    assert [row.file for row in outcome.findings.rows if row.code == "ST-TYPE"] == [name]
    assert outcome.verdict == "DAMAGED"


@pytest.mark.parametrize("name", ["index", "consumequeue"])
def test_a_file_in_the_place_of_a_folder_is_an_error(name: str, tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.1.4-clean", tmp_path)
    shutil.rmtree(root / name)
    (root / name).write_bytes(b"")
    rows = verify(open_store([str(root)]), VerifyOptions(level="quick")).findings.rows
    assert [row.file for row in rows if row.code == "ST-TYPE"] == [name]
