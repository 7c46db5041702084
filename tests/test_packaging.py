"""What is built and installed is the package and nothing else, and it runs away from the checkout.

Everything is built from a copy of the tree: setuptools leaves folders behind. Nothing needs a network, and nothing is
compiled: tests/test_compile_loops.py does that.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from install import compile_loops
from tests.support.documents import page_of, table_of
from tests.support.samples import ROOT, sample

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

# Installed as share/man/man1/rmqinspect.1 of the environment.
MAN_PAGE = f"rmqinspect-{VERSION}.data/data/share/man/man1/rmqinspect.1"

# Folders of the checkout that no build may need.
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "build", "dist", "samples", "data", "*.so", compile_loops.STAMP.name
)

# What only a build reads, and what it makes.
NOT_INSTALLED = (".pyc", ".pxd", ".h", ".so", compile_loops.STAMP.suffix)


def run(*command: str | Path, cwd: Path, status: int = 0, loops: str = compile_loops.UNCOMPILED) -> str:
    """Run a command that does not see this checkout or this run's settings, and return what it prints."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if name not in ours} | {compile_loops.VARIABLE: loops}
    ended = subprocess.run(command, cwd=cwd, env=clean, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")
    said = f"{command}: {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    assert ended.returncode == status, said
    return ended.stdout


def build(kind: str, tree: Path, out: Path, loops: str = compile_loops.UNCOMPILED) -> Path:
    """Build a `wheel` or an `sdist` of `tree` with this environment's setuptools."""
    run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", out, tree, cwd=tree, loops=loops)
    (made,) = out.iterdir()
    return made


def package_files(root: Path) -> set[str]:
    """Return every file of the package by its name in an installation, from the folders of the checkout."""
    found = set()
    for folder, name in ((root / "rmqinspect", "rmqinspect"), (root / "schemas", "rmqinspect/schemas")):
        # os.walk does not follow the link rmqinspect/schemas; a glob may.
        for place, _, files in os.walk(folder):
            below = Path(place).relative_to(folder)
            found |= {(Path(name) / below / file).as_posix() for file in files if not file.endswith(NOT_INSTALLED)}
    return found


def wheel_files(wheel: Path) -> list[str]:
    """Return the names in a wheel, without its metadata, sorted."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(name for name in archive.namelist() if ".dist-info/" not in name)


def metadata_of(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(f"rmqinspect-{VERSION}.dist-info/METADATA"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return shutil.copytree(ROOT, tmp_path / "checkout", symlinks=True, ignore=LEFT_OUT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    tree = shutil.copytree(ROOT, place / "checkout", symlinks=True, ignore=LEFT_OUT)
    return build("wheel", tree, place / "out")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Path]:
    """A fresh environment that sees the libraries of this one, but no editable install of the package in it.

    A path from a .pth file is looked in for modules only: .pth files in there, which make an installation
    editable, are not read.
    """
    place = tmp_path / "environment"
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python3*/site-packages")
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "libraries.pth").write_text("\n".join(sorted(libraries)))
    yield place
    shutil.rmtree(place)


def install(environment: Path, *what: str | Path) -> None:
    """Install without an index; what this environment has of the same name counts as absent."""
    there = ["--disable-pip-version-check", "--python", str(environment / "bin" / "python")]
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "--quiet"]
    run(sys.executable, "-m", "pip", *there, "install", *options, *what, cwd=environment)


def check_installation(environment: Path) -> str:
    """Run the commands of an installation from an empty folder, and return the folder of the package."""
    program, empty = environment / "bin" / "rmqinspect", environment / "empty"
    empty.mkdir()
    assert VERSION in run(program, "--version", cwd=empty)
    assert "127.0.0.1:10911" in run(program, "id", "7F00000100002A9F0000000000017BA3", cwd=empty)
    orders = ["-t", "orders", "-f", "jsonl", "--columns", "physical_offset,status"]
    lines = run(program, "decode", sample("healthy-4.9.7"), *orders, cwd=empty).splitlines()
    assert len(lines) == 47
    assert all('"status":"ok"' in line for line in lines)
    damaged = ["-f", "jsonl", "--columns", "physical_offset,status", "--offset", "97187"]
    rows = run(program, "decode", sample("flipped-bit-5.3.3"), *damaged, cwd=empty, status=3)
    assert rows.splitlines() == ['{"physical_offset":97187,"status":"body_crc"}']
    assert not any(empty.iterdir())
    where = "import pathlib, rmqinspect; print(pathlib.Path(rmqinspect.__file__).resolve().parent)"
    return run(environment / "bin" / "python", "-c", where, cwd=empty).strip()


def test_every_package_folder_is_listed_in_pyproject_and_is_a_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {str(Path(file).parent) for file in package_files(ROOT) if file.endswith(".py")}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(f.replace("/", ".") for f in folders)
    assert {f"{folder}/__init__.py" for folder in folders} <= package_files(ROOT)


def test_the_link_to_schemas_is_relative_and_leads_there() -> None:
    link = ROOT / "rmqinspect" / "schemas"
    assert link.is_symlink()
    assert os.readlink(link) == "../schemas"


def test_a_wheel_holds_every_file_of_the_package_once_and_nothing_else(wheel: Path) -> None:
    names = wheel_files(wheel)
    assert names == sorted({*package_files(ROOT), MAN_PAGE})
    assert "rmqinspect/schemas/message.py" in names
    assert "rmqinspect/py.typed" in names


def test_a_wheel_with_compiled_loops_holds_them_and_says_for_which_machines(
    wheel: Path, checkout: Path, tmp_path: Path
) -> None:
    loops, modules = checkout / "rmqinspect" / "loops", (compile_loops.SHARED, *compile_loops.MODULES)
    for name in modules:
        (loops / f"{name}{compile_loops.SUFFIX}").write_text(name)
    (loops / compile_loops.STAMP.name).write_text(compile_loops._digest(""))
    compiled = build("wheel", checkout, tmp_path / "out", loops="")
    added = {f"rmqinspect/loops/{name}{compile_loops.SUFFIX}" for name in modules}
    assert wheel_files(compiled) == sorted({*wheel_files(wheel), *added})
    with zipfile.ZipFile(compiled) as archive:
        assert all(archive.read(name).decode() == Path(name).name.partition(".")[0] for name in added)
    *_, python, abi, platform = compiled.stem.split("-")
    assert (python, abi) == ("cp311", "abi3") and platform != "any"
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_metadata_says_what_it_is_and_names_no_address(wheel: Path) -> None:
    about = metadata_of(wheel)
    assert (about["Name"], about["Version"], about["License-Expression"]) == ("rmqinspect", VERSION, "Apache-2.0")
    assert about["License-File"] == "LICENSE" and about["Requires-Python"] == ">=3.11"
    assert about["Description-Content-Type"] == "text/markdown"
    classifiers = about.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers and not [one for one in classifiers if one.startswith("License ::")]
    assert not {"Home-page", "Project-URL", "Download-URL", "Author", "Maintainer"} & set(about.keys())


def test_an_index_could_show_it(wheel: Path) -> None:
    assert run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", wheel, cwd=wheel.parent).endswith(
        ": PASSED\n"
    )


def test_the_page_of_installations_explains_every_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name != "dev"]
    asked = [line.partition(";")[0].strip() for lines in (project["dependencies"], *extras) for line in lines]
    rows = table_of(page_of("install"), "Bounds")
    assert sorted("".join(part.strip("`") for part in row[:2]) for row in rows) == sorted(asked)
    assert all(why for _, _, why in rows)


def test_an_sdist_holds_schemas_once_and_no_link_and_builds_the_same_wheel(
    checkout: Path, wheel: Path, tmp_path: Path
) -> None:
    sdist = build("sdist", checkout, tmp_path / "sdist")
    top = f"rmqinspect-{VERSION}"
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        archive.extractall(tmp_path / "unpacked")
    assert all(member.isfile() or member.isdir() for member in members)
    names = [member.name for member in members if member.isfile()]
    assert len(set(names)) == len(names)
    assert [name for name in names if name.endswith("/message.py")] == [f"{top}/schemas/message.py"]
    assert {f"{top}/LICENSE", f"{top}/README.md", f"{top}/pyproject.toml"} <= set(names)
    assert not any("/tests/" in name or "/samples/" in name for name in names)
    assert f"{top}/docs/rmqinspect.1" in names
    assert {f"{top}/install/{name}" for name in ("backend.py", "compile_loops.py", "python-headers.tar.xz")} <= set(
        names
    )
    assert {f"{top}/rmqinspect/loops/{name}" for name in ("records.pxd", "loads.pxd", "loads.h")} <= set(names)
    assert not any(name.endswith((".so", compile_loops.STAMP.suffix)) for name in names)
    assert sdist.stat().st_size < 2_000_000

    again = build("wheel", tmp_path / "unpacked" / top, tmp_path / "wheel")
    assert wheel_files(again) == wheel_files(wheel)


def test_an_installed_wheel_runs_away_from_the_checkout(wheel: Path, environment: Path) -> None:
    install(environment, wheel)
    package = check_installation(environment)
    assert Path(package).is_relative_to(environment.resolve())
    installed = environment / "share" / "man" / "man1" / "rmqinspect.1"
    assert installed.read_bytes() == (ROOT / "docs" / "rmqinspect.1").read_bytes()
    alone = "import importlib.util; print(importlib.util.find_spec('schemas'))"
    assert run(environment / "bin" / "python", "-c", alone, cwd=environment).strip() == "None"


def test_an_editable_install_runs_the_checkout(checkout: Path, environment: Path) -> None:
    install(environment, "--editable", checkout)
    assert check_installation(environment) == str(checkout.resolve() / "rmqinspect")
