"""Runs the process that opens databases, as often as it takes to get past those that end it.

jobs: A B C    process 1: A read, ended in B    process 2: C read    -> B failed, with RocksDB's own words
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rmqinspect.rocksdb.job import INDEX, PROCESS_OUTPUT, Job

_COMMAND = (sys.executable, "-m", "rmqinspect.rocksdb.readers")
_NO_REASON = "it gave no reason"
_RAISED = "Exception: "  # begins what rocksdict raises, at the end of a traceback


def read_apart(jobs: Sequence[Job], folder: str) -> dict[str, str]:
    """Read databases in another process; return why, by the folder of the job, for those that could not be read.

    `folder` is writable, for what the process is told and prints. A reason is as long as RocksDB made it, and not
    escaped.
    """
    failed: dict[str, str] = {}
    while jobs:
        ended = _run(jobs, folder)
        rest = [job for job in jobs if not os.path.exists(os.path.join(job.folder, INDEX))]
        if rest:
            failed[rest[0].folder] = ended
        jobs = rest[1:]
    return failed


def _run(jobs: Sequence[Job], folder: str) -> str:
    """Run the process; return how it ended."""
    told, printed = os.path.join(folder, "jobs.jsonl"), os.path.join(folder, PROCESS_OUTPUT)
    with open(told, "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(asdict(job)) + "\n" for job in jobs)
    # A Python that finds this package the way this process did, wherever that was started.
    places = os.pathsep.join(place or os.getcwd() for place in sys.path)
    with open(printed, "wb") as output:
        process = subprocess.Popen(
            [*_COMMAND, told],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": places},
        )
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if status < 0:
        return f"it ended its process with signal {-status} ({_signal_name(-status)})"
    return _reason(printed)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _reason(path: str) -> str:
    """Return the message of the exception that ended the process, in one line; RocksDB's may have several."""
    with open(path, encoding="utf-8", errors="replace") as output:
        lines = [line.strip() for line in output if line.strip()]
    raised = [number for number, line in enumerate(lines) if line.startswith(_RAISED)]
    message = " ".join(lines[raised[-1] if raised else -1 :]).removeprefix(_RAISED)
    return message or _NO_REASON
