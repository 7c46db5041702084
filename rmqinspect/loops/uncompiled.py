"""What stands for Cython where loops are not compiled: the same source runs as it is, about a hundred times slower."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np


class cython:  # noqa: N801  a module's name
    """The names of Cython's module that loops use."""

    compiled = False
    nogil = nullcontext()


def take_arrays(module: str) -> None:
    """Let the public functions of a module take arrays.

    They become memoryviews, whose items are Python's own integers: those of numpy are slower, and wrap around.
    """
    names = vars(sys.modules[module])
    for name, value in list(names.items()):
        if isinstance(value, FunctionType) and value.__module__ == module and not name.startswith("_"):
            names[name] = _on_views(value)


def _on_views(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*(value.data if isinstance(value, np.ndarray) else value for value in arguments))

    return call
