"""Ctrl-C: the first one ends the reading, later ones do not cost the verdict."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


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
