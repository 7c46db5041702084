"""The loops in both ways, in one process: compiled, as they are installed, and as their source says."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from inspect import unwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from rmqinspect.loops import pointers, records, text

WAYS = ("compiled", "uncompiled")
MODULES = (text, records, pointers)  # each needs those before it
FOLDER = Path(text.__file__ or "").parent


@cache
def sources() -> dict[str, ModuleType]:
    """Return the modules of loops, made of their source alone, by their short names."""
    made: dict[str, ModuleType] = {}
    installed = {module.__name__: module for module in MODULES}
    try:
        for name in installed:
            short = name.rpartition(".")[2]
            spec = spec_from_loader(name, SourceFileLoader(name, str(FOLDER / f"{short}.py")))
            assert spec is not None and spec.loader is not None
            made[short] = sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(made[short])
    finally:
        sys.modules.update(installed)
    return made


def loops() -> dict[str, FunctionType]:
    """Return the source of all loops, by short names of module and function; also those that only loops call."""
    found = {}
    for short, module in sources().items():
        for name, value in vars(module).items():
            function = unwrap(value) if callable(value) else None
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                found[f"{short}.{name}"] = function
    return found


def entries() -> dict[str, Any]:
    """Return the loops that the package calls, as they are installed, by short names of module and function."""
    return {
        f"{short}.{name}": getattr(module, name)
        for module in MODULES
        for short in [module.__name__.rpartition(".")[2]]
        for name, value in vars(sources()[short]).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and hasattr(module, name)
    }


@contextmanager
def loop_way(way: str) -> Iterator[None]:
    """Run all loops of this process in one of WAYS until the block ends; any other word leaves them as they are."""
    if way != "uncompiled" or not text.COMPILED:
        yield
        return
    with exchanged(lambda name, source: source):
        yield


@contextmanager
def exchanged(make: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Put other functions in place of all loops that the package calls; `make` gets a loop's name and its source."""
    ways = {}
    for name, installed in entries().items():
        short, _, function = name.partition(".")
        ways[installed] = make(name, vars(sources()[short])[function])
    were = [vars(module)["COMPILED"] for module in MODULES]
    known = len(sys.modules)
    places = _places(known)
    for names, name, installed in places:
        names[name] = ways[installed]
    for module in MODULES:
        vars(module)["COMPILED"] = False
    try:
        yield
    finally:
        for names, name, installed in places:
            names[name] = installed
        for module, was in zip(MODULES, were, strict=True):
            vars(module)["COMPILED"] = was
        if len(sys.modules) > known:  # a module that was imported in between took what it found
            back = {other: installed for installed, other in ways.items()}
            for names, name, other in _names_bound_to(back):
                names[name] = back[other]


@lru_cache(maxsize=1)
def _places(_: int) -> list[tuple[dict[str, Any], str, Any]]:
    """Return where names are bound to loops, while so many modules are loaded."""
    return _names_bound_to(dict.fromkeys(entries().values()))


def _names_bound_to(functions: Mapping[Any, Any]) -> list[tuple[dict[str, Any], str, Any]]:
    return [
        (vars(module), name, value)
        for known, module in list(sys.modules.items())
        if known.startswith(("rmqinspect", "tests"))
        for name, value in list(vars(module).items())
        if type(value) in _FUNCTIONS and value in functions
    ]


_FUNCTIONS = {type(text.lay_out), FunctionType}
