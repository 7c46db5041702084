"""Nothing is ever written into evidence, whichever links and mounts lead there."""

import os
from pathlib import Path

import pytest

from rmqinspect.errors import Refused
from rmqinspect.store import outside
from rmqinspect.store.outside import refuse_inside


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A store whose log lies on another disk, a view of it through links, and a loose file."""
    for folder in ("store/consumequeue", "disk/log", "disk2/segments", "view", "loose"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "store/commitlog").symlink_to("../disk/log")
    (tmp_path / "view/commitlog").symlink_to(tmp_path / "store/commitlog")
    segment = tmp_path / "disk2/segments/00000000000000000000"
    segment.touch()
    (tmp_path / "disk/log" / segment.name).symlink_to(segment)
    (tmp_path / "again").symlink_to("store")
    (tmp_path / "loose/part.bin").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("store", "store/new"),
        ("store", "again/new"),
        ("again", "store/consumequeue/new"),
        ("store", "disk/log/new"),  # where the store's log is
        ("store/commitlog", "store/new"),  # around the link that was given
        ("again/commitlog", "store/new"),
        ("view/commitlog", "view/new"),
        ("view/commitlog", "store/new"),
        ("disk/log", "disk2/segments/new"),  # beside a linked segment
        ("store/commitlog/00000000000000000000", "store/new"),
        ("view/commitlog/00000000000000000000", "view/new"),
        ("store/../again/commitlog/../../store", "store/new"),
    ],
)
def test_links_lead_to_evidence(case: Path, given: str, target: str) -> None:
    with pytest.raises(Refused, match="inside the store"):
        refuse_inside(str(case / target), [str(case / given)])


@pytest.mark.parametrize(
    ("given", "target"),
    [("store", "new"), ("store", "disk/new"), ("loose/part.bin", "loose/new"), ("view", "new"), ("absent", "new")],
)
def test_beside_it_is_room(case: Path, given: str, target: str) -> None:
    refuse_inside(str(case / target), [str(case / given)])


def test_links_in_a_circle_and_to_all_there_is_are_survived(case: Path) -> None:
    (case / "one").symlink_to("two")
    (case / "two").symlink_to("one")
    (case / "store/index").symlink_to("/")
    (case / "disk/log/up").symlink_to("/")
    refuse_inside(str(case / "new"), [str(case / "one"), str(case / "store"), str(case / "store/index/absent")])


def test_a_relative_path_is_that_of_the_folder_we_are_in(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case / "store")
    with pytest.raises(Refused):
        refuse_inside("new", ["."])
    refuse_inside("../new", ["."])


def test_another_mount_of_a_folder_in_the_evidence_is_evidence(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/self/mountinfo has it after `mount --bind store/consumequeue "mnt point"`."""
    mounted = case / "mnt point"
    mounted.mkdir()
    table = case / "mountinfo"
    names = [str(path).replace(" ", "\\040") for path in (case / "store/consumequeue", mounted)]
    table.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:1 {names[0]} {names[1]} rw - ext4 /dev/sda1 rw\n")
    refuse_inside(str(mounted / "new"), [str(case / "store")])
    monkeypatch.setattr(outside, "_MOUNTS", str(table))
    with pytest.raises(Refused):
        refuse_inside(str(mounted / "new"), [str(case / "store")])
    refuse_inside(str(case / "new"), [str(case / "store")])


def test_a_folder_with_another_name_of_the_same_inode_is_evidence(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that no table tells of."""
    status = os.stat(case / "store")
    own = outside._identity
    monkeypatch.setattr(
        outside, "_identity", lambda path: (status.st_dev, status.st_ino) if path == str(case / "view") else own(path)
    )
    with pytest.raises(Refused):
        refuse_inside(str(case / "view/deep/new"), [str(case / "store")])
