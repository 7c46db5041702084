"""What can go wrong, by whose fault it is.

Damage found while scanning is a row of a table and never one of these; `BadRecord` is raised
only where exactly one record was asked for.
"""


class RmqinspectError(Exception):
    """Base of all errors this package raises on purpose; the text is one line for people."""


class NotAStore(RmqinspectError):
    """The path exists but is nothing of a RocketMQ store, or it does not exist."""


class Unreadable(RmqinspectError):
    """The operating system refused to open or read `file` of the evidence, from byte `offset` on."""

    def __init__(self, message: str, file: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset


class Unreachable(RmqinspectError):
    """A remote file system does not answer: nothing more of the evidence can be read.

    Not an `Unreadable`, which is about one file and lets the others be read: each of them would wait as long.
    """


class BadRecord(RmqinspectError):
    """The one record or file that was asked for cannot be parsed."""


class NothingFound(RmqinspectError):
    """What was asked for is not there: an offset, a topic."""


class BadOption(RmqinspectError):
    """What the caller asked for cannot be meant: an unknown option, a value that is none."""


class DamageFound(RmqinspectError):
    """There is damage, and the caller asked to be stopped by it."""


class NotInstalled(RmqinspectError):
    """A program or library that the work needs is not on this machine, or is too old."""


class Refused(RmqinspectError):
    """Not done, for the safety of the evidence or of an existing output."""
