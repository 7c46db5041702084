"""Loops under suspicion: their source, run on arrays and integers that check each index and each sum.

Compiled code wraps around silently, at both ends of an array and at both ends of 64 bits. Here a negative index, a
slice that is cut off, a sum of more than 64 bits or an array of another type than declared is an AssertionError.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from tests.support.loop_ways import exchanged, loops

_LEAST, _MOST = -(2**63), 2**63 - 1


class Int64(int):
    """An integer that stays one of 64 bits."""


def _checked(name: str) -> Any:
    operation = getattr(int, name)

    def operate(*numbers: int) -> Any:
        result = operation(*numbers)
        if result is NotImplemented:
            return result
        assert _LEAST <= result <= _MOST, f"{name}{numbers}: more than 64 bits"
        return Int64(result)

    return operate


for _name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift", "and", "or", "xor"):
    setattr(Int64, f"__{_name}__", _checked(f"__{_name}__"))
    setattr(Int64, f"__r{_name}__", _checked(f"__r{_name}__"))
for _name in ("neg", "abs", "invert"):
    setattr(Int64, f"__{_name}__", _checked(f"__{_name}__"))


class StrictArray:
    """An array that is read and written inside of itself only."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._view = array.data
        self.shape = array.shape

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        value = self._view[index]
        return Int64(value) if isinstance(value, int) else value

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        try:
            self._view[index] = value
        except (ValueError, TypeError) as error:  # a number too large, or a slice of another size
            raise AssertionError(f"[{index}] = {value}: {error}") from error

    def _check(self, index: Any) -> None:
        if isinstance(index, slice):
            assert index.step is None
            start = 0 if index.start is None else index.start
            end = len(self) if index.stop is None else index.stop
            assert 0 <= start <= end <= len(self), f"[{start}:{end}] of {len(self)}"
            return
        indexes = index if isinstance(index, tuple) else (index,)
        assert len(indexes) == len(self.shape)
        for one, size in zip(indexes, self.shape, strict=True):
            assert isinstance(one, int), f"index {one!r}"
            assert 0 <= one < size, f"[{one}] of {size}"


def strict(value: Any, hint: Any) -> Any:
    """Return a value that checks what is done with it; it must be of the type that a parameter declares."""
    if hint is int:
        assert isinstance(value, int | np.integer), value
        assert _LEAST <= value <= _MOST
        return Int64(value)
    declared, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    assert isinstance(value, np.ndarray)
    item, axes = get_args(get_args(declared)[1])[0], 2 if "two dimensions" in notes else 1
    assert (value.dtype, value.ndim, value.flags.c_contiguous) == (item, axes, True), "not the declared array"
    assert value.flags.writeable or "written" not in notes
    return StrictArray(value)


def strictly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loop, given as its source, that checks all that it does."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return")

    def call(*arguments: Any) -> Any:
        given = (strict(value, hint) for value, hint in zip(arguments, hints.values(), strict=True))
        result = function(*given)
        return int(result) if type(result) is Int64 else result

    return call


@contextmanager
def strict_loops() -> Iterator[None]:
    """Run all loops of this process under suspicion until the block ends."""
    known = loops()
    with exchanged(lambda name, _: strictly(known[name])):
        yield
