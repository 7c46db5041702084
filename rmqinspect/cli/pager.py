"""A pager for what is longer than the terminal, as git has one.

    a command -> sys.stdout -> _Paged -> the terminal   what fits a screen
                                      -> the pager      all of it, from the first line, once it does not fit
                 sys.stderr -> Remarks -> the terminal  behind the pager; the progress line is left out

The pager is $RMQINSPECT_PAGER, else $PAGER, else `less`; `cat` or an empty value is none. What comes slowly is shown as
it comes, until it is more than a screen. click has a pager, too: it starts for a single line, knows neither `cat` nor
an option to go without, takes a text instead of a stream, and remarks are printed into it.

What holds:
- Only a terminal has a pager: no pipe, no file, no `-o`, no terminal without a cursor (TERM=dumb).
- The exit status is that of the command. A pager may end early: the rest of a screen is dropped; a command that goes on
  writing for long ends as if a pipe were closed.
- Ctrl-C ends a command that still reads or writes, with its status; when all is written, it is for the pager alone.
- What is printed inside `as_answer` is printed once more behind the pager: the last line on a terminal is the answer,
  with a pager or without.
"""

import io
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from threading import Lock, Timer
from types import FrameType
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.terminal import ERASE, Remarks, print_remark
from rmqinspect.text import cell_width

if TYPE_CHECKING:
    import subprocess

_USUAL = "less"
# As git sets them: colours pass, the text stays on the terminal, what fits a screen needs no key; for `lv` colours.
_SETTINGS = {"LESS": "FRX", "LV": "-c"}
_NONE = ("", "cat")
_FOR_A_SHELL = re.compile(r"[|&;<>()$`*?#~=%\n]")

_WAIT = 0.5  # seconds for which less than a screen is held back
_GRACE = 1.0  # seconds that a command may go on writing after its pager has ended
_MOST_KEPT = 1 << 20  # bytes that are printed after all if the pager turns out to be no command
_NO_COMMAND = (126, 127)  # exit statuses of a shell

_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


class _Paged(io.RawIOBase):
    """The raw stream of stdout: it has a pager from the line on that does not fit the terminal."""

    def __init__(self, terminal: int, command: str) -> None:
        self._terminal, self._command = terminal, command
        self._lock = Lock()  # the timer shows from a thread of its own
        self._kept: list[bytes] | None = []  # all so far; None: it has become too much, or there will be no pager
        self._size = 0  # bytes of them
        self._shown = 0  # how many of them are on the terminal
        self._rows = 0  # lines of the terminal that they take
        self._line = b""  # the last one, which has no end yet
        self._timer: Timer | None = None
        self._pager: subprocess.Popen[bytes] | None = None
        self._gone: float | None = None  # when the pager had ended, and the command not
        self._cut = False  # Ctrl-C came while the pager was written to: it gets no more
        self._trouble = ""  # why there is no pager
        self._closed = False
        self._answer: list[bytes] = []
        self.is_answer = False  # what is written now

    # --- as a stream --------------------------------------------------------------------------

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal

    def write(self, content: "bytes | memoryview") -> int:  # type: ignore[override]
        """Take all bytes.

        :raises BrokenPipeError: the pager ended a while ago.
        """
        raw = bytes(content)
        with self._lock:
            if self._closed or self._cut:
                return len(raw)
            if self.is_answer:
                self._answer.append(raw)
            try:
                self._take(raw)
            except OSError:
                raise
            except BaseException:  # Ctrl-C, SIGTERM
                self._cut = self._pager is not None
                raise
        return len(raw)

    def _take(self, raw: bytes) -> None:
        if self._kept is not None:
            self._kept.append(raw)
            self._size += len(raw)
        if self._pager is not None:
            self._feed(raw)
        elif self._kept is None:
            _write(self._terminal, raw)
        elif self._count(raw) >= get_terminal_size().lines:
            self._start()
        elif self._shown:
            self._show()
        elif self._timer is None:
            self._timer = Timer(_WAIT, self._show_in_time)
            self._timer.daemon = True
            self._timer.start()

    def _count(self, raw: bytes) -> int:
        """Return how many lines of the terminal all so far takes, `raw` at its end."""
        columns = get_terminal_size().columns
        *lines, self._line = (self._line + raw).split(b"\n")
        for line in lines:
            cells = cell_width(_COLOUR.sub(b"", line).decode(errors="replace"))
            self._rows += max(1, -(-cells // columns))
        return self._rows + len(self._line) // (4 * columns)  # a cell may take four bytes

    # --- the terminal, and the pager ----------------------------------------------------------

    def _show_in_time(self) -> None:
        with self._lock, suppress(OSError):
            if self._pager is None and not self._closed:
                _write(self._terminal, ERASE.encode() if sys.stderr.isatty() else b"")  # the progress line
                self._show()

    def _show(self) -> None:
        """Show what is held back."""
        held = (self._kept or [])[self._shown :]
        self._shown += len(held)
        _write(self._terminal, b"".join(held))

    def _go_without(self) -> None:
        self._show()
        self._kept = None

    def go_without(self) -> None:
        """Have no pager."""
        with self._lock:
            if self._pager is None:
                self._go_without()

    def _start(self) -> None:
        """Start the pager and give it all so far."""
        import subprocess

        shell = bool(_FOR_A_SHELL.search(self._command))
        words = self._command if shell else shlex.split(self._command)
        settings = {**_SETTINGS, **os.environ}
        with _interrupt_later():  # or the pager might run, and nobody know of it
            try:
                self._pager = subprocess.Popen(words, shell=shell, stdin=subprocess.PIPE, bufsize=0, env=settings)
            except OSError as error:
                self._go_without()
                self._trouble = "" if self._command == _USUAL else f"no pager: {self._command}: {error.strerror}"
                return
            if sys.stderr.isatty():
                sys.stderr.write(ERASE)
                sys.stderr.flush()
                sys.stderr = Remarks(sys.stderr)
        self._feed(b"".join(self._kept or []))

    def _feed(self, raw: bytes) -> None:
        """Give the pager some bytes; behind its end none."""
        assert self._pager is not None and self._pager.stdin is not None
        if self._size > _MOST_KEPT:
            self._kept = None
        if self._gone is None:
            try:
                _write(self._pager.stdin.fileno(), raw)
            except BrokenPipeError:
                self._gone = time.monotonic()
                if self._pager.wait() in _NO_COMMAND:
                    self._pager = None
                    self._go_without()
        elif time.monotonic() - self._gone > _GRACE:
            raise BrokenPipeError

    def end(self) -> None:
        """Show what is held back, or wait for the pager to end; then show remarks and the answer."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._pager is None:
                self._show()
                print_remark(self._trouble) if self._trouble else None
                return
            assert self._pager.stdin is not None
            self._pager.stdin.close()
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                status = self._pager.wait()
            finally:
                signal.signal(signal.SIGINT, before)
                if isinstance(sys.stderr, Remarks):
                    sys.stderr = sys.stderr.end()
            _write(self._terminal, b"".join(self._kept or [] if status in _NO_COMMAND else self._answer))


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block. What is started in it does not inherit that, as it would a mask."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return
    met: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *signalled: met.append(signalled))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for signalled in met[:1]:
        before(*signalled)


def _write(descriptor: int, raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


# --- what commands use ------------------------------------------------------------------------------------


@contextmanager
def paged() -> Iterator[None]:
    """Give stdout a pager, if it is a terminal, until the block ends."""
    command = pager_command()
    if not command or not _is_terminal():
        yield
        return
    before = sys.stdout
    before.flush()
    raw = _Paged(before.fileno(), command)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = before
        raw.end()


def pager_command() -> str:
    """Return the pager, "" for none."""
    command = next((os.environ[name] for name in ("RMQINSPECT_PAGER", "PAGER") if name in os.environ), _USUAL).strip()
    return "" if command in _NONE or os.environ.get("TERM") == "dumb" else command


def _is_terminal() -> bool:
    try:
        return os.isatty(sys.stdout.fileno())
    except (OSError, ValueError):  # a stream without a descriptor
        return False


def _current() -> _Paged | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Paged) else None


def go_without() -> None:
    """Have no pager, whatever is printed."""
    raw = _current()
    if raw is not None:
        raw.go_without()


@contextmanager
def as_answer() -> Iterator[None]:
    """Print what a screen comes to in this block: behind a pager it is printed again."""
    raw = _current()
    if raw is None:
        yield
        return
    sys.stdout.flush()
    raw.is_answer = True
    try:
        yield
        sys.stdout.flush()
    finally:
        raw.is_answer = False


def print_answered(lines: Iterable[str], *, colour: bool) -> None:
    """Print a screen whose last line, with what is folded below it, is the answer."""
    screen = list(lines)
    last = max((number for number, line in enumerate(screen) if click.unstyle(line)[:1] not in ("", " ")), default=0)
    with for_a_reader_that_may_leave():
        for line in screen[:last]:
            click.echo(line, color=colour)
        with as_answer():
            for line in screen[last:]:
                click.echo(line, color=colour)


@contextmanager
def for_a_reader_that_may_leave() -> Iterator[None]:
    """Print a screen: where the reader of the pipe goes away, the command still ends with its own status."""
    try:
        yield
    except BrokenPipeError:
        if sys.stdout.isatty():
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
