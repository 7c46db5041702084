"""`rmqinspect rebuild`: a store whose log is sound, with all derived files written anew, in a new place.

claim NEW -> judge the log -> bring, write -> verify and forecast of NEW -> screen -> NEW gets its name
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.new_store import LISTED, more, proof_lines, some
from rmqinspect.cli.options import (
    count_jobs,
    use_colour,
)
from rmqinspect.cli.pager import print_answered
from rmqinspect.cli.terminal import Progress, Screen
from rmqinspect.cli.verbs.rebuild import RebuildArguments
from rmqinspect.errors import DamageFound
from rmqinspect.system.uri import shown
from rmqinspect.text import count, describe_size, group_digits

if TYPE_CHECKING:
    from rmqinspect.rescue.job import Result
    from rmqinspect.rescue.receipt import Receipt

_SCREEN = Screen(indent=12, phrases=True)
_READS = 4  # times that the log is read, about: judged, copied, dispatched, verified


def run(arguments: RebuildArguments) -> int:
    """Do what `rebuild` is asked for, and return the exit status."""
    from rmqinspect.cli.verify_screen import Look
    from rmqinspect.rescue.job import RebuildJob, RebuildRequest
    from rmqinspect.rescue.new_store import NewStore, receipt_path
    from rmqinspect.rescue.receipt import as_json
    from rmqinspect.store.discover import open_store

    started = datetime.now(UTC)
    store = open_store(arguments.paths, **arguments.opening)
    request = RebuildRequest(
        arguments.output,
        arguments.broker_version,
        arguments.only,
        arguments.link,
        arguments.hash is not None,
        arguments.config,
        arguments.max_config,
        count_jobs(arguments),
    )
    with ExitStack() as made:
        new = made.enter_context(NewStore(arguments.output, store.paths))
        log = sum(segment.size for segment in store.segments)
        with Progress(log * _READS, arguments.progress, quiet=arguments.quiet) as progress:
            for remark in store.remarks if arguments.verbose else ():
                progress.remark(remark)
            result = RebuildJob(store, request, new, progress, progress.remark).go()
        # Named before it is told: a screen that nobody reads to its end is no reason to throw away what was made.
        if result.holds:
            new.commit(as_json(result.receipt))
        if not arguments.quiet:
            look = Look(arguments.zone, use_colour(arguments.color), unfold=arguments.verbose > 0)
            proven = proof_lines(result.proof, arguments.output, started, arguments.redact, look)
            lines = (*_receipt_lines(result.receipt, arguments.output), *proven)
            print_answered(lines, colour=use_colour(arguments.color))
        if not result.holds:
            raise DamageFound(f"{shown(arguments.output)}: not made: {_why(result)}")
    if not arguments.quiet:
        target = arguments.output.rstrip("/")
        click.echo(f"made: {shown(target)}, {shown(receipt_path(target))}", err=True)
    return ExitStatus.DONE


def _why(result: "Result") -> str:
    if result.proof.damage or not result.proof.complete:
        # The log was sound record by record: offsets of its records contradict each other, or other files are damaged.
        return f"it would be {result.receipt.verdict}; a log whose records contradict each other is for salvage"
    return f"its next start: {result.receipt.next_start}"


def _receipt_lines(receipt: "Receipt", target: str) -> Iterator[str]:
    """Yield the lines about what was brought, written and left out."""
    yield from _SCREEN.rows(
        "new store", f"{shown(target)}, for RocketMQ {receipt.broker_version} ({receipt.version_from})"
    )
    ways = dict.fromkeys(one.how for one in receipt.brought)
    brought = (
        f"{count(len(some), 'file')} {how}, {describe_size(sum(one.size for one in some))}"
        for how in ways
        for some in ([one for one in receipt.brought if one.how == how],)
    )
    yield from _SCREEN.rows("brought", "; ".join(brought))
    linked = [one.file for one in receipt.brought if one.how == "linked"]
    if linked:
        yield from _SCREEN.rows("", f"linked, the source's own files, never to be written to: {some(linked)}")
    sizes = receipt.geometry
    yield from _SCREEN.rows(
        "sizes",
        f"queue files of {group_digits(sizes.queue_file)} bytes, index files of {group_digits(sizes.index_slots)} "
        f"slots and {group_digits(sizes.index_entries)} entries",
    )
    yield from _SCREEN.several("", (text for text in receipt.assumed if "--config" in text))
    derived = receipt.derived
    if receipt.only != "index":
        yield from _SCREEN.rows("queues", f"{count(derived.queues, 'queue')}, {count(derived.units, 'unit')}")
    if receipt.only != "queues":
        files = f"{count(derived.index_files, 'index file')}, {group_digits(derived.index_entries)} entries"
        yield from _SCREEN.rows("index", files)
    yield from _SCREEN.rows("left out", some([f"{one.file} ({one.why})" for one in receipt.left_out]))
    yield from _SCREEN.several("note", [*receipt.notes[:LISTED], *more(receipt.notes)])
    yield ""
