"""Installations without PySpark: the file of requirements, and one file that runs where there is only Python."""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from tests.support.samples import ROOT, sample


def test_requirements_of_a_host_are_those_of_the_package_without_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = (ROOT / "install" / "host.txt").read_text().splitlines()
    asked = [line for line in lines if not line.startswith("#")]
    assert asked == [line for line in project if not line.startswith("pyspark")]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment in which nothing is installed."""
    place = tmp_path_factory.mktemp("empty")
    venv.create(place, symlinks=True)
    return place / "bin" / "python"


def _run(python: Path, archive: Path, *arguments: str | Path) -> tuple[int, str]:
    """Run the archive with no setting of this run's, below a home of its own."""
    place = python.parents[1]
    settings = {"PATH": os.defpath, "HOME": str(place), "PEX_ROOT": str(place / "unpacked")}
    command = [python, "-I", archive, *arguments]
    ended = subprocess.run(command, env=settings, cwd=place, capture_output=True, stdin=subprocess.DEVNULL, text=True)
    return ended.returncode, ended.stdout if ended.returncode in (0, 3) else ended.stderr


def test_one_file_runs_where_there_is_only_python(python: Path, tmp_path: Path) -> None:
    archive = tmp_path / "rmqinspect.pex"
    build: list[str | Path] = [sys.executable, ROOT / "install" / "archive.py", "--no-compress"]
    before = sorted(path.name for path in ROOT.iterdir())
    subprocess.run([*build, "--libraries-from", sys.prefix, "-o", archive], check=True, capture_output=True)
    assert sorted(path.name for path in ROOT.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["rmqinspect.pex"]

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert _run(python, archive, "--version") == (0, f"rmqinspect {version}\n")
    status, printed = _run(python, archive, "verify", sample("flipped-bit-5.3.3"))
    assert status == 3 and "DAMAGED at level deep: 1 error" in printed
    lake = tmp_path / "lake"
    status, printed = _run(python, archive, "export", sample("healthy-4.9.7"), "-o", lake, "-j", "2")
    assert status == 0 and "253 rows in 1 file" in printed
    unpacked = sum(path.stat().st_size for path in (python.parents[1] / "unpacked").rglob("*") if path.is_file())
    assert unpacked < 300e6


def test_an_archive_that_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    build: list[str | Path] = [sys.executable, ROOT / "install" / "archive.py"]
    build += ["--libraries-from", tmp_path / "absent"]
    ended = subprocess.run([*build, "-o", tmp_path / "out.pex"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("archive: ")
    assert not list(tmp_path.iterdir())
