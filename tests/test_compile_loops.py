"""Building with and without a compiler: what is asked for, what is made, and what is said; nothing needs a network.

`.ci/run` compiles the real loops: with the compiler of the machine, with the one from the package index, with bounds
checks, and not at all.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from install import backend, compile_loops
from install.compile_loops import CHECKED, SHARED, SUFFIX, UNCOMPILED, VARIABLE

NOT_COMPILED = "the loops are NOT compiled, and run as Python: "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of loops with one small module in place of those of the package, nothing compiled, no compiler."""
    place = tmp_path / "package" / "rmqinspect" / "loops"
    place.mkdir(parents=True)
    (place.parent / "__init__.py").touch()
    (place / "__init__.py").touch()
    (place / "text.py").write_text("def byte_of(raw, at):\n    return raw[at]\n")
    (place / "text.pxd").write_text("cpdef long long byte_of(const unsigned char[::1] raw, long long at) except? -1\n")
    monkeypatch.setattr(compile_loops, "FOLDER", place)
    monkeypatch.setattr(compile_loops, "STAMP", place / compile_loops.STAMP.name)
    monkeypatch.setattr(compile_loops, "MODULES", ("text",))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("CC", raising=False)
    return place


def program(place: Path, script: str) -> str:
    """Write a program and return its path."""
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o755)
    return str(place)


def compiler(place: Path) -> str:
    """Write a C compiler that makes a file of what it is told, and return its path."""
    return program(place, 'while [ "$1" != -o ]; do shift; done; echo made > "$2"')


def plant(folder: Path, way: str = "") -> None:
    """Lay extensions of these sources into the folder, as if they had been compiled in this way."""
    for name in (SHARED, "text"):
        (folder / f"{name}{SUFFIX}").write_text(name)
    compile_loops.STAMP.write_text(compile_loops._digest(way))


# --- what is asked of the package index -----------------------------------------------------------------


def test_a_compiler_is_asked_for_where_this_machine_has_none_that_works(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = backend.get_requires_for_build_wheel
    assert asked() == [backend.CYTHON, backend.ZIGLANG]
    program(tmp_path / "gcc", "exit 1")  # gcc without the headers of C
    assert asked() == [backend.CYTHON, backend.ZIGLANG]
    compiler(tmp_path / "clang")
    assert asked() == [backend.CYTHON]
    (tmp_path / "clang").unlink()
    monkeypatch.setenv("CC", f"{compiler(tmp_path / 'mine')} --fast")
    assert asked() == [backend.CYTHON]
    assert compile_loops.compiler_of_host() == [str(tmp_path / "mine"), "--fast"]
    assert backend.get_requires_for_build_editable() == asked()


def test_nothing_is_asked_for_that_would_not_be_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(folder)
    assert backend.get_requires_for_build_wheel() == []
    monkeypatch.setenv(VARIABLE, CHECKED)  # those are another build
    assert backend.get_requires_for_build_wheel() != []
    monkeypatch.setenv(VARIABLE, UNCOMPILED)
    assert backend.get_requires_for_build_wheel() == []


def test_a_word_that_is_none_ends_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "cheked")
    with pytest.raises(ValueError, match="RMQINSPECT_LOOPS is 'cheked'; known are: checked, uncompiled"):
        backend.get_requires_for_build_wheel()


def test_pyproject_and_the_backend_ask_for_the_same_cython() -> None:
    developers = compile_loops.ROOT / "pyproject.toml"
    assert f'"{backend.CYTHON}"' in developers.read_text()


# --- what is made, or said ------------------------------------------------------------------------------


def absent(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let these packages count as not installed, and others as installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in names else name)


def test_a_build_without_a_compiler_ends_well_and_says_why(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, "of other sources")
    absent(monkeypatch, "ziglang")
    assert compile_loops.compile_in_place() == f"{NOT_COMPILED}there is no C compiler, and ziglang is not installed"
    assert not compile_loops.extensions()  # old ones would run in place of the source

    compiler(tmp_path / "cc")
    absent(monkeypatch, "Cython")
    assert compile_loops.compile_in_place() == f"{NOT_COMPILED}Cython is not installed"

    monkeypatch.setenv(VARIABLE, UNCOMPILED)
    plant(folder)
    assert compile_loops.compile_in_place() == f"{NOT_COMPILED}RMQINSPECT_LOOPS is uncompiled"
    assert not compile_loops.extensions() and not compile_loops.stale()


def test_what_fails_is_said_in_the_words_of_who_failed_and_leaves_nothing(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent(monkeypatch)
    monkeypatch.setattr(compile_loops, "_CYTHON", [program(tmp_path / "cython", "exit 0")])
    program(tmp_path / "cc", 'case "$*" in *probe.c*) exit 0; esac\necho text.c:1: no such header >&2; exit 1')
    said = compile_loops.compile_in_place()
    assert said.startswith(f"{NOT_COMPILED}cc ") and said.endswith(" failed:\ntext.c:1: no such header")
    assert not compile_loops.extensions()

    compiler(tmp_path / "cc")  # makes what is no library
    assert "what was compiled cannot be loaded: " in compile_loops.compile_in_place()
    assert not compile_loops.extensions()

    program(tmp_path / "cython", "echo text.py:1:4: bad type >&2; exit 1")
    assert compile_loops.compile_in_place().endswith(" failed:\ntext.py:1:4: bad type")


def test_extensions_are_stale_when_a_source_or_the_way_to_compile_has_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not compile_loops.stale()  # none are there
    plant(folder)
    assert compile_loops.way_of_extensions() == "" and not compile_loops.stale()
    assert compile_loops.compile_in_place() == "the loops are compiled already"
    plant(folder, CHECKED)
    assert compile_loops.way_of_extensions() == CHECKED and not compile_loops.stale()
    (folder / "text.pxd").write_text((folder / "text.pxd").read_text() + "\n")
    assert compile_loops.stale()
    plant(folder)
    assert not compile_loops.stale()
    (folder / "loads.h").write_text("")
    assert compile_loops.stale()
    compile_loops.STAMP.unlink()
    assert compile_loops.stale()
    plant(folder)
    assert not compile_loops.stale()
    (folder / "text.cpython-311-x86_64-linux-gnu.so").touch()  # Python takes it first
    assert compile_loops.stale()


def test_the_checked_build_runs_and_refuses_an_index_outside(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small module, by the compiler of this machine, in an interpreter that sees nothing else of the package."""
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv(VARIABLE, CHECKED)
    said = compile_loops.compile_in_place()
    assert said.startswith("the loops are compiled by: ") and said.endswith(", with bounds checks")
    assert [file.name for file in compile_loops.extensions()] == [f"shared{SUFFIX}", f"text{SUFFIX}"]
    assert compile_loops.way_of_extensions() == CHECKED

    (folder / "text.py").unlink()  # only the extension is left
    code = (
        "from rmqinspect.loops.text import byte_of\n"
        "print(byte_of(b'abc', 2))\n"
        "for place in (3, -1, 1 << 40):\n"
        "    try:\n"
        "        byte_of(b'abc', place)\n"
        "    except IndexError as error:\n"
        "        print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder.parents[1], capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["99", *["Out of bounds on buffer access (axis 0)"] * 3], ended.stderr
