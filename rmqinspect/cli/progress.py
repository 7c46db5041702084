"""What is said on stderr while a command works: remarks, and how far it is."""

import os
import sys
import time
from types import TracebackType
from typing import Self, TextIO

from rmqinspect.system.throttle import read_bound
from rmqinspect.text import describe_duration, describe_size, escape

LONG_READ = 1 << 30
"""Reading more bytes than this is announced: how much, why, and the cheaper way."""

_QUIET_START = 1.0  # seconds of work before a progress line appears at all
_TERMINAL_STEP = 0.2  # seconds between two states of the line
_LINE_STEP = 10.0  # seconds between two lines where stderr is no terminal


class Progress:
    """Counts bytes read and shows them; also prints remarks, so that they do not mix with its line.

    Called with each number of bytes newly read. On a terminal it keeps one line up to date; elsewhere it
    prints a line every ten seconds, but only if `forced`. Unless forbidden a long read says once, after
    ten seconds, how fast it is and how long it will take: that much was measured by then.
    """

    def __init__(self, total: int, forced: bool | None = None, *, quiet: bool = False) -> None:
        self.total = total
        self.done = 0
        self.note = ""  # stands behind the numbers, for example how much was found
        self._stream: TextIO = sys.stderr
        self._quiet = quiet
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
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

    def __call__(self, raw: int) -> None:
        """Count bytes that were read."""
        self.done += raw
        now = time.monotonic()
        if now >= self._next:
            self._next = float("inf") if self._once else now + self._step
            self._show(now - self._begin)

    def remark(self, text: str) -> None:
        """Print one line for people, unless they asked for quiet; it may hold hostile text."""
        if not self._quiet:
            self.complain(text)

    def complain(self, text: str) -> None:
        """Print one line also when quiet was asked for: something is wrong."""
        self.clear()
        print(escape(text), file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the progress line away, before something else is printed."""
        if self._shown:
            self._stream.write("\r\x1b[K")
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
            self._stream.write(f"\r{line}\x1b[K")
            self._stream.flush()
            self._shown = True
        else:
            print(line, file=self._stream, flush=True)


def least_time(size: int) -> str:
    """Return what --read-rate makes of the time that reading takes, to be added to an announcement; else ""."""
    bound = read_bound()
    if bound is None:
        return ""
    return f"; at least {describe_duration(size / bound.rate)} at {describe_size(bound.rate)}/s"
