"""Commands on a pseudo-terminal, as a person runs them."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

LONGEST = 60.0  # seconds that a command may take
_MOMENT = 0.3  # seconds

_OF_A_TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "RMQINSPECT_PAGER", "PAGER", "LESS")


@dataclass
class Terminal:
    """The terminal of a command, from its start to its end: `with Terminal(["verify", store]) as terminal:`."""

    words: Sequence[str | Path]
    lines: int = 24
    columns: int = 80
    settings: Mapping[str, str] = field(default_factory=dict)  # of the environment
    program: Sequence[str] = ("-m", "rmqinspect")  # of this interpreter
    text: str = ""  # all that was shown so far

    def __enter__(self) -> Self:
        self._child, self._master = pty.fork()
        if self._child == 0:
            inherited = {name: value for name, value in os.environ.items() if name not in _OF_A_TERMINAL}
            environment = {**inherited, "TERM": "xterm", **self.settings}
            size = struct.pack("HHHH", self.lines, self.columns, 0, 0)
            fcntl.ioctl(1, termios.TIOCSWINSZ, size)
            os.execve(sys.executable, [sys.executable, *self.program, *map(str, self.words)], environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._master)
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self._master, keys.encode())

    def until(self, wanted: str, *, pressing: str = "") -> str:
        """Read until a text is shown, or for "" until the command ends; return all that was shown so far.

        `pressing` are keys that are typed until then, as often as nothing is shown for a moment.
        """
        end = time.monotonic() + LONGEST
        while not wanted or wanted not in self.text:
            while pressing and time.monotonic() < end and not select.select([self._master], [], [], _MOMENT)[0]:
                self.press(pressing)
            assert select.select([self._master], [], [], max(0, end - time.monotonic()))[0], self.text
            try:
                part = os.read(self._master, 1 << 16)
            except OSError:  # Linux: the last process has closed the terminal
                part = b""
            if not part:
                assert not wanted, f"{wanted!r} is not in {self.text}"
                break
            self.text += part.decode(errors="replace").replace("\r\n", "\n")
        return self.text

    def status(self, *, pressing: str = "") -> int:
        """Wait for the end of the command and return its exit status."""
        self.until("", pressing=pressing)
        _, ended = os.waitpid(self._child, 0)
        self._child = 0
        return os.waitstatus_to_exitcode(ended)
