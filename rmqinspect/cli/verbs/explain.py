"""Options and help of `explain`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import ColorOptions, DocumentOptions
from rmqinspect.cli.parameters import argument, option_group, takes
from rmqinspect.cli.verbs import run


@option_group
class ExplainArguments(DocumentOptions, ColorOptions):
    """What `explain` is asked for."""

    words: tuple[str, ...] = argument("[WHAT]...")


# Values may be negative and a pasted line may contain anything: what looks like an option is checked below.
@click.command("explain", cls=Command, context_settings={"ignore_unknown_options": True})
@takes(ExplainArguments)
def command(arguments: ExplainArguments) -> int:
    """Explain a code, field, flag or log line: meaning, cause, what a broker does, what to run next.

    WHAT is the code of a finding; a field, property, bit, topic or number, with its value if you have
    one; a status or another word of rmqinspect's output, or the name of a file of a store; a line of a
    broker's log in quotes, whole or in part; or one or several log files, or - for a log from stdin:
    what each start of the broker cut and deleted, or why it was refused, and every kind of line with
    its number. Files may be gzipped. Without WHAT: a list of everything.

    Exit status of a log: 0 read, 5 no known line in it, 4 not readable to its end, 130 interrupted.

    \b
    Examples:
      rmqinspect explain CL-CRC-BODY
      rmqinspect explain sysFlag 0x1c
      rmqinspect explain magicCode -626843481
      rmqinspect explain TAGS TagA
      rmqinspect explain "found a illegal magic code 0x66666"
      rmqinspect explain store.log
      rmqinspect explain store.1.log.gz store.log
      kubectl logs broker-0 | rmqinspect explain -
    """
    return run("explain", arguments)
