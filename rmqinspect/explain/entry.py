"""What an explanation consists of, whatever it explains."""

from collections.abc import Callable
from dataclasses import dataclass

from rmqinspect.verify.codes import Eras

Words = Callable[[str], str]
"""Says what a value (as typed) means. `ValueError` with a sentence: it is no value of this kind."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One thing explained; the fields are those of the JSON rows."""

    kind: str  # code, field, property, bit, number, topic, log line, word
    name: str
    where: str  # severity and level; layout, place and size; the RocketMQ class that logs it
    meaning: str
    values: tuple[tuple[str, str], ...] = ()  # (value as given, what it means)
    effect: str = ""  # what a broker makes of it, in short
    cause: str = ""
    eras: Eras = ()  # by version; of a log line: what is odd about it
    logged: tuple[str, ...] = ()  # lines of a broker's log that come with it
    next: tuple[str, ...] = ()  # commands
    see: tuple[str, ...] = ()  # names that can be explained too


@dataclass(frozen=True, slots=True)
class Named:
    """A field, property, bit, number, topic or word that can be asked for by name."""

    kind: str
    name: str  # RocketMQ's own
    where: str
    meaning: str
    also: tuple[str, ...] = ()  # other names: the column's, the layout's, the getter's
    words: Words | None = None
    eras: Eras = ()
    next: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
