"""The command line: a flat list of verbs, each in a module of its own, loaded when it is asked for."""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from types import FrameType, TracebackType
from typing import NamedTuple

import click

from rmqinspect.cli.status import ExitStatus, status_of
from rmqinspect.errors import RmqinspectError
from rmqinspect.text import escape

# What the system says when there is no room for the output.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Verb(NamedTuple):
    module: str  # has a click command called `command`
    help: str  # the line in the list of commands


VERBS: dict[str, _Verb] = {
    "info": _Verb("rmqinspect.cli.info", "One screen about a store: layout, stop, sizes; no full scan."),
    "decode": _Verb("rmqinspect.cli.decode", "The rows of a store, or of any one file in it."),
    "verify": _Verb("rmqinspect.cli.verify", "All checks, one verdict."),
    "export": _Verb("rmqinspect.cli.export", "Tables of whole stores as Parquet, with or without Spark."),
    "show": _Verb("rmqinspect.cli.show", "One record: every field with its bytes."),
    "diff": _Verb("rmqinspect.cli.diff", "Two stores: replica against master, before against after."),
    "id": _Verb("rmqinspect.cli.id", "What a message id says; needs no store."),
    "explain": _Verb("rmqinspect.cli.explain", "What a finding, field, flag or broker log line means."),
}


class _LazyGroup(click.Group):
    """A group that lists its commands from a table and imports only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(VERBS[cmd_name].module).command
        assert isinstance(command, click.Command)
        # Until here `__main__` ends the process at once. From here on commands clean up, and say what they know.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {escape(args[0])!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from rmqinspect.version import tool_name

        click.echo(tool_name())
        ctx.exit()


CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The click settings of the group, which its commands inherit."""


@click.group(cls=_LazyGroup, context_settings=CONTEXT)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def group() -> None:
    """Inspect the store of an Apache RocketMQ broker: offline, reading only.

    Data goes to stdout, remarks go to stderr, and nothing is ever written into a store.

    \b
    Examples:
      rmqinspect info STORE
      rmqinspect decode STORE -t orders -n 5
      rmqinspect verify STORE
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; the entry point of the console script.

    Unexpected exceptions are let through to `sys.excepthook`, which asks for a report.
    """
    sys.excepthook = _report_bug
    # A closed stream is None: whoever closed it wants nothing from it.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    signal.signal(signal.SIGTERM, _end_by_signal)
    _set_up_streams()
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough. Python would complain when it flushes at exit.
        _silence_streams()
        return ExitStatus.DONE
    except OSError as error:
        if error.errno not in _FULL:
            raise
        print(f"rmqinspect: the output cannot be written: {error.strerror}", file=sys.stderr)
        _silence_streams()
        return ExitStatus.REFUSED
    return status


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not `group.main`: it would end with status 1 when the reader of a pipe goes away.
        with group.make_context("rmqinspect", words) as context:
            return int(group.invoke(context) or ExitStatus.DONE)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return ExitStatus.USAGE
    except RmqinspectError as error:
        print(f"rmqinspect: {escape(str(error))}", file=sys.stderr)
        return status_of(error)
    except (KeyboardInterrupt, click.Abort):
        print("rmqinspect: interrupted", file=sys.stderr)
        return ExitStatus.INTERRUPTED


def _set_up_streams() -> None:
    """Make both streams UTF-8 whatever the locale; what cannot be encoded is shown as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _silence_streams() -> None:
    dangling = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(dangling, stream.fileno())
    os.close(dangling)


def _end_by_signal(number: int, _: FrameType | None) -> None:
    """End as if by an exit, so that a temporary output file is removed on the way."""
    raise SystemExit(128 + number)


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say in one line that this is a bug; with RMQINSPECT_DEBUG or -vv also where. Ctrl-C is none."""
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
