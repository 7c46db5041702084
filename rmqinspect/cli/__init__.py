"""The command line: a flat list of commands, each declared in `verbs`; what it does is imported when it runs.

`main` is the console script. It turns every outcome into an exit status and at most one line on stderr; an
unexpected exception goes to `sys.excepthook`, which asks for a bug report.
"""

import errno
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from importlib import import_module
from io import TextIOWrapper
from types import FrameType, TracebackType
from typing import Any

import click
from click.shell_completion import shell_complete

from rmqinspect import errors
from rmqinspect.errors import RmqinspectError
from rmqinspect.text import escape

_COMPLETE = "_RMQINSPECT_COMPLETE"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk or quota
_ENDING = (signal.SIGHUP, signal.SIGTERM)


# --- exit statuses ------------------------------------------------------------------------------------------


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

    @property
    def badness(self) -> int:
        """Its place among the others: of several answers, the status of the worst is that of all."""
        return _WORST_LAST.index(self)


# Damage is worse than what could not be read: that may be whole. Behind it is what ended the run.
_WORST_LAST = (
    ExitStatus.DONE,
    ExitStatus.NOTHING_FOUND,
    ExitStatus.UNREADABLE,
    ExitStatus.DAMAGE,
    ExitStatus.REFUSED,
    ExitStatus.USAGE,
    ExitStatus.BUG,
    ExitStatus.HUNG_UP,
    ExitStatus.INTERRUPTED,
    ExitStatus.TERMINATED,
)


def worst_status(statuses: Iterable[ExitStatus]) -> ExitStatus:
    """Return the worst of several exit statuses; without any, that all is done."""
    return max(statuses, key=lambda status: status.badness, default=ExitStatus.DONE)


# README.md shows these texts; tests/pages/test_readme.py compares them.
MEANINGS = {
    ExitStatus.DONE: "done; nothing found at or above the severity of `--fail-on` (default `error`)",
    ExitStatus.BUG: "a bug in rmqinspect; the message asks for a report",
    ExitStatus.USAGE: "wrong usage",
    ExitStatus.DAMAGE: "damage or an inconsistency; `decode`, `export`: in the selected range, a row whose status is"
    " not ok, or missing records; `find`, `show`: a hit whose status is not ok, or no hit where damage has, or may"
    " have, the record; `groups`: an offset beyond its queue; `diff`, `verify --against`: different;"
    " `forecast`: the start loses data or begins empty, or the broker does not start; `rebuild`: the log is damaged,"
    " or the new store would not be whole; `salvage`: that, or something was lost or not taken over",
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
    errors.NotAStore: ExitStatus.UNREADABLE,
    errors.Unreadable: ExitStatus.UNREADABLE,
    errors.Unreachable: ExitStatus.UNREADABLE,
    errors.BadRecord: ExitStatus.DAMAGE,
    errors.DamageFound: ExitStatus.DAMAGE,
    errors.NothingFound: ExitStatus.NOTHING_FOUND,
    errors.RecordLost: ExitStatus.DAMAGE,
    errors.BadOption: ExitStatus.USAGE,
    errors.NotInstalled: ExitStatus.USAGE,
    errors.Refused: ExitStatus.REFUSED,
}


def status_of(error: RmqinspectError) -> ExitStatus:
    """Return the exit status for an error."""
    return next((_OF_ERRORS[kind] for kind in type(error).__mro__ if kind in _OF_ERRORS), ExitStatus.BUG)


def exit_status(fail_on: str, *, damaged: object, unread: object, missed: object = False) -> ExitStatus:
    """Return the exit status of a command that has read stores.

    Damage comes first, unless `fail_on` is never; then what could not be read; then what was asked for and not found.
    """
    met = {
        ExitStatus.DAMAGE: damaged and fail_on != "never",
        ExitStatus.UNREADABLE: unread,
        ExitStatus.NOTHING_FOUND: missed,
    }
    return worst_status(status for status, is_so in met.items() if is_so)


# --- the commands ---------------------------------------------------------------------------------------

VERBS = {
    "info": "One screen about a store: layout, last stop, sizes. No full scan.",
    "decode": "Rows of a store, or of any one file in it.",
    "find": "Messages by id, key, queue offset, time or content; explains a miss.",
    "transactions": "Half messages: pending, committed, rolled back, given up.",
    "delays": "Delayed messages: what waits, is overdue, was delivered or lost.",
    "groups": "Consumer groups: lag, lost, popped, dead letters, unconsumed messages.",
    "usage": "What takes the bytes of the log; what a retention would free.",
    "verify": "All checks, one verdict.",
    "forecast": "The next start of a broker: will it start, what will be lost?",
    "report": "One page about stores for a browser, to be forwarded: HTML.",
    "rebuild": "New queues, index and checkpoint from a sound log, in a new place.",
    "salvage": "A store that a broker serves, from damaged ones, in a new place.",
    "sql": "One SELECT over all tables of one or several stores.",
    "export": "Tables of whole stores as Parquet, with or without Spark.",
    "show": "One record: every field with its bytes.",
    "diff": "Two stores compared: replica with master, before with after.",
    "id": "The parts of a message id. Needs no store.",
    "explain": "The meaning of a finding, field, flag or broker log line.",
}
"""What each command is for. The module of its name in cli/verbs has it as `command`, that in cli/ runs it."""


class _LazyGroup(click.Group):
    """A group that lists its commands from `VERBS` and imports only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"rmqinspect.cli.verbs.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {escape(args[0])!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from rmqinspect.version import tool_name

        click.echo(tool_name())
        ctx.exit()


NO_PAGER = "Do not page what is longer than the terminal ($RMQINSPECT_PAGER, $PAGER, less)."
"""Help of --no-pager, which may stand before a command and behind it."""


def go_without_pager(ctx: click.Context, _: click.Parameter, asked: bool) -> bool:
    """Have no pager, if that is asked for: the callback of --no-pager."""
    if asked and not ctx.resilient_parsing:
        from rmqinspect.cli.pager import go_without

        go_without()
    return asked


CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Click settings of the group, inherited by its commands."""


@click.group(cls=_LazyGroup, context_settings=CONTEXT)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.option("--no-pager", is_flag=True, is_eager=True, expose_value=False, callback=go_without_pager, help=NO_PAGER)
def group() -> None:
    """Inspect the store of an Apache RocketMQ broker, offline and read-only.

    Data goes to stdout, remarks to stderr. Nothing is ever written into a store.

    \b
    Examples:
      rmqinspect info STORE
      rmqinspect decode STORE -t orders -n 5
      rmqinspect verify STORE
    """


# --- the console script ---------------------------------------------------------------------------------


def completes(group: click.Group) -> bool:
    """Answer a shell that asks for its script or for completions; return whether one did."""
    instruction = os.environ.get(_COMPLETE)
    if not instruction:
        return False
    shell_complete(group, {}, "rmqinspect", _COMPLETE, instruction)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    sys.excepthook = _report_bug
    # A stream that was closed before the start is None.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _end_by_signal)
    for stream in (sys.stdout, sys.stderr):  # in any locale; what cannot be encoded is escaped
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        with _paged():
            status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the pipe is gone.
        _silence_streams()
        return ExitStatus.DONE
    except OSError as error:
        if error.errno not in _FULL:
            raise
        status = ExitStatus.REFUSED
        try:
            print(f"rmqinspect: cannot write the output: {error.strerror}", file=sys.stderr, flush=True)
        except OSError:
            status = ExitStatus.UNREADABLE  # stderr is full: nothing more can be said
        _silence_streams()
        return status
    return status


def _paged() -> AbstractContextManager[None]:
    if not sys.stdout.isatty():
        return nullcontext()
    from rmqinspect.cli.pager import paged

    return paged()


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if completes(group):
            return ExitStatus.DONE
        # Not `group.main`: it would exit with 1 when the reader of a pipe goes away.
        with group.make_context("rmqinspect", words) as context:
            return int(group.invoke(context) or ExitStatus.DONE)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return ExitStatus.USAGE
    except RmqinspectError as error:
        from rmqinspect.cli.terminal import print_remark

        print_remark(f"rmqinspect: {error}")
        return status_of(error)
    except (KeyboardInterrupt, click.Abort):
        print("rmqinspect: interrupted", file=sys.stderr)
        return ExitStatus.INTERRUPTED


def _silence_streams() -> None:
    """Send what cannot be written nowhere, or Python would print an error when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(null, stream.fileno())
    os.close(null)


def _end_by_signal(number: int, _: FrameType | None) -> None:
    """Raise SystemExit, so that a temporary output file is removed."""
    raise SystemExit(128 + number)


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print one line that asks for a bug report; with RMQINSPECT_DEBUG or -vv the traceback too."""
    if issubclass(kind, KeyboardInterrupt):
        print("rmqinspect: interrupted", file=sys.stderr)
        return
    if os.environ.get("RMQINSPECT_DEBUG") or "-vv" in sys.argv or sys.argv.count("-v") > 1:
        sys.__excepthook__(kind, error, trace)
    print(
        f"rmqinspect: this is a bug: {kind.__name__}: {escape(str(error))}. "
        "Please report it with the command and what RMQINSPECT_DEBUG=1 adds.",
        file=sys.stderr,
    )
