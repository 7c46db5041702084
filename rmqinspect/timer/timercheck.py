"""config/timercheck: how far the timer has read and flushed. Source: TimerCheckpoint."""

from rmqinspect.codec.layout import Container, parse
from rmqinspect.schemas.timer import TimerCheck
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import open_file


def read_timercheck(file: StoreFile | None) -> Container:
    """Return the fields of timercheck; those that the file lacks are 0, as in the file that a broker maps.

    :raises Unreadable: the system reports an I/O error.
    """
    if file is None:
        return no_timercheck()
    with open_file(file) as reader:
        return _parse(reader.read(0, TimerCheck.sizeof()))


def no_timercheck() -> Container:
    """Return the fields of a timercheck that does not exist: all 0."""
    return _parse(b"")


def _parse(raw: bytes) -> Container:
    return parse(TimerCheck, raw.ljust(TimerCheck.sizeof(), b"\0"), lambda: "timercheck")
