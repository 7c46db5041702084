"""The command line, from its first moment: `python -m rmqinspect` and the console script.

Imports nothing of the package before `main` runs: what comes first is that Ctrl-C ends quietly.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn


def main() -> int:
    """Run the command line and return its exit status."""
    # A Ctrl-C that is ignored stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    # Threads of numpy's BLAS spin for a while in every process that imports it, and nothing here has a use for them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own allocators give pages back that the next batch asks for again: they take half a second of system
    # time for each GiB exported, and a quarter more memory, than the C library that `memory` has told to keep them.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from rmqinspect.cli import main as run

    status = run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all was said
    if any(thread.name == "remote" for thread in threading.enumerate()):
        # Arrow would wait for answers of a remote file system that nobody wants any more.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    return status


def _end_at_once(_: int, __: FrameType | None) -> NoReturn:
    """End while modules are imported: an exception there would be a traceback, or lost in an extension module.

    Nothing was opened yet. `rmqinspect.cli` takes this away as soon as the command is there.
    """
    with suppress(OSError):  # stderr may be closed
        os.write(2, b"rmqinspect: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
