"""`rmqinspect rebuild`: a store whose log is sound, with all derived files written anew, in a new place.

claim NEW -> judge the log -> bring, write -> verify and forecast of NEW -> screen -> NEW gets its name
"""

from collections import Counter
from collections.abc import Iterator, Sequence
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
from rmqinspect.commands import REBUILD_OFFSETS, SALVAGE, fill_command
from rmqinspect.errors import DamageFound
from rmqinspect.system.uri import shown
from rmqinspect.text import count, describe_size, escape, group_digits

if TYPE_CHECKING:
    from rmqinspect.rescue.job import Result
    from rmqinspect.rescue.receipt import GroupOffset, Receipt

_SCREEN = Screen(indent=12, phrases=True)
_MOST_EDITS = 40  # lines with offsets that are set back; all are in the receipt
_READS = 4  # times that the log is read, about: judged, copied, dispatched, verified


def run(arguments: RebuildArguments) -> int:
    """Do what `rebuild` is asked for, and return the exit status."""
    from rmqinspect.cli.verify_screen import Look
    from rmqinspect.rescue.job import RebuildJob, RebuildRequest
    from rmqinspect.rescue.new_store import NewStore, receipt_path
    from rmqinspect.rescue.receipt import as_json
    from rmqinspect.store.discover import open_store

    if not arguments.output and not arguments.dry_run:
        raise click.UsageError("Missing option '-o' / '--output'; only --dry-run goes without.")
    target = arguments.output.rstrip("/") or "NEW"
    started = datetime.now(UTC)
    store = open_store(arguments.paths, **arguments.opening)
    request = RebuildRequest(
        target,
        arguments.broker_version,
        arguments.only,
        arguments.link,
        arguments.hash is not None,
        arguments.config,
        arguments.max_config,
        count_jobs(arguments),
        arguments.dry_run,
        arguments.set_offsets,
    )
    with ExitStack() as made:
        new = made.enter_context(NewStore(arguments.output or None, store.paths, dry_run=arguments.dry_run))
        log = sum(segment.size for segment in store.segments)
        with Progress(log * _READS, arguments.progress, quiet=arguments.quiet) as progress:
            for remark in store.remarks if arguments.verbose else ():
                progress.remark(remark)
            result = RebuildJob(store, request, new, progress, progress.remark).go()
        is_made = result.holds and result.proof is not None
        # Named before it is told: a screen that nobody reads to its end is no reason to throw away what was made.
        if is_made:
            new.commit(as_json(result.receipt))
        if not arguments.quiet:
            look = Look(arguments.zone, use_colour(arguments.color), unfold=arguments.verbose > 0)
            proven = proof_lines(result.proof, target, started, arguments.redact, look)
            lines = (*_receipt_lines(result.receipt, target), *_to_do(result, store.words, target), *proven)
            print_answered(lines, colour=use_colour(arguments.color))
        if not result.holds:
            what = "would not be made" if arguments.dry_run else "not made"
            raise DamageFound(f"{shown(target)}: {what}: {_why(result, store.words)}")
    if is_made and not arguments.quiet:
        click.echo(f"made: {shown(target)}, {shown(receipt_path(target))}", err=True)
    if not is_made and not arguments.dry_run:
        raise DamageFound(f"{shown(target)}: not made: groups would not get messages that are stored after the start")
    return ExitStatus.DONE if result.is_complete else ExitStatus.DAMAGE


def _why(result: "Result", paths: Sequence[str]) -> str:
    proof = result.proof
    if proof is None or proof.damage or not proof.complete:
        # The log was sound record by record: offsets of its records contradict each other, or other files are damaged.
        again = [one for one in result.receipt.derived.odd_queues if one.left_out and not one.restarts]
        if again:
            named = ", ".join(f"{escape(one.topic)} queue {one.queue_id}" for one in again[:LISTED])
            records = sum(one.left_out for one in again)
            return (
                f"{count(records, 'record')} of {named} have queue offsets that earlier ones have: a broker gave them "
                "out again after it had started without the end of a queue, and no queue leads to both. This keeps "
                f"the earlier ones, and lists the later ones with their bodies: {fill_command(SALVAGE, paths)}"
            )
        if proof is None:
            salvage = fill_command(SALVAGE, paths)
            return f"queues lack offsets, or have them twice; this lists what it leaves out: {salvage}"
        return f"it would be {result.receipt.verdict}; what contradicts each other salvage leaves out, and lists"
    return f"its next start: {result.receipt.next_start}"


def _to_do(result: "Result", paths: Sequence[str], target: str) -> Iterator[str]:
    """Yield what has to be done before a start: for groups beyond the ends of their queues, and for topics.json."""
    receipt = result.receipt
    beyond = receipt.offsets_beyond
    if beyond:
        yield from _SCREEN.rows("groups", _skip_words(beyond))
        by_key: dict[str, list[GroupOffset]] = {}
        for one in beyond:
            by_key.setdefault(f"{one.file} {escape(one.topic)}@{escape(one.group)}", []).append(one)
        edits = [f"{key}: {_edits(rows)}" for key, rows in by_key.items()]
        left = [f"{len(edits) - _MOST_EDITS} more"] if len(edits) > _MOST_EDITS else []
        yield from _SCREEN.several("", [*edits[:_MOST_EDITS], *left])
    if result.would_skip:
        if result.salvage_keeps_ends:
            yield from _SCREEN.rows("better", "salvage: its queues keep their ends, so that no group skips a message")
            yield from _SCREEN.command("do first", fill_command(SALVAGE, paths))
        yield from _SCREEN.command(
            "or" if result.salvage_keeps_ends else "do first", fill_command(REBUILD_OFFSETS, paths)
        )
    if receipt.unnamed_topics:
        topics = some(
            [f"{escape(topic)} ({count(number, 'queue')})" for topic, number in receipt.unnamed_topics.items()]
        )
        yield from _SCREEN.rows("topics", f"no config/topics.json names {topics}: no client sees them until it does")
        yield from _SCREEN.rows(
            "do first",
            f"put topics.json of a backup or a slave into {shown(target)}/config before the start, or make each topic "
            "again with as many queues: mqadmin updateTopic",
        )
    if beyond or receipt.unnamed_topics:
        yield ""


def _skip_words(beyond: "Sequence[GroupOffset]") -> str:
    """Return what offsets beyond the ends of queues mean, the group that loses most first."""
    groups: Counter[str] = Counter()
    for one in beyond:
        if one.file != "delayOffset.json":
            groups[one.group] += one.offset - one.end
    levels = sum(one.file == "delayOffset.json" for one in beyond)
    named = [f"{escape(group)} {group_digits(number)}" for group, number in groups.most_common()]
    named += [count(levels, "delay level")] if levels else []
    if beyond[0].is_set:
        return f"set back in the new store to the ends of the rebuilt queues: {some(named)}"
    return f"would not get the next new messages, as their offsets lie beyond the rebuilt queues: {some(named)}"


def _edits(rows: "Sequence[GroupOffset]") -> str:
    return ", ".join(f"{one.queue_id}: {group_digits(one.offset)} -> {group_digits(one.end)}" for one in rows)


def _receipt_lines(receipt: "Receipt", target: str) -> Iterator[str]:
    """Yield the lines about what was brought, written and left out."""
    version = f"for RocketMQ {receipt.broker_version} ({receipt.version_from})"
    dry = "; nothing is written" if receipt.dry_run else ""
    yield from _SCREEN.rows("new store", f"{shown(target)}, {version}{dry}")
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
    if receipt.only != "queues" and not (receipt.dry_run and not derived.index_files):
        files = f"{count(derived.index_files, 'index file')}, {group_digits(derived.index_entries)} entries"
        yield from _SCREEN.rows("index", files)
    yield from _SCREEN.rows("left out", some([f"{one.file} ({one.why})" for one in receipt.left_out]))
    yield from _SCREEN.several("note", [*receipt.notes[:LISTED], *more(receipt.notes)])
    yield ""
