"""Exit statuses, and which error ends a command with which."""

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
    """The exit statuses of all commands."""

    DONE = 0
    BUG = 1  # Python's own status for an uncaught exception
    USAGE = 2
    DAMAGE = 3
    UNREADABLE = 4
    NOTHING_FOUND = 5
    REFUSED = 6
    HUNG_UP = 129  # as shells have it: 128 and the number of the signal
    INTERRUPTED = 130
    TERMINATED = 143


# README.md shows these texts; tests/pages/test_readme.py compares them.
MEANINGS = {
    ExitStatus.DONE: "done; nothing found at or above the severity of `--fail-on` (default `error`)",
    ExitStatus.BUG: "a bug in rmqinspect; the message asks for a report",
    ExitStatus.USAGE: "wrong usage",
    ExitStatus.DAMAGE: "damage or an inconsistency; `decode`, `export`: in the selected range, a row whose status is"
    " not ok, or missing records; `find`: a hit whose status is not ok; `groups`: an offset beyond its queue; `diff`,"
    " `verify --against`: different; `forecast`: the start loses data or begins empty, or the broker does not start",
    ExitStatus.UNREADABLE: "something requested could not be read: no such file, not a store, an archive, permission,"
    " I/O error; stderr is full; `forecast`: cannot tell, or a broker runs on the store",
    ExitStatus.NOTHING_FOUND: "nothing found: no such offset, id or key, no matching topic",
    ExitStatus.REFUSED: "refused for safety: the output exists, lies inside the store or has no room; segments of an"
    " earlier export have changed",
    ExitStatus.HUNG_UP: "SIGHUP: the terminal or the connection is gone; unfinished output files are removed",
    ExitStatus.INTERRUPTED: "interrupted; results so far are printed",
    ExitStatus.TERMINATED: "SIGTERM; unfinished output files are removed",
}


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
    """Return the exit status for an error."""
    return next((_OF_ERRORS[kind] for kind in type(error).__mro__ if kind in _OF_ERRORS), ExitStatus.BUG)


def exit_status(fail_on: str, *, damaged: object, unread: object, missed: object = False) -> ExitStatus:
    """Return the exit status of a command that has read stores.

    Damage comes first, unless `fail_on` is never; then what could not be read; then what was asked for and not found.
    """
    if damaged and fail_on != "never":
        return ExitStatus.DAMAGE
    if unread:
        return ExitStatus.UNREADABLE
    return ExitStatus.NOTHING_FOUND if missed else ExitStatus.DONE
