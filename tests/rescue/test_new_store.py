"""A new store appears whole or not at all; nothing else is touched."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqinspect.errors import Refused
from rmqinspect.rescue.new_store import COPIED, LINKED, REFLINKED, NewStore
from rmqinspect.store.model import StoreFile


def a_file(folder: Path, content: bytes) -> StoreFile:
    path = folder / "evidence"
    path.write_bytes(content)
    return StoreFile(str(path), "evidence", len(content), "other")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_store_gets_its_name_at_the_end(tmp_path: Path) -> None:
    with NewStore(str(tmp_path / "new"), []) as new:
        new.write("config/topics.json", b"{}")
        (Path(new.make_aside()) / "lost.parquet").write_bytes(b"rows")
        assert not (tmp_path / "new").exists()
        new.commit(b"{}\n")
    assert names_in(tmp_path) == ["new", "new.aside", "new.receipt.json"]
    assert (tmp_path / "new/config/topics.json").read_bytes() == b"{}"


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError), NewStore(str(tmp_path / "new"), []) as new:
        new.write("abort", b"")
        raise ValueError
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("taken", ["new", "new.receipt.json", "new.aside"])
def test_an_existing_name_is_refused(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).mkdir()
    with pytest.raises(Refused, match="already exists"):
        NewStore(str(tmp_path / "new"), [])


def test_a_name_that_is_taken_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="made meanwhile"), NewStore(str(tmp_path / "new"), []) as new:
        (tmp_path / "new").write_bytes(b"another's")
        new.commit(b"{}")
    assert names_in(tmp_path) == ["new"]
    assert (tmp_path / "new").read_bytes() == b"another's"


@pytest.mark.parametrize("target", ["store/new", "store/commitlog/new", "link/new"])
def test_a_place_inside_of_the_evidence_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "store/commitlog").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with pytest.raises(Refused, match="inside the store"):
        NewStore(str(tmp_path / target), [str(tmp_path / "store")])


@pytest.mark.parametrize("target", ["s3://bucket/new", "", "/"])
def test_only_a_local_folder_will_do(target: str) -> None:
    with pytest.raises(Refused):
        NewStore(target, [])


def test_there_is_no_folder_for_it(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no such folder"):
        NewStore(str(tmp_path / "absent/new"), [])


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/out", "a//b", "", ".", "a\0b"])
def test_no_name_leads_out_of_the_store(tmp_path: Path, name: str) -> None:
    with NewStore(str(tmp_path / "new"), []) as new, pytest.raises(Refused):
        new.write(name, b"x")


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    with NewStore(str(tmp_path / "new"), [], dry_run=True) as new:
        new.check_room(1)
    assert names_in(tmp_path) == []


def test_room_is_checked_before(tmp_path: Path) -> None:
    with NewStore(str(tmp_path / "new"), []) as new, pytest.raises(Refused, match="are free there"):
        new.check_room(1 << 62)


# --- bringing -----------------------------------------------------------------------------------------


def test_a_copy_is_sparse_where_the_source_is_zero(tmp_path: Path) -> None:
    raw = b"\1" * 100 + bytes(9 << 20) + b"\2" * 100 + bytes(3 << 20)
    done: list[int] = []
    with NewStore(str(tmp_path / "new"), []) as new:
        assert new.bring(a_file(tmp_path, raw), "commitlog/0", done=done.append) in (COPIED, REFLINKED)
        path = Path(new.folder) / "commitlog/0"
        assert path.read_bytes() == raw
        assert path.stat().st_blocks * 512 < 1 << 20
    assert sum(done) == len(raw)


def test_a_hole_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"record")
    with NewStore(str(tmp_path / "new"), []) as new:
        new.bring(StoreFile(str(path), "evidence", 1 << 40, "segment"), "commitlog/0")
        assert (Path(new.folder) / "commitlog/0").stat().st_size == 1 << 40


def test_a_file_system_that_can_shares_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clone(descriptor: int, request: int, source: int) -> int:
        assert request == 0x40049409
        return os.write(descriptor, os.pread(source, 100, 0))

    monkeypatch.setattr(fcntl, "ioctl", clone)
    file = a_file(tmp_path, b"record")
    with NewStore(str(tmp_path / "new"), []) as new:
        assert new.shares_blocks([file])
        assert new.bring(file, "commitlog/0") == REFLINKED
        assert (Path(new.folder) / "commitlog/0").read_bytes() == b"record"
        new.commit(b"{}")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["commitlog"]


def test_a_link_is_the_same_file(tmp_path: Path) -> None:
    file = a_file(tmp_path, b"record")
    with NewStore(str(tmp_path / "new"), []) as new:
        assert new.can_link(file)
        assert new.bring(file, "commitlog/0", link=True) == LINKED
        new.commit(b"{}")
    assert os.path.samefile(tmp_path / "new/commitlog/0", file.path)


def test_another_file_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str, **_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    with NewStore(str(tmp_path / "new"), []) as new, pytest.raises(Refused, match="cannot be linked"):
        new.bring(a_file(tmp_path, b"record"), "commitlog/0", link=True)


# --- killed runs --------------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from rmqinspect.rescue.new_store import NewStore
count, kill = 0, os.rename
def rename(*arguments):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    kill(*arguments)
os.rename = rename
with NewStore(sys.argv[1], []) as new:
    new.write("commitlog/0", b"record")
    new.make_aside()
    if sys.argv[2] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    new.commit(b"{}")
"""


@pytest.mark.parametrize("renames", range(4))
def test_a_killed_run_looks_unfinished_and_running_again_works(tmp_path: Path, renames: int) -> None:
    target = tmp_path / "new"
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(target), str(renames)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert not target.exists()
    with NewStore(str(target), []) as new:
        new.write("commitlog/0", b"record")
        new.commit(b"again")
    assert names_in(tmp_path) == ["new", "new.receipt.json"]
    assert (tmp_path / "new.receipt.json").read_bytes() == b"again"


def test_a_run_that_lives_is_left_alone(tmp_path: Path) -> None:
    with NewStore(str(tmp_path / "new"), []) as first:
        first.write("lock", b"lock")
        with pytest.raises(Refused, match="another run is making it"), NewStore(str(tmp_path / "new"), []):
            pass
        assert (Path(first.folder) / "lock").exists()
        first.commit(b"{}")
    assert names_in(tmp_path) == ["new", "new.receipt.json"]


def test_hidden_files_of_others_stay(tmp_path: Path) -> None:
    others = {".new.part", ".new.12345678.part", ".other.rmqinspect.part", ".new.rmqinspect.part.old"}
    for name in others:
        (tmp_path / name).mkdir()
    with NewStore(str(tmp_path / "new"), []) as new:
        new.commit(b"{}")
    assert others < set(names_in(tmp_path))


def test_a_hidden_folder_that_is_no_runs_is_never_emptied(tmp_path: Path) -> None:
    other = tmp_path / ".new.rmqinspect.part"
    other.mkdir()
    (other / "photo").touch()
    (other / "store").mkdir()
    with pytest.raises(Refused, match="not of this program"), NewStore(str(tmp_path / "new"), []):
        pass
    assert names_in(other) == ["photo", "store"]


def test_a_link_in_the_place_of_the_hidden_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / ".new.rmqinspect.part").symlink_to("else")
    with pytest.raises(Refused, match="cannot be made"), NewStore(str(tmp_path / "new"), []):
        pass
    assert names_in(tmp_path / "else") == []


def test_what_a_killed_run_left_is_not_removed_where_it_is_a_source(tmp_path: Path) -> None:
    left = tmp_path / ".new.rmqinspect.part/store/commitlog"
    left.mkdir(parents=True)
    (left.parents[1] / "committing").touch()
    (tmp_path / "new.aside").mkdir()
    with pytest.raises(Refused, match="left by a killed run"):
        NewStore(str(tmp_path / "new"), [str(left)])
    with pytest.raises(Refused, match="already exists"):
        NewStore(str(tmp_path / "new"), [str(tmp_path / "new.aside/1.bin")])
    with NewStore(str(tmp_path / "new"), []):
        assert names_in(tmp_path) == [".new.rmqinspect.part"]


def test_what_lies_beside_a_finished_store_stays_though_its_run_was_killed_in_the_end(tmp_path: Path) -> None:
    """The three names are given, the hidden folder is still there; then the store is moved away."""
    left = tmp_path / ".new.rmqinspect.part"
    left.mkdir()
    (left / "committing").touch()
    (tmp_path / "new.receipt.json").write_text("of the store that was moved")
    with pytest.raises(Refused, match="already exists"):
        NewStore(str(tmp_path / "new"), [])
    assert (tmp_path / "new.receipt.json").exists()


def test_a_slash_at_the_end_of_the_name_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "new.receipt.json").touch()
    with pytest.raises(Refused, match=r"new\.receipt\.json: already exists"):
        NewStore(f"{tmp_path / 'new'}/", [])
