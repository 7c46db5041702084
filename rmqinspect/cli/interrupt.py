"""What Ctrl-C may cut off, and what not."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Let the first Ctrl-C raise KeyboardInterrupt and ignore the others until the block ends.

    Who presses it again while the verdict is made of what was read would lose the verdict.
    """
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # started in the background, or in the hands of another program
        yield
        return
    signal.signal(signal.SIGINT, _interrupt_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_no_more() -> None:
    """Ignore Ctrl-C until the block of `interrupted_once` ends: what follows takes a moment."""
    if signal.getsignal(signal.SIGINT) is _interrupt_once:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt_once(_: int, __: FrameType | None) -> NoReturn:
    interrupt_no_more()
    raise KeyboardInterrupt
