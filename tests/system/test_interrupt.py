"""Ctrl-C arrives, also where a library takes it for an import that failed."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pyarrow as pa
import pytest

from rmqinspect.system.interrupt import interrupt_no_more, interrupted_once, raise_interrupt

LONG = 30.0  # seconds that nothing here takes


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, raise_interrupt)
    yield
    signal.signal(signal.SIGINT, before)


class Finder:
    """Gets Ctrl-C while Arrow tries to import a module that is not there."""

    asked = 0

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "dateutil":
            self.asked += 1
            if self.asked == 1:
                signal.raise_signal(signal.SIGINT)
            raise ModuleNotFoundError(fullname)


@pytest.mark.parametrize("block", [nullcontext, interrupted_once])
def test_ctrl_c_in_an_import_comes_a_moment_later(block: Callable[[], nullcontext[None]]) -> None:
    finder = Finder()
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "dateutil"}
    sys.meta_path.insert(0, finder)
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt), block():
            pa.scalar("text")
            time.sleep(LONG)
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(hidden)
    assert finder.asked
    assert time.monotonic() - begin < LONG / 2


def test_a_long_import_is_interrupted() -> None:
    class Slow:
        def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
            if fullname == "no_such_module":
                signal.raise_signal(signal.SIGINT)
                time.sleep(LONG)

    slow = Slow()
    sys.meta_path.insert(0, slow)
    try:
        with pytest.raises(KeyboardInterrupt):
            __import__("no_such_module")
    finally:
        sys.meta_path.remove(slow)


def test_only_the_first_ctrl_c_counts() -> None:
    with interrupted_once():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    with interrupted_once():
        interrupt_no_more()
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
