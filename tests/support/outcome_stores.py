"""Stores whose right answer is about messages, not about files: `data/outcome`, whose README has the answers.

Each is unpacked once per process, into a folder of its own that all tests of the process share. A test that changes a
store takes a `copy_of_case`.
"""

import atexit
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from tests.support.oracle import DATA

_ARCHIVES = DATA / "outcome"

CASES = tuple(sorted(archive.name.removesuffix(".tar.xz") for archive in _ARCHIVES.glob("*.tar.xz")))
"""The names of all cases."""


def outcome_store(name: str) -> Path:
    """Return the store directory of a case, shared by all tests: it is not to be changed."""
    return _root_of(_unpacked(name), name)


def outcome_conf(name: str) -> Path:
    """Return the `broker.conf` of a case that has one."""
    conf = _unpacked(name) / "broker.conf"
    assert conf.is_file(), f"{name} has no broker.conf"
    return conf


def copy_of_case(name: str, target: Path) -> Path:
    """Unpack a case into `target`, a folder that is made; return its store directory there."""
    _unpack(name, target)
    return _root_of(target, name)


@cache
def _unpacked(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rmqinspect-outcome-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _unpack(name, folder / name)
    return folder / name


def _root_of(folder: Path, name: str) -> Path:
    """Return where the store lies: the archives call it `store`, or by the name of the case."""
    return next(root for root in (folder / "store", folder / name) if root.is_dir())


def _unpack(name: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(_ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    conf = target / "broker.conf"
    if conf.is_file():
        conf.write_text(conf.read_text().replace("@DIR@", str(target)))
