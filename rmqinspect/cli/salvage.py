"""`rmqinspect salvage`: from damaged bytes, of one source or several, to a store that a broker serves, in a new place.

claim NEW -> judge the sources -> put the log together -> write -> verify and forecast of NEW -> screen -> its name
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.new_store import LISTED, more, proof_lines, some
from rmqinspect.cli.options import (
    count_jobs,
    use_colour,
)
from rmqinspect.cli.pager import print_answered
from rmqinspect.cli.terminal import Progress, Screen
from rmqinspect.cli.verbs.salvage import SalvageArguments
from rmqinspect.commands import DECODE_RANGE, fill_command
from rmqinspect.errors import DamageFound
from rmqinspect.system.uri import shown
from rmqinspect.text import count, describe_size, escape, group_digits

if TYPE_CHECKING:
    from rmqinspect.rescue.salvage import Salvaged
    from rmqinspect.rescue.salvage_receipt import Aside, LostOffsets, Repair, SalvageReceipt, Timers
    from rmqinspect.store.model import Store

_SCREEN = Screen(indent=12, phrases=True)
_READS = 3  # times that the log is read, about: judged, dispatched, verified


def run(arguments: SalvageArguments) -> int:
    """Do what `salvage` is asked for, and return the exit status."""
    from rmqinspect.cli.verify_screen import Look
    from rmqinspect.rescue.given import open_sources
    from rmqinspect.rescue.new_store import NewStore, aside_path, receipt_path
    from rmqinspect.rescue.receipt import as_json
    from rmqinspect.rescue.salvage import SalvageJob, SalvageRequest
    from rmqinspect.store.names import name_store
    from rmqinspect.system.filesystem import isdir

    if not arguments.output and not arguments.dry_run:
        raise click.UsageError("Missing option '-o' / '--output'; only --dry-run goes without.")
    target = arguments.output.rstrip("/") or "NEW"
    started = datetime.now(UTC)
    named = [name_store(path) for path in arguments.paths]
    images = [path for _, path in named if arguments.carve and not isdir(path)]
    named = [(name, path) for name, path in named if path not in images]
    notes: list[str] = []
    given = open_sources(named, arguments.opening, notes.append) if named else []
    unused: list[tuple[str, Store]] = []
    given += _carved(images, arguments, given, notes, unused)
    names = list(dict.fromkeys(name for name, _ in given))
    if arguments.prefer is not None and arguments.prefer not in names:
        known = ", ".join(map(escape, names))
        raise click.UsageError(f"--prefer {escape(arguments.prefer)}: no source has that name; there are: {known}.")
    request = SalvageRequest(
        target,
        arguments.broker_version,
        arguments.prefer,
        not arguments.no_repair,
        arguments.link,
        arguments.hash is not None,
        arguments.dry_run,
        arguments.config,
        arguments.max_config,
        count_jobs(arguments),
        tuple(notes),
    )
    with ExitStack() as made:
        evidence = [*images, *(path for _, path in named)]
        new = made.enter_context(NewStore(arguments.output or None, evidence, dry_run=arguments.dry_run))
        log = sum(segment.size for _, store in given for segment in store.segments)
        with Progress(log * _READS, arguments.progress, quiet=arguments.quiet) as progress:
            result = SalvageJob(given, request, new, progress, progress.remark, unused).salvage()
        if arguments.redact is not None:
            result = replace(result, receipt=_redacted(result.receipt))
        # Named before it is told: a screen that nobody reads to its end is no reason to throw away what was made.
        if result.holds and not arguments.dry_run:
            new.commit(as_json(result.receipt))
        if not arguments.quiet:
            look = Look(arguments.zone, use_colour(arguments.color), unfold=arguments.verbose > 0)
            proven = proof_lines(result.proof, target, started, arguments.redact, look)
            lines = (*_receipt_lines(result.receipt, target), *proven)
            print_answered(lines, colour=use_colour(arguments.color))
        if not result.holds:
            raise DamageFound(f"{shown(arguments.output)}: not made: {_why(result)}")
    if not arguments.quiet and not arguments.dry_run:
        beside = [aside_path(target)] if result.receipt.aside or result.receipt.not_chosen else []
        places = (target, receipt_path(target), *beside)
        click.echo(f"made: {', '.join(map(shown, places))}", err=True)
    return ExitStatus.DONE if result.is_complete else ExitStatus.DAMAGE


def _carved(
    images: Sequence[str],
    arguments: SalvageArguments,
    given: "Sequence[tuple[str, Store]]",
    notes: list[str],
    unused: "list[tuple[str, Store]]",
) -> "list[tuple[str, Store]]":
    """Return what the images hold as sources.

    What is left out of them, or ambiguous, is added to the notes; the last logs of other brokers are added to `unused`.
    """
    if not images:
        return []
    from rmqinspect.errors import NotAStore
    from rmqinspect.rescue.carved_source import carve_sources, readable_images
    from rmqinspect.store.broker_conf import read_settings, setting_size

    images = readable_images(images, notes.append, alone=not given)
    if not images:
        return []
    settings = read_settings(arguments.config) if arguments.config else None
    size = setting_size(settings or {}, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
    size = size or next((store.segment_size for _, store in given if store.segment_size), None)
    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:
        try:
            return carve_sources(
                images,
                size,
                arguments.prefer,
                settings=settings,
                name_hosts=arguments.redact is None or "hosts" not in arguments.redact.words,
                note=notes.append,
                on_unreadable=notes.append,
                progress=progress,
                leave_out=lambda name, store: unused.append((name, store)),
            )
        except NotAStore as error:
            if not given:
                raise
            notes.append(f"not used: {error}")
            return []


def _redacted(receipt: "SalvageReceipt") -> "SalvageReceipt":
    """Return the receipt without bytes of messages."""
    import msgspec

    rows = [
        msgspec.structs.replace(row, before="", after="") if row.field in ("BODY", "PROPERTIES", "TOPIC") else row
        for row in receipt.repaired
    ]
    return msgspec.structs.replace(receipt, repaired=rows)


def _why(result: "Salvaged") -> str:
    if result.proof is not None and (result.proof.damage or not result.proof.complete):
        return f"it would be {result.receipt.verdict}"
    return f"its next start: {result.receipt.next_start}"


def _receipt_lines(receipt: "SalvageReceipt", target: str) -> Iterator[str]:
    """Yield the lines about what was kept, repaired, bridged and lost."""
    version = f"for RocketMQ {receipt.broker_version} ({receipt.version_from})"
    dry = "; nothing is written (--dry-run)" if receipt.dry_run else ""
    yield from _SCREEN.rows("new store", f"{shown(target)}, {version}{dry}")
    for source in receipt.sources:
        differs = "" if source.differs_from is None else f", differs from {group_digits(source.differs_from)} on"
        stale = f", {describe_size(source.stale_bytes)} cut off earlier stay out" if source.stale_bytes else ""
        words = f"{describe_size(source.taken_bytes)} taken of {describe_size(source.sound_bytes)} that are sound"
        yield from _SCREEN.rows("source", f"{escape(source.name)}: {source.verdict}; {words}{differs}{stale}")
        yield from _SCREEN.rows("", some([f"renamed {escape(one)}" for one in source.renamed]))
    kept = f"{describe_size(receipt.kept_bytes)} as they are"
    yield from _SCREEN.rows("log", f"{group_digits(receipt.log_start)} to {group_digits(receipt.log_end)}; {kept}")
    ways = Counter(one.how for one in receipt.brought)
    yield from _SCREEN.rows("brought", "; ".join(f"{count(number, 'file')} {how}" for how, number in ways.items()))
    yield from _SCREEN.several("repaired", [*map(_repair_words, receipt.repaired[:LISTED]), *more(receipt.repaired)])
    bridged = sum(one.end - one.start for one in receipt.bridged)
    if receipt.bridged:
        where = f"{count(len(receipt.bridged), 'place')}, {describe_size(bridged)}"
        yield from _SCREEN.rows(
            "bridged", f"{where}: records that brokers pass over stand where nothing could be saved"
        )
    if receipt.aside:
        places = count(len(receipt.aside), "place")
        what = f"what can be read of {places} that could not be saved is in {shown(target)}.aside"
        yield from _SCREEN.several("aside", [what, *map(_aside_words, receipt.aside[:LISTED]), *more(receipt.aside)])
    lost = [f"{_queue(one)} {_offsets(one.lost)}; {count(one.kept, 'message')} kept" for one in receipt.lost_offsets]
    yield from _SCREEN.several("lost", [*lost[:LISTED], *more(lost)])
    for one in receipt.not_chosen:
        topics = ", ".join(f"{escape(topic)} {group_digits(number)}" for topic, number in one.topics.items())
        yield from _SCREEN.rows(
            "not chosen",
            f"{count(one.records, 'sound record')} that only {escape(one.source)} has, at {group_digits(one.start)} to "
            f"{group_digits(one.end)}: {topics}; not in the new store, with their bodies in {shown(target)}.aside",
        )
        yield from _SCREEN.command("list them", fill_command(DECODE_RANGE, [one.path], start=one.start, end=one.end))
    yield from _SCREEN.rows("timers", _timer_words(receipt.timers) if receipt.timers else "")
    yield from _SCREEN.rows("left out", some([f"{escape(one.file)} ({one.why})" for one in receipt.left_out]))
    yield from _SCREEN.several("note", [*receipt.notes[:LISTED], *more(receipt.notes)])
    yield ""


def _timer_words(timers: "Timers") -> str:
    if timers.kept:
        lost = (
            f"{count(timers.lost, 'timer message')} lost: the broker passes over {'it' if timers.lost == 1 else 'them'}"
        )
        return f"wheel and log are kept{f'; {lost}' if timers.lost else ''}"
    again = [count(timers.again or 0, "delivered timer message")] if timers.again else []
    again += [count(timers.again_pops, "acknowledged pop")] if timers.again_pops else []
    return f"wheel and log are left out; {' and '.join(again) or 'no message'} will come again"


def _queue(one: "Repair | Aside | LostOffsets") -> str:
    return f"{escape(one.topic or '')} queue {one.queue_id}"


def _repair_words(one: "Repair") -> str:
    where = f"{_queue(one)} offset {one.queue_offset}: " if one.topic else ""
    bit = "" if one.bit is None else f" bit {one.bit}"
    change = f"{one.before} -> {one.after}" if one.before else "masked"
    return f"{group_digits(one.physical_offset)}: {where}{one.field}{bit}, {change}: {escape(one.proof)}"


def _aside_words(one: "Aside") -> str:
    where = f" {_queue(one)} offset {one.queue_offset}:" if one.topic else ""
    return f"{group_digits(one.start)}, {count(one.end - one.start, 'byte')}:{where} {one.why}"


def _offsets(offsets: list[int]) -> str:
    """Return queue offsets with the word, consecutive ones as a range."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    shown_runs = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]
    return f"offset{'s' if len(offsets) > 1 else ''} {', '.join([*shown_runs[:LISTED], *more(shown_runs)])}"
