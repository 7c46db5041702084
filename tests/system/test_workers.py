"""Worker processes that end before their last result."""

import signal
import subprocess
import sys

import pytest

from rmqinspect.cli.status import ExitStatus, status_of
from rmqinspect.errors import WorkerKilled
from rmqinspect.system.workers import WorkerLost, run_ordered
from tests.support.samples import sample


def test_a_killed_worker_is_no_bug() -> None:
    with pytest.raises(WorkerKilled, match=r"killed \(SIGKILL\)") as killed:
        list(run_ordered(signal.raise_signal, [signal.SIGKILL] * 2, 2, preload="signal"))
    assert status_of(killed.value) == ExitStatus.UNREADABLE
    with pytest.raises(WorkerLost):
        list(run_ordered(sys.exit, [1, 1], 2, preload="signal"))


def test_a_full_stderr_is_no_bug() -> None:
    command = [sys.executable, "-m", "rmqinspect", "verify", str(sample("flipped-bit-5.3.3"))]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert ended.returncode == ExitStatus.UNREADABLE
