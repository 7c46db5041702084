"""The commands as a shell sees them: what each takes, and what its help page says.

    cli/verbs/verify.py     VerifyArguments, and the click command with its help
    cli/verify.py           run(VerifyArguments): what it does

A module here imports click and the options that commands share, no reader of evidence: `--help` and TAB cost what click
costs. What a command does is imported when it runs.
"""

import signal
from importlib import import_module

from rmqinspect.system.interrupt import raise_interrupt


def run(verb: str, arguments: object) -> int:
    """Do what a command is asked for, and return its exit status."""
    module = import_module(f"rmqinspect.cli.{verb}")
    # Until here Ctrl-C ends the process at once (`__main__`); from here on commands handle it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, raise_interrupt)
    status: int = module.run(arguments)
    return status
