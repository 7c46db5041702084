"""Remarks and a progress line on stderr.

Ctrl-C: the first one ends the reading, later ones do not cost the verdict.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from types import FrameType, TracebackType
from typing import NoReturn, Self, TextIO

from rmqinspect.cli.labelled import fold
from rmqinspect.system.workers import read_bound
from rmqinspect.text import cut_cells, describe_duration, describe_size, escape

LONG_READ = 1 << 30
"""Bytes above which a read is announced before it starts: how much, why, and the cheaper way."""

_QUIET_START = 1.0  # seconds before the first progress line
_TERMINAL_STEP = 0.2  # seconds between updates of the line
_LINE_STEP = 10.0  # seconds between lines where stderr is not a terminal
_ERASE = "\r\x1b[K"  # the line of a terminal


class Progress:
    """Progress of a read of `total` bytes; call it with the size of each chunk read.

    On a terminal one line is updated in place. Elsewhere a line is printed every ten seconds if `forced`; if
    `forced` is None, a long read prints one such line, after ten seconds, with the measured rate. Remarks go
    through this class too: they first clear the progress line.
    """

    def __init__(self, total: int, forced: bool | None = None, *, quiet: bool = False) -> None:
        self.total = total
        self.done = 0
        self.note = ""  # shown after the numbers, such as the rows so far
        self._stream: TextIO = sys.stderr
        self._quiet = quiet
        self._terminal = _is_terminal(self._stream)
        wanted = self._terminal if forced is None else forced
        self._step = _TERMINAL_STEP if self._terminal else _LINE_STEP
        self._begin = time.monotonic()
        first = _QUIET_START if self._terminal else _LINE_STEP
        self._once = forced is None and not wanted and total > LONG_READ
        self._next = self._begin + first if (wanted or self._once) and not quiet else float("inf")
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __call__(self, size: int) -> None:
        """Count bytes read."""
        self.done += size
        now = time.monotonic()
        if now >= self._next:
            self._next = float("inf") if self._once else now + self._step
            self._show(now - self._begin)

    def remark(self, text: str) -> None:
        """Print one line, escaped, unless --quiet was given."""
        if not self._quiet:
            self.complain(text)

    def complain(self, text: str) -> None:
        """Print one line, escaped, even with --quiet: something is wrong."""
        self.clear()
        print_remark(text, self._stream)

    def clear(self) -> None:
        """Erase the progress line, before anything else is printed."""
        if self._shown:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._shown = False

    def _show(self, seconds: float) -> None:
        rate = self.done / seconds
        parts = [describe_size(self.done), f"{describe_size(rate)}/s"]
        if self.total:
            parts.insert(0, f"{min(99, self.done * 100 // self.total)} %")
            if rate:
                parts.append(f"ETA {describe_duration(max(0.0, (self.total - self.done) / rate))}")
        if self.note:
            parts.append(escape(self.note))
        line = "  ".join(parts)
        if self._terminal:
            # A line that runs over could not be updated in place.
            line = cut_cells(line, get_terminal_size((100, 24)).columns - 1)
            self._stream.write(f"\r{line}\x1b[K")
            self._stream.flush()
            self._shown = True
        else:
            print(line, file=self._stream, flush=True)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def print_remark(text: str, stream: TextIO | None = None) -> None:
    """Print a text on stderr, escaped: one line, folded at words where it goes to a terminal."""
    stream = stream or sys.stderr
    columns = get_terminal_size((100, 24)).columns if _is_terminal(stream) else 0
    print("\n".join(fold(escape(text), columns)) if columns else escape(text), file=stream, flush=True)


@contextmanager
def compiling_told(*, quiet: bool, verbose: int) -> Iterator[None]:
    """Say so on stderr if the block compiles for long; behind it, with -v, why loops are not compiled or not kept."""
    from rmqinspect.codec import kernels

    kernels.on_compiling(None if quiet else _say_between)
    try:
        yield
    finally:
        kernels.on_compiling(None)
        for remark in kernels.remarks() if verbose and not quiet else ():
            _say_between(remark)


def _say_between(text: str) -> None:
    """Print one line, from any thread: over the progress line, which the next step prints again."""
    erase = _ERASE if _is_terminal(sys.stderr) else ""
    with suppress(OSError):  # stderr is full
        sys.stderr.write(erase)
        print_remark(text)


def running_broker(holder: int) -> str:
    """Return the warning about a store whose lock the process `holder` holds."""
    return f"a broker runs on this store (pid {holder} holds the lock): the files may change while they are read"


def least_time(size: int) -> str:
    """Return the time that --read-rate makes `size` bytes take, to end an announcement; "" without --read-rate."""
    bound = read_bound()
    if bound is None:
        return ""
    return f"; at least {describe_duration(size / bound.rate)} at {describe_size(bound.rate)}/s"


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Let the first Ctrl-C raise KeyboardInterrupt and ignore the others until the block ends.

    A second one, pressed while the verdict is computed from what was read, would lose the verdict.
    """
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # started in the background, or another handler is installed
        yield
        return
    signal.signal(signal.SIGINT, _interrupt_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_no_more() -> None:
    """Ignore Ctrl-C until the block of `interrupted_once` ends: the rest takes only a moment."""
    if signal.getsignal(signal.SIGINT) is _interrupt_once:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt_once(_: int, __: FrameType | None) -> NoReturn:
    interrupt_no_more()
    raise KeyboardInterrupt
