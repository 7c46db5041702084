"""Attributes that are computed when they are first asked for."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

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
