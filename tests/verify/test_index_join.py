"""Index entries against the log: what each code shows, and what is close to it and no damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqinspect.verify.run
from rmqinspect.codec.java import index_hash
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import STORED
from tests.support.whole_stores import WholeStore
from tests.verify.test_queue_checks import judge, many, message

SLOTS, ENTRIES = 7, 24
FIRST = IndexHeader.sizeof() + SLOTS * IndexSlot.sizeof()


def index_file(folder: Path, number: int = 0) -> Path:
    return sorted((folder / "index").iterdir())[number]


def entry(path: Path, number: int) -> dict[str, int]:
    at = FIRST + number * IndexEntry.sizeof()
    parsed = IndexEntry.parse(path.read_bytes()[at : at + IndexEntry.sizeof()])
    return {part.name: int(parsed[part.name]) for part in IndexEntry.subcons}


def put(path: Path, number: int, **fields: int) -> None:
    raw = bytearray(path.read_bytes())
    at = FIRST + number * IndexEntry.sizeof()
    raw[at : at + IndexEntry.sizeof()] = IndexEntry.build(entry(path, number) | fields)
    path.write_bytes(raw)


def reported(outcome: VerifyResult) -> list[tuple[str, int]]:
    return [(row.code, row.count) for row in outcome.findings.rows if not row.code.startswith("ST-")]


def only(outcome: VerifyResult, code: str) -> Finding:
    (row,) = [row for row in outcome.findings.rows if row.code == code]
    return row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return WholeStore(many(), slots=SLOTS, entries=ENTRIES).write(tmp_path / "store")


# Entries 9 and 10 are both keys of the fifth message, in the first of two files.
DAMAGE: dict[str, tuple[Callable[[Path], None], list[tuple[str, int]]]] = {
    "an entry that leads into a record": (
        lambda path: put(path, 9, physical_offset=entry(path, 9)["physical_offset"] + 1),
        [("IX-MISSING", 1), ("IX-DANGLING", 1)],
    ),
    "an entry that leads behind the log": (
        lambda path: put(path, 9, physical_offset=1 << 41),
        [("IX-MISSING", 1), ("IX-BEYOND", 1)],
    ),
    "an entry of another record": (
        lambda path: put(path, 9, physical_offset=entry(path, 11)["physical_offset"]),
        [("IX-MISSING", 1), ("IX-KEY", 1)],
    ),
    "an entry with another hash of its slot": (
        lambda path: put(path, 9, key_hash=_same_slot(path)),
        [("IX-KEY", 1)],
    ),
    "an entry with another time": (lambda path: put(path, 9, time_diff=77), [("IX-TIME", 1)]),
    "the time of a file's first entry, which may be any": (lambda path: put(path, 1, time_diff=77), []),
}


def _same_slot(path: Path) -> int:
    hashed = entry(path, 9)["key_hash"]
    return hashed - SLOTS if hashed >= SLOTS else hashed + SLOTS


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_to_an_entry_is_told_with_its_place(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, expected = DAMAGE[name]
    change(index_file(folder))
    outcome = judge(folder)
    assert sorted(reported(outcome)) == sorted(expected)
    place = FIRST + 9 * IndexEntry.sizeof()
    assert {row.offset for row in outcome.findings.rows if row.file == f"index/{index_file(folder).name}"} <= {place}
    assert reported(judge(folder, "standard")) == [], "the index is read at level deep"
    for size in (64, 500):
        monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", size)
        assert judge(folder).findings.rows == outcome.findings.rows


def test_all_keys_lead_to_their_records(folder: Path) -> None:
    outcome = judge(folder)
    assert reported(outcome) == []
    assert outcome.joined_entries == 2 * 20


def test_a_lost_index_file_between_two_others_is_missing_and_one_at_the_end_is_not(tmp_path: Path) -> None:
    """The index covers what lies between its first and its last entry."""
    stored = WholeStore(many(40), slots=SLOTS, entries=ENTRIES)
    folder = stored.write(tmp_path / "store")
    index_file(folder, 1).unlink()
    # 23 keys are in a file: one of the 12th message, both of the next eleven.
    assert reported(judge(folder)) == [("IX-MISSING", 23)]
    folder = stored.write(tmp_path / "other")
    index_file(folder, -1).unlink()
    assert [code for code, _ in reported(judge(folder))] == ["IX-NONE"]


def test_entries_behind_the_log_are_one_row_and_prove_a_loss(tmp_path: Path) -> None:
    folder = WholeStore(many(40), segment_size=2048, slots=SLOTS, entries=200).write(tmp_path / "store")
    sorted((folder / "commitlog").iterdir())[-1].unlink()
    for path in sorted((folder / "consumequeue").rglob("0*")):
        if path.is_file():
            path.unlink()
    outcome = judge(folder)
    beyond = only(outcome, "IX-BEYOND")
    assert beyond.severity == "warning"
    assert beyond.count == 2 * outcome.loss.entries
    assert str(outcome.loss).startswith(f"at least {outcome.loss.entries} messages were in the index")


def test_entries_into_a_gap_are_its_witnesses_where_no_queue_is(tmp_path: Path) -> None:
    folder = WholeStore(many(40), segment_size=2048, slots=SLOTS, entries=200).write(tmp_path / "store")
    sorted((folder / "commitlog").iterdir())[1].unlink()
    outcome = judge(folder)
    assert [code for code, _ in reported(outcome)] == ["CL-HOLE"]


@pytest.mark.parametrize("version", ["5.4.0", "5.3.3"])
def test_the_tags_are_keys_from_5_4_0_on(version: str, tmp_path: Path) -> None:
    """An older version that is named is contradicted, and makes no entry of a tag wrong."""
    folder = WholeStore(many(), slots=SLOTS, entries=200, tag_keys=True).write(tmp_path / "store")
    outcome = judge(folder, broker_version=version)
    assert reported(outcome) == []
    assert outcome.versions is not None
    assert ("tags in the index" in outcome.versions.contradiction) == (version == "5.3.3")


def test_entries_of_tags_are_not_asked_for_since_an_older_version_may_have_written_the_index(tmp_path: Path) -> None:
    folder = WholeStore(many(), slots=SLOTS, entries=200).write(tmp_path / "store")
    for version in ("5.3.3", "5.5.0"):
        assert reported(judge(folder, broker_version=version)) == []


def test_times_are_whole_seconds_and_never_negative(tmp_path: Path) -> None:
    times = (1000, 0, 1999, 2000, 7500)  # ms; a clock was set back
    pieces = [message(n, store_timestamp=STORED + time) for n, time in enumerate(times)]
    folder = WholeStore(pieces, slots=SLOTS, entries=ENTRIES).write(tmp_path / "store")
    diffs = [entry(index_file(folder), number)["time_diff"] for number in range(1, 11)]
    assert diffs == [0, 0, 0, 0, 0, 0, 1, 1, 6, 6]
    assert [code for code, _ in reported(judge(folder)) if code.startswith("IX")] == []


@pytest.mark.parametrize("text", ["schlüssel", "钥匙", "k\U0001f511", "two words", "x" * 300])
def test_keys_of_any_text_are_hashed_as_java_does(text: str, tmp_path: Path) -> None:
    folder = WholeStore([message(0), message(1, properties={"KEYS": text}), message(2)], slots=SLOTS).write(
        tmp_path / "store"
    )
    hashed = {index_hash(f"orders#{key}") for key in text.split(" ")}
    assert hashed <= {entry(index_file(folder), number)["key_hash"] for number in range(1, 9)}
    assert reported(judge(folder)) == []


# --- keys behind the index ------------------------------------------------------------------------


@pytest.mark.parametrize(("files_left", "newer"), [(0, 20), (1, 8)])
@pytest.mark.parametrize("level", ["standard", "deep"])
def test_keys_that_no_index_file_reaches_are_counted_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, level: str, files_left: int, newer: int
) -> None:
    """Two keys a record, and 23 entries in a file: the first file ends within the twelfth record."""
    for path in sorted((folder / "index").iterdir())[files_left:]:
        path.unlink()
    outcome = judge(folder, level)
    row = only(outcome, "IX-NONE")
    proved = files_left > 0  # without a file, and with no index time in the checkpoint, the broker may write none
    assert (row.severity, row.count, row.timestamp) == ("warning" if proved else "info", newer, STORED + 20 - newer)
    assert outcome.verdict == (f"WHOLE, {newer} WARNINGS" if proved else "WHOLE")
    monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", 700)
    assert only(judge(folder, level), "IX-NONE") == row


@pytest.mark.parametrize(("name", "left"), [("main-4.9.7", 0), ("main-5.3.3", 0), ("main-5.3.3", 3)])
def test_index_files_that_are_gone_are_proved(name: str, left: int, tmp_path: Path) -> None:
    """By older ones, or by the checkpoint: its index time is that of a file that was full."""
    root = oracle.copy("broker", name, tmp_path)
    for path in sorted((root / "index").iterdir())[left:]:
        path.unlink()
    row = only(judge(root, "standard"), "IX-NONE")
    assert row.severity == "warning"
    assert ("older index files" if left else "index time of the checkpoint") in str(row.expected)


@pytest.mark.parametrize(
    ("setting", "severity", "why"),
    [
        ("messageIndexEnable = false", "info", "broker.conf switches the index off"),
        ("indexFileWriteEnable=false", "info", "broker.conf switches the index off"),
        ("messageIndexEnable=TRUE", "warning", "files are gone, or it was false then"),
        ("brokerName=a", "warning", "files are gone, or it was false then"),
    ],
)
def test_a_broker_conf_says_whether_there_is_an_index(
    setting: str, severity: str, why: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shutil.rmtree(folder / "index")
    conf = tmp_path_factory.mktemp("conf") / "broker.conf"
    conf.write_text(setting)
    outcome = verify(open_store([str(folder)], config=str(conf)), VerifyOptions(jobs=1))
    row = only(outcome, "IX-NONE")
    assert row.severity == severity
    assert f"({why})" in row.message


@pytest.mark.parametrize("level", ["standard", "deep"])
def test_without_any_index_file_an_unclean_stop_explains_nothing(level: str, tmp_path: Path) -> None:
    """The checkpoint has the time of a file that was full: it was on the disk when the broker was killed."""
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    (root / "abort").touch()
    files = sorted((root / "index").iterdir())
    for path in files[1:]:
        path.unlink()
    assert not [row for row in judge(root, level).findings.rows if row.code == "IX-NONE"]
    files[0].unlink()
    row = only(judge(root, level), "IX-NONE")
    assert row.severity == "warning"
    assert "index time of the checkpoint" in str(row.expected)


def test_records_behind_the_index_time_prove_nothing_after_an_unclean_stop(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    shutil.rmtree(root / "index")
    (root / "abort").touch()
    checkpoint = bytearray((root / "checkpoint").read_bytes())
    checkpoint[16:24] = (1).to_bytes(8, "big")  # indexMsgTimestamp: long before the log begins
    (root / "checkpoint").write_bytes(checkpoint)
    assert only(judge(root, "standard"), "IX-NONE").severity == "info"


def test_keys_behind_the_index_are_expected_after_an_unclean_stop_and_in_a_copy_of_the_log(folder: Path) -> None:
    for path in (folder / "index").iterdir():
        path.unlink()
    (folder / "abort").touch()
    assert not [row for row in judge(folder, "standard").findings.rows if row.code == "IX-NONE"]
    assert not [row for row in judge(folder / "commitlog", "standard").findings.rows if row.code == "IX-NONE"]
