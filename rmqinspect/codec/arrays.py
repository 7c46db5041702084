"""Types of numpy columns, and helpers on them.

Attributes that are computed when they are first asked for.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Units = np.ndarray[Any, np.dtype[Any]]  # rows of a layout: a structured dtype, from `layout.dtype_of`


def groups(*keys: Ints) -> list[tuple[int, int]]:
    """Return (first row, row after the last) of each run of rows in which no key changes."""
    if not len(keys[0]):
        return []
    changes = np.zeros(len(keys[0]) - 1, np.bool_)
    for key in keys:
        changes |= key[1:] != key[:-1]
    firsts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    return list(zip(firsts.tolist(), np.append(firsts[1:], len(keys[0])).tolist(), strict=True))


def used_units(units: Units) -> Units:
    """Return a mask of the rows that are not all zeros."""
    return reduce(or_, (units[name] != 0 for name in units.dtype.names or ()))


Value = TypeVar("Value")


class lazy(Generic[Value]):  # noqa: N801  used like a function
    """As `functools.cached_property`, without its lock.

    Up to Python 3.11 that lock is one for all instances: threads would compute the checksums of their own records
    one after the other.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        if instance is None:
            return self
        # From now on the attribute is found before this method.
        value = instance.__dict__[self._function.__name__] = self._function(instance)
        return value
