"""Entry point of `python -m rmqinspect` and of the console script.

Imports nothing of the package before `main` has set up a quiet Ctrl-C.
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
    # Keeps an ignored SIGINT (nohup, background jobs) ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    # numpy's BLAS starts threads that spin on import; nothing here uses BLAS.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own allocators return pages that the next batch allocates again: half a second of system time
    # per exported GiB, and a quarter more memory, than malloc as set up by `system.limits`.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from rmqinspect.cli import main as run
    from rmqinspect.system.no_pandas import hide_pandas

    hide_pandas()
    status = run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all output is written
    if any(thread.name == "remote" for thread in threading.enumerate()):
        # At exit Arrow would wait for pending requests to a remote file system.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    return status


def _end_at_once(_: int, __: FrameType | None) -> NoReturn:
    """Handle Ctrl-C during imports, where an exception would print a traceback or be lost in an extension module.

    Nothing is open yet. `rmqinspect.cli` replaces this handler before the command runs.
    """
    with suppress(OSError):  # stderr may be closed
        os.write(2, b"rmqinspect: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
