"""The exit statuses, in one place."""

from enum import IntEnum

from rmqinspect.errors import (
    BadOption,
    BadRecord,
    DamageFound,
    NotAStore,
    NothingFound,
    NotInstalled,
    Refused,
    RmqinspectError,
    Unreachable,
    Unreadable,
)


class ExitStatus(IntEnum):
    """What a command's exit status means."""

    DONE = 0
    BUG = 1  # an exception nobody expected; Python's own status for it
    USAGE = 2
    DAMAGE = 3  # damage or an inconsistency was found
    UNREADABLE = 4  # something asked for could not be read
    NOTHING_FOUND = 5
    REFUSED = 6  # for the safety of the evidence or of an existing output
    INTERRUPTED = 130


_OF_ERRORS: dict[type[RmqinspectError], ExitStatus] = {
    NotAStore: ExitStatus.UNREADABLE,
    Unreadable: ExitStatus.UNREADABLE,
    Unreachable: ExitStatus.UNREADABLE,
    BadRecord: ExitStatus.DAMAGE,
    DamageFound: ExitStatus.DAMAGE,
    NothingFound: ExitStatus.NOTHING_FOUND,
    BadOption: ExitStatus.USAGE,
    NotInstalled: ExitStatus.USAGE,
    Refused: ExitStatus.REFUSED,
}


def status_of(error: RmqinspectError) -> ExitStatus:
    """Return the exit status that an error ends the command with."""
    return next((_OF_ERRORS[kind] for kind in type(error).__mro__ if kind in _OF_ERRORS), ExitStatus.BUG)
