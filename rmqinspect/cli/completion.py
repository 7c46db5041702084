"""Shell completion: `_RMQINSPECT_COMPLETE=bash_source rmqinspect` prints the script, which asks with each TAB.

Nothing here fails or writes: whoever presses TAB gets what is known, or nothing.
"""

import os
import re

import click
from click.shell_completion import CompletionItem, shell_complete

_ASKED = "_RMQINSPECT_COMPLETE"

# All else means something to a shell, or to a terminal. `?` matches any character, both here and in `-t GLOB`.
_UNSAFE = re.compile(r"[^\w%+.,:@=-]")


def completes(group: click.Group) -> bool:
    """Answer a shell that asks for its script or for completions; return whether one did."""
    instruction = os.environ.get(_ASKED)
    if not instruction:
        return False
    shell_complete(group, {}, "rmqinspect", _ASKED, instruction)
    return True


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the topics of the stores given on the line so far that begin with what is typed."""
    from rmqinspect.config.json_files import topic_names

    # click parses no arguments of a line that ends with an option without its value: they are left in ctx.args.
    given = [*(ctx.params.get("paths") or ()), *ctx.args]
    names = {_UNSAFE.sub("?", topic) for path in given for topic in topic_names(_without_name(path))}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def complete_tables(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of tables that begin with what is typed."""
    from rmqinspect.tables import TABLES

    return [CompletionItem(name) for name in TABLES if name.startswith(incomplete)]


def _without_name(path: str) -> str:
    """Return the path of `NAME=STORE`, as export takes it."""
    name, separator, store = path.partition("=")
    return store if separator and not os.path.exists(path) and "/" not in name else path
