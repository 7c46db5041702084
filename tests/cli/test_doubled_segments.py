"""Two files of the log with one base: each record counts once, and what only the other file holds is told.

The second path of storePathCommitLog holds another file for the second segment, [65 536, 131 072).
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.commitlog.missing import doubles_of
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.splits import split_rows, split_table
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support.command import Run, runner
from tests.support.samples import sample

SIZE = 65_536
_NAME = f"{SIZE:020}"
_IN_BODY = 40_000  # position of a byte of a body
_BORDER = 94_787 - SIZE  # position of a record

_SETTINGS = {"mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 100, "maxIndexNum": 250}

run = runner()

Change = Callable[[bytearray], bytes]


def _flipped(raw: bytearray) -> bytes:
    raw[_IN_BODY] ^= 1
    return bytes(raw)


# What the other file is, made of a copy; and where it holds bytes of its own (physical).
OTHERS: dict[str, tuple[Change, int | None]] = {
    "zeros": (lambda raw: bytes(len(raw)), None),
    "a copy": (bytes, None),
    "an older copy": (lambda raw: bytes(raw[:_BORDER]).ljust(SIZE, b"\0"), None),
    "a shorter file": (lambda raw: bytes(raw[:_BORDER]), None),
    "a copy with a flipped bit": (_flipped, SIZE + _IN_BODY),
}


def _doubled(tmp_path: Path, kind: str, *, first: str) -> tuple[Path, Path]:
    """Return a store and its broker.conf; `first`: which path, by its name, the sound file lies in."""
    shutil.copytree(sample("healthy-4.9.7"), tmp_path / "store")
    sound = tmp_path / "store" / "commitlog" / _NAME
    raw = sound.read_bytes()
    other = tmp_path / "zlog"
    other.mkdir()
    change, _ = OTHERS[kind]
    (other / _NAME).write_bytes(change(bytearray(raw)))
    if first == "zlog":
        written = (other / _NAME).read_bytes()
        (other / _NAME).write_bytes(raw)
        sound.write_bytes(written)
    settings = {
        "storePathRootDir": tmp_path / "store",
        "storePathCommitLog": f"{tmp_path / 'store' / 'commitlog'},{other}",
        "mappedFileSizeCommitLog": SIZE,
        **_SETTINGS,
    }
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return tmp_path / "store", conf


def _opened(tmp_path: Path, kind: str, *, first: str = "commitlog") -> Store:
    store, conf = _doubled(tmp_path, kind, first=first)
    return open_store([str(store)], config=str(conf))


@pytest.mark.parametrize("first", ["commitlog", "zlog"])
@pytest.mark.parametrize("kind", OTHERS)
def test_the_fuller_file_is_read_and_the_other_one_compared(kind: str, first: str, tmp_path: Path) -> None:
    store = _opened(tmp_path, kind, first=first)
    (double,) = doubles_of(store.segments)
    assert len(store.log_files) == 4 and double.differs_at == OTHERS[kind][1]
    if kind not in ("a copy", "a copy with a flipped bit"):  # both are as full
        assert first in double.read.path.split("/")


@pytest.mark.parametrize("kind", OTHERS)
def test_each_record_counts_once(kind: str, tmp_path: Path, run: Run) -> None:
    store, conf = _doubled(tmp_path, kind, first="commitlog")
    differs = OTHERS[kind][1] is not None
    for words in (
        ("sql", "-f", "json", "SELECT count(*) FROM messages"),
        ("usage", "-f", "json", "--by", "kind"),
        ("decode", "-f", "json", "--table", "gaps"),
        ("find", "-f", "json", "-k", "no-such-key", "--scan"),
    ):
        status, out, err = run(*words, store, "--config", conf)
        document = json.loads(out)
        usual = 5 if words[0] == "find" else 0
        assert (status, document["complete"]) == ((4, False) if differs else (usual, True)), words
        assert (_NAME in err and "differ at physical 105 536 (0x19c40)" in err) == differs or words[0] == "find"
        if words[0] == "sql":
            assert document["rows"] == [{"count_star()": 253}]
        if words[0] == "usage":
            assert sum(row["records"] for row in document["rows"]) == 253
        if words[0] == "decode":
            assert [row["start"] for row in document["rows"]] == [64_674, 130_185, 195_654, 234_507]


def test_splits_and_segments(tmp_path: Path) -> None:
    store = _opened(tmp_path, "a copy with a flipped bit")
    unread: list[str] = []
    request = Request(on_unreadable=unread.append)
    splits = split_table("messages", store, 20_000)
    rows = sum(batch.num_rows for split in splits for batch in split_rows(split, request))
    assert rows == 253
    assert len(unread) == 1 and "differ at physical 105 536" in unread[0]
    states = [
        batch.column("state").to_pylist()
        for split in split_table("segments", store, 1)
        for batch in split_rows(split, Request(on_unreadable=unread.append))
    ]
    assert states == [["full", "full", "double", "full", "current"]]


@pytest.mark.parametrize("kind", OTHERS)
def test_verify_and_the_next_start(kind: str, tmp_path: Path) -> None:
    store = _opened(tmp_path, kind)
    found = verify(store, VerifyOptions(level="deep")).findings
    # A file that is too short is one more finding.
    assert {one.code for one in found if one.severity == "error"} - {"CL-SIZE"} == {"CL-DUPLICATE"}
    told = forecast(store, ForecastRequest("4.9.7", instead=True))
    moved = [way.moved for way in told.instead or () if way.moved and way.is_better]
    if kind != "a shorter file":  # with which the broker does not start
        assert bool(moved) == (OTHERS[kind][1] is None)
