"""The parts of an explanation, whatever it explains."""

from collections.abc import Callable
from dataclasses import dataclass

from rmqinspect.verify.codes import Eras

Describe = Callable[[str], str]
"""Describes a value, given as typed. `ValueError` with a sentence: not a value of this kind."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One explanation; the fields are those of the JSON rows."""

    kind: str  # code, field, property, bit, number, topic, log line, word
    name: str
    where: str  # severity and level; layout, offset and size; the RocketMQ class that logs it
    meaning: str
    values: tuple[tuple[str, str], ...] = ()  # (value as given, its meaning)
    effect: str = ""  # what a broker makes of it, in short
    cause: str = ""
    eras: Eras = ()  # by version; for a log line: what is different or misleading
    logged: tuple[str, ...] = ()  # lines of a broker's log that accompany it
    next: tuple[str, ...] = ()  # commands
    see: tuple[str, ...] = ()  # names that can be explained, too
    do: str = ""  # what a person has to do


@dataclass(frozen=True, slots=True)
class Named:
    """A field, property, bit, number, topic or word that can be looked up by name."""

    kind: str
    name: str  # RocketMQ's own
    where: str
    meaning: str
    also: tuple[str, ...] = ()  # other names: of the column, the layout, the getter
    describe: Describe | None = None
    eras: Eras = ()
    next: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
