"""Ctrl-C: a KeyboardInterrupt that arrives.

The handler raises wherever the main thread happens to be, and in an import that is lost: Arrow tries to import dateutil
at every conversion, and takes whatever comes back for "not there". So a signal in an import is sent again a moment
later; an import that takes long is interrupted all the same.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LATER = 0.01  # seconds
_TIMES = 50  # a signal is put off
_IMPORTS = "<frozen importlib"

_put_off = 0  # how often in a row


def raise_interrupt(_: int, frame: FrameType | None) -> None:
    """Handle SIGINT.

    :raises KeyboardInterrupt: no import is under way in the main thread.
    """
    if not _is_later(frame):
        raise KeyboardInterrupt


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Let the first Ctrl-C raise KeyboardInterrupt and ignore the others until the block ends.

    A second one, pressed while the verdict is computed from what was read, would lose the verdict.
    """
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # started in the background, or another handler is installed
        yield
        return
    signal.signal(signal.SIGINT, _raise_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_no_more() -> None:
    """Ignore Ctrl-C until the block of `interrupted_once` ends: the rest takes only a moment."""
    if signal.getsignal(signal.SIGINT) is _raise_once:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _raise_once(_: int, frame: FrameType | None) -> None:
    if not _is_later(frame):
        interrupt_no_more()
        raise KeyboardInterrupt


def _is_later(frame: FrameType | None) -> bool:
    """Return whether the signal will come again, because the main thread imports."""
    global _put_off
    if not _is_importing(frame) or _put_off == _TIMES or not hasattr(signal, "setitimer"):  # not on Windows
        _put_off = 0
        return False
    _put_off += 1
    signal.signal(signal.SIGALRM, _send_again)
    signal.setitimer(signal.ITIMER_REAL, _LATER)
    return True


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(_IMPORTS):
        frame = frame.f_back
    return frame is not None


def _send_again(_: int, __: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
