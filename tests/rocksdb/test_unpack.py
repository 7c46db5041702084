"""The private copy of a RocksDB, and databases that are damaged, absent or not asked for."""

import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import rmqinspect.rocksdb.unpack
from rmqinspect.cli import ExitStatus, main
from rmqinspect.errors import NotInstalled, Refused
from rmqinspect.rocksdb.databases import databases
from rmqinspect.rocksdb.unpack import INSTALL, Unpacking, still_unpacked, unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from rmqinspect.tables.splits import split_rows, split_table
from tests.support import oracle
from tests.support.rocksdb import database, needs_rocksdict
from tests.support.side_tables import ROCKSDB, broker, write

ALL = ["consumequeue", "config/topics", "config/subscriptionGroups", "config/consumerOffsets"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files. The stores of the tests are unpacked before, elsewhere."""
    oracle.store("broker", ROCKSDB[0])
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmqinspect.rocksdb.unpack, "find_spec", lambda name: None)


def reasons(store: Path) -> dict[str, str]:
    """Return why databases of a store are not read, by folder."""
    with unpacked(open_store([str(store)]), Unpacking()) as whole:
        return {oddity.name: oddity.detail for oddity in whole.oddities}


def test_databases_are_found_where_a_broker_puts_them(tmp_path: Path) -> None:
    assert [one.name for one in databases(broker(ROCKSDB[0]))] == ALL
    assert databases(broker("main-5.3.3")) == []
    for name in ("commitlog/00000000000000000000", "consumequeue/MANIFEST-000004", "config/topics/000005.sst"):
        write(tmp_path, name, b"x")
    assert [one.name for one in databases(open_store([str(tmp_path)]))] == ["consumequeue"]


@needs_rocksdict
def test_the_copy_is_private_and_goes_away(scratch: Path) -> None:
    root = oracle.store("broker", ROCKSDB[0])
    before = {path: path.stat() for path in root.rglob("*")}
    with unpacked(broker(ROCKSDB[0]), Unpacking()) as store:
        assert {"/".join(place) for place in store.unpacked} == set(ALL)
        (folder,) = scratch.iterdir()
        assert all(Path(file.path).is_relative_to(folder) for file in store.queue_files)
        assert not any(path.is_symlink() for path in folder.rglob("*"))  # the copy itself is gone
        assert still_unpacked(store)
    assert not still_unpacked(store)
    assert not any(scratch.iterdir())
    kept = ("st_mtime_ns", "st_ctime_ns", "st_nlink", "st_size")
    assert all(getattr(path.stat(), name) == getattr(old, name) for path, old in before.items() for name in kept)


@needs_rocksdict
def test_the_copy_goes_away_after_ctrl_c(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if self.poll() is None and not stopped:
                stopped.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    stopped: list[Interrupted] = []
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    assert main(["decode", str(oracle.store("broker", ROCKSDB[0])), "--table", "queues"]) == ExitStatus.INTERRUPTED
    assert not any(scratch.iterdir())
    assert stopped[0].poll() is not None


@needs_rocksdict
def test_the_copy_is_made_where_asked_for_and_never_in_the_store(tmp_path: Path) -> None:
    root = oracle.copy("broker", ROCKSDB[0], tmp_path)
    with unpacked(open_store([str(root)]), Unpacking(folder=str(tmp_path))) as store:
        assert all(Path(file.path).is_relative_to(tmp_path) for file in store.queue_files)
    with (
        pytest.raises(Refused, match="nothing is ever written there"),
        unpacked(open_store([str(root)]), Unpacking(folder=str(root / "config"))),
    ):
        pass


@needs_rocksdict
def test_too_little_space_is_told_before_anything_is_copied(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**6))
    found = reasons(oracle.store("broker", ROCKSDB[0]))
    assert list(found) == ALL
    assert re.search(r"takes about 16\.\d MB in .*, where 1\.0 MB are free: --rocksdb-copy", found["consumequeue"])


@needs_rocksdict
def test_a_task_reads_what_was_unpacked_or_unpacks_it_again() -> None:
    """The second where the files of the planning process are not to be seen: on another machine."""
    with unpacked(broker(ROCKSDB[0])) as store:
        splits = {table: pickle.dumps(split_table(table, store, 1)) for table in ("queue_units", "queues", "groups")}
        expected = {table: list(TABLES[table].rows(store, Request())) for table in splits}
        assert {table: _read(splits[table]) for table in splits} == expected
    assert {table: _read(splits[table]) for table in splits} == expected


def _read(splits: bytes) -> list[pa.RecordBatch]:
    return [batch for split in pickle.loads(splits) for batch in split_rows(split, Request())]


# --- without the library, or not wanted ----------------------------------------------------------------


@pytest.mark.usefixtures("no_library")
def test_without_the_library_a_table_asked_for_by_name_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(oracle.store("broker", ROCKSDB[0]))
    assert main(["decode", path, "--table", "topics"]) == ExitStatus.UNREADABLE
    assert "config/topics: not read: a RocksDB database, which needs" in (told := capsys.readouterr().err)
    assert told.count(INSTALL) == 1
    assert main(["decode", path, "-n", "1"]) == ExitStatus.DONE
    assert "RocksDB" not in capsys.readouterr().err
    assert main(["info", path]) == ExitStatus.UNREADABLE
    shown = capsys.readouterr()
    assert shown.err.count(INSTALL) == 1
    assert "queues        in RocksDB, not read" in shown.out
    assert main(["verify", path]) == ExitStatus.UNREADABLE
    screen = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert re.search(rf"consume queues in RocksDB \(\d+ files, .{{,20}}\) \({re.escape(INSTALL)}\)", screen)


@pytest.mark.usefixtures("no_library")
def test_without_the_library_asking_for_it_is_an_error() -> None:
    with (
        pytest.raises(NotInstalled, match=re.escape(INSTALL)),
        unpacked(broker(ROCKSDB[0]), Unpacking(True)),
    ):
        pass


def test_what_is_not_wanted_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(oracle.store("broker", ROCKSDB[0]))
    assert main(["decode", path, "--table", "queues", "--no-rocksdb"]) == ExitStatus.UNREADABLE
    assert "consumequeue: not read: a RocksDB database, and --no-rocksdb was given" in capsys.readouterr().err
    assert main(["verify", path, "--no-rocksdb", "--level", "deep"]) == ExitStatus.UNREADABLE
    assert "consume queues in RocksDB" in capsys.readouterr().out


# --- damage ----------------------------------------------------------------------------------------


def _cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def _flip(raw: bytes) -> bytes:
    at = len(raw) // 3
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


def _flip_late(raw: bytes) -> bytes:
    """A block that the items of a column family come to late: rocksdict alone would end there in silence."""
    at = len(raw) * 9 // 10
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


@needs_rocksdict
@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("000010.sst", _flip_late),
        ("000011.sst", _flip),
        ("000011.sst", _cut),
        ("MANIFEST-000005", _flip),
        ("CURRENT", lambda _: b"\0" * 16),
        ("CURRENT", None),
    ],
)
def test_a_damaged_database_is_told_in_the_words_of_rocksdb_and_the_others_are_read(
    file: str, change: Callable[[bytes], bytes] | None, tmp_path: Path, scratch: Path
) -> None:
    root = oracle.copy("broker", ROCKSDB[0], tmp_path)
    place = root / "consumequeue" / file
    raw = place.read_bytes()
    place.unlink()
    if change is not None:
        place.write_bytes(change(raw))
    before = oracle.snapshot(root)
    with unpacked(open_store([str(root)]), Unpacking()) as store:
        (oddity,) = store.oddities
        assert len(store.unpacked_config) == 3
    assert re.match(r"RocksDB cannot read it: (Corruption|IO error|Invalid argument|NotFound)", oddity.detail)
    assert (oddity.name, oddity.is_unread) == ("consumequeue", True)
    assert "\n" not in oddity.detail
    assert str(scratch) not in oddity.detail
    assert len(oddity.detail) < 400
    assert oracle.snapshot(root) == before


@needs_rocksdict
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os; os.abort()", r"it ended its process with signal 6 \(SIGABRT\)"),
        ("pass", "it gave no reason"),
        ("raise SystemExit('out of luck')", "out of luck"),
    ],
)
def test_however_the_other_process_ends_it_costs_no_more_than_that(
    program: str, words: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rmqinspect.rocksdb.unpack, "_COMMAND", (sys.executable, "-c", program))
    found = reasons(oracle.store("broker", ROCKSDB[0]))
    assert list(found) == ALL
    assert all(re.search(words, reason) for reason in found.values())
    assert not any(scratch.iterdir())


@needs_rocksdict
def test_two_databases_of_queues_are_told_and_not_read(tmp_path: Path) -> None:
    root = oracle.copy("broker", ROCKSDB[0], tmp_path)
    shutil.copytree(root / "consumequeue", root / "consumequeue_rocksdb")
    found = reasons(root)
    assert found.keys() == {"consumequeue", "consumequeue_rocksdb"}
    assert "consumequeue/ and in consumequeue_rocksdb/: only a setting tells" in found["consumequeue"]


# --- the commands ----------------------------------------------------------------------------------


@needs_rocksdict
@pytest.mark.parametrize("name", ROCKSDB)
def test_verify_follows_the_units_in_rocksdb(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(oracle.store("broker", name)), "--level", "deep"]) == ExitStatus.DONE
    printed = capsys.readouterr().out
    assert re.search(r"^queues       (\d+) of \1 queue units match a record of the log; ", printed, re.MULTILINE)
    assert "in RocksDB (" not in printed


@needs_rocksdict
def test_a_database_that_cannot_be_read_leaves_the_rest_to_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = oracle.copy("broker", ROCKSDB[0], tmp_path)
    (path,) = (folder / "consumequeue").glob("MANIFEST*")
    path.write_bytes(path.read_bytes()[:40])
    assert main(["verify", str(folder), "--level", "deep"]) == ExitStatus.UNREADABLE
    printed = capsys.readouterr().out
    assert "not read: RocksDB cannot read it: Corruption" in re.sub(r"\s+", " ", printed)
    assert re.search("VERDICT .*INCOMPLETE", printed)
    assert main(["decode", str(folder), "--table", "queues"]) == ExitStatus.UNREADABLE
    assert main(["decode", str(folder), "--table", "topics"]) == ExitStatus.DONE


@needs_rocksdict
def test_a_database_without_queues_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a crash: RocksDB writes queues without a log of its own."""
    write(tmp_path, "store/commitlog/00000000000000000000", bytes(100))
    database(tmp_path / "store" / "consumequeue", {"default": [], "offset": []})
    told = "no queue is in RocksDB, as after a crash"
    store = str(tmp_path / "store")
    for command in (["decode", store], ["export", store, "-o", str(tmp_path / "out"), "--engine", "local"]):
        assert main([*command, "--table", "queues"]) == ExitStatus.DONE
        assert told in capsys.readouterr().err


@needs_rocksdict
def test_info_shows_queues_and_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(oracle.store("broker", ROCKSDB[0]))]) == ExitStatus.DONE
    printed = capsys.readouterr().out
    assert re.search(r"^queues +46 in \d+ topics, \d+ units; deepest ", printed, re.MULTILINE)
    assert re.search(r"^groups +\d+ groups, .* in config/consumerOffsets \(RocksDB\)$", printed, re.MULTILINE)
