"""The package's exceptions, by cause. `cli` maps them to exit statuses.

Damage found by a scan is reported as a row, not raised; `BadRecord` is raised only where exactly
one record was requested.
"""


class RmqinspectError(Exception):
    """Base of all exceptions of this package; the text is a one-line message.

    >>> import rmqinspect
    >>> try:
    ...     rmqinspect.read_table(rmqinspect.open_store("samples/healthy-4.9.7"), "mesages")
    ... except rmqinspect.RmqinspectError as error:
    ...     print(error)
    no table 'mesages'; nearest: messages
    """


class NotAStore(RmqinspectError):
    """The path does not exist, or is not part of a RocketMQ store.

    >>> import rmqinspect
    >>> rmqinspect.open_store("samples/README.md")
    Traceback (most recent call last):
    rmqinspect.errors.NotAStore: …
    """


class Unreadable(RmqinspectError):
    """The operating system failed to open `file`, or to read it at byte `offset`.

    >>> import rmqinspect
    >>> error = rmqinspect.Unreadable("no permission", "commitlog/00000000000000000000", 4096)
    >>> error.file, error.offset
    ('commitlog/00000000000000000000', 4096)
    """

    def __init__(self, message: str, file: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset


class Unreachable(RmqinspectError):
    """A remote file system does not answer.

    Unlike `Unreadable`, which concerns one file, it ends the command: every other file would time out too.
    """


class BadRecord(RmqinspectError):
    """The requested record or file cannot be parsed."""


class NothingFound(RmqinspectError):
    """The requested offset or topic does not exist."""


class RecordLost(NothingFound):
    """The requested record was, or may have been, in what is damaged or gone: no proof that it never arrived."""


class BadOption(RmqinspectError):
    """An unknown option, or an invalid value of one."""


class DamageFound(RmqinspectError):
    """There is damage, and the caller asked to stop at damage."""


class NotInstalled(RmqinspectError):
    """A required program or library is missing or too old."""


class Refused(RmqinspectError):
    """Refused, to protect the evidence or an existing output."""
