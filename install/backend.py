"""What builds the package, named in pyproject.toml: setuptools, with the loops compiled where that is possible.

    a C compiler on this machine    the loops are compiled by it
    none                            `ziglang` is asked of the package index, which has a compiler in a wheel
    neither, or an error            the package is built all the same, without compiled loops, and the output says why

`install/compile_loops.py` compiles, and `setup.py` takes what it made into a wheel. Of an editable installation the
extensions lie beside the sources.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import Extension, build_meta
from setuptools.build_meta import build_sdist as build_sdist
from setuptools.build_meta import get_requires_for_build_sdist as get_requires_for_build_sdist
from setuptools.build_meta import prepare_metadata_for_build_editable as prepare_metadata_for_build_editable
from setuptools.build_meta import prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel
from setuptools.command.build_ext import build_ext

from install import compile_loops

# As in pyproject.toml: releases that were tried, and no cap where nothing is known to break.
CYTHON = "cython>=3.3"
ZIGLANG = "ziglang>=0.15"

Settings = Mapping[str, Any] | None

_made: list[Path] = []  # the extensions that setup.py puts into the wheel that is being built


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what has to be installed for a build: nothing that would not be used."""
    if compile_loops.mode() == compile_loops.UNCOMPILED or compile_loops.way_of_extensions() == compile_loops.mode():
        return []
    return [CYTHON] if compile_loops.compiler_of_host() else [CYTHON, ZIGLANG]


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel, with compiled loops if possible, and return its name."""
    with tempfile.TemporaryDirectory() as place:
        if compile_loops.way_of_extensions() == compile_loops.mode():
            for file in compile_loops.extensions():
                shutil.copyfile(file, Path(place, file.name))
            done = "the loops are compiled already"
        else:
            done = compile_loops.compile_or_say(Path(place))
        print(done, flush=True)
        _made[:] = sorted(Path(place).iterdir())
        name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Compile the loops beside their sources, if possible; return the name of a wheel that leads to them."""
    print(compile_loops.compile_in_place(), flush=True)
    name: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


# --- for setup.py -----------------------------------------------------------------------------------------


def extensions() -> list[Extension]:
    """Return the extensions of the wheel that is being built: none if the loops are not compiled."""
    names = [f"rmqinspect.loops.{file.name.removesuffix(compile_loops.SUFFIX)}" for file in _made]
    return [Extension(name, [], py_limited_api=True) for name in names]


def options() -> dict[str, dict[str, str]]:
    """Return the options of commands: a wheel with extensions is for CPython from 3.11 on."""
    return {"bdist_wheel": {"py_limited_api": "cp311"}} if _made else {}


class TakeCompiled(build_ext):  # type: ignore[misc]
    """Puts the extensions that have been compiled where setuptools expects them."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        (made,) = (file for file in _made if file.name == target.name)
        os.makedirs(target.parent, exist_ok=True)
        shutil.copyfile(made, target)
