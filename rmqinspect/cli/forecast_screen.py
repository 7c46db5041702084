"""The screen of `forecast`: what a start does, step by step, what it loses, other ways to start, the verdict.

    scan       begins in commitlog/00000000000000000000, the first segment; looked for: …
    stops at   97 187 = segment 65536 + 31 651 (0x7ba3): BODYCRC does not match the body
    log        end 217 698 becomes 97 187
    deletes    segments 131072, 196608; empty segment 262144
    before any start: copy the store
    VERDICT    STARTS, LOSES DATA: 145 records

Where releases differ, each has a block of its own, and the verdict is that of the worst.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, tzinfo
from functools import partial
from itertools import chain, groupby

from msgspec import Struct

from rmqinspect.broker.acknowledged import acknowledged_words
from rmqinspect.cli.terminal import Screen, columns, fold, line_width
from rmqinspect.forecast.advice import Action, first_step
from rmqinspect.forecast.check import REASONS
from rmqinspect.forecast.outcome import (
    COSTS,
    Alternative,
    Forecast,
    GroupBeyond,
    GroupStart,
    InReplica,
    Losses,
    Outcome,
    QueueOutcome,
    SalvagePrice,
    Verdict,
)
from rmqinspect.forecast.words import (
    again_words,
    already_lost,
    delay_words,
    group_words,
    healed_words,
    loss_words,
    no_queue_words,
    outcome_words,
    proof_words,
    reach_words,
    refusal_words,
    span_of,
    transaction_words,
    unit_words,
    verdict_line,
)
from rmqinspect.store.model import Store
from rmqinspect.text import cell_width, clip, count, describe_offset, describe_size, escape, group_digits
from rmqinspect.times import time_words

SCREEN = Screen(indent=11, cut=True)
_LISTED = 6  # segments, files and groups that are named; the others are counted
_TOPICS = 10  # with a line in the table of losses
_QUEUES = 20  # with a line in the table of queues
_WAYS = 6  # other ways to start that are named: the better ones, and the others
_WIDEST = 40  # cells of a name in a table
aligned = partial(columns, gap=3, narrow=1, least=15)


class Look(Struct, frozen=True):
    """How the screen is printed."""

    zone: tzinfo  # of times
    queues: bool  # with the table of queues
    saving: Callable[[Outcome], str | None] = lambda outcome: None  # the command that saves what an outcome loses
    listing: str | None = None  # the command that lists what the other store has not
    salvaging: str | None = None  # the command that tells what a salvage would keep


def screen(forecast: Forecast, store: Store, look: Look) -> Iterator[str]:
    """Yield the lines of the screen, without the verdict."""
    assumed = forecast.worst.assumptions
    yield from SCREEN.rows("assumed", "; ".join((*assumed, *_exit_words(forecast.worst, store))))
    yield from SCREEN.rows("load", _files(store))
    blocks = alike(forecast)
    for block in blocks:
        outcome = block[-1]
        if len(blocks) > 1:
            yield ""
            yield from SCREEN.rows("broker", f"{span_of(block)}: {outcome_words(outcome)}")
        loads = [*_load_words(outcome)]
        yield from SCREEN.several("load", loads) if len(blocks) > 1 else SCREEN.several("", loads)
        # Where releases differ in where the scan begins, each is told.
        places = [(span_of(list(run)), text) for text, run in groupby(block, key=_scan_words)]
        yield from SCREEN.several("scan", (f"{era}: {text}" if len(places) > 1 else text for era, text in places))
        yield from _start_lines(outcome)
        if outcome is forecast.worst and outcome.refusal and forecast.instead and forecast.instead[0].is_better:
            best = forecast.instead[0]
            yield from SCREEN.rows("best", f"{best.way}: {_price_words(best)}")
        yield from _loss_lines(outcome, look.zone)
        told = next((one for one in block if one is forecast.worst), outcome)
        if save := look.saving(told):
            yield from SCREEN.command("save", save)
            yield from SCREEN.command("salvage", look.salvaging or "")
        if told is forecast.worst and forecast.replica is not None:
            yield from _replica_lines(forecast.replica, look.listing or "")
        if look.queues:
            yield from _queue_table(outcome.queues)
        yield from SCREEN.several("not read", (f"{one}; {one.remedy}" for one in outcome.unread))
        yield from SCREEN.several("note", outcome.notes)
    yield from _way_lines(forecast)
    if forecast.salvage is not None:
        yield from SCREEN.rows("salvaged", _salvage_words(forecast.salvage))


def alike(forecast: Forecast) -> list[list[Outcome]]:
    """Return the outcomes; neighbours that differ in nothing but where the scan begins stand together."""
    return [list(run) for _, run in groupby(forecast.outcomes, key=_consequences)]


def _consequences(outcome: Outcome) -> list[str]:
    lines = (*_load_words(outcome), *_start_lines(outcome), *_loss_lines(outcome, UTC))
    return [outcome.verdict.value, *lines, *_queue_table(outcome.queues), *map(str, outcome.unread), *outcome.notes]


def verdict_lines(forecast: Forecast) -> Iterator[str]:
    """Yield the line `VERDICT`, which scripts read, and before it the advice."""
    verdict, _, reason = verdict_line(forecast).partition(": ")
    # What does not fit into the line stands above.
    while reason and cell_width(escape(f"{verdict}: {reason}")) > line_width() - SCREEN.indent:
        reason = _shorter(reason)
    text = f"{verdict}: {reason}" if reason else verdict
    if forecast.worst.verdict in COSTS:
        yield from SCREEN.rows("before any start:", "copy the store")
    yield from _first_lines(forecast)
    yield from SCREEN.fitted("VERDICT", text)


def _shorter(reason: str) -> str:
    """Leave out what gives the proofs (`without the log that 3 segments, … prove`), or the last part of a list."""
    head, proofs, _ = reason.partition(" that ")
    return head if proofs else reason.rpartition(", ")[0]


def _first_lines(forecast: Forecast) -> Iterator[str]:
    """Yield what to do first, where that is more than to start the broker."""
    first = first_step(forecast)
    if first.action != Action.START:
        yield from SCREEN.rows("do first:", first.text)


def _exit_words(outcome: Outcome, store: Store) -> Iterator[str]:
    if not outcome.release:
        return
    has_folder = store.has_folder("abort")
    has_abort = store.has_file("abort") or has_folder
    word = "clean" if outcome.clean_exit else "unclean"
    if has_abort == outcome.clean_exit:
        yield f"{word} exit, as asked for"
    elif has_abort:
        yield f"{word} exit, because the {'folder' if has_folder else 'file'} abort is there"
    else:
        yield f"{word} exit: there is no file abort"


def _files(store: Store) -> str:
    queues = [file for file in store.queue_files if file.kind != "ext_queue"]
    parts = (count(len(store.segments), "segment"), count(len(queues), "queue file"))
    index = (count(len(store.index_files), "index file"), "checkpoint" if store.checkpoint else "no checkpoint")
    return ", ".join((*parts, *index))


# --- one start ----------------------------------------------------------------------------------------


def _start_lines(outcome: Outcome) -> Iterator[str]:
    """Yield what a start does once the scan begins, in its order."""
    yield from SCREEN.rows("stops at", _stop_words(outcome))
    if outcome.refusal is not None:
        yield from SCREEN.rows("refuses", refusal_words(outcome.refusal))
        yield from SCREEN._replace(cut=False).rows("remedy", outcome.refusal.remedy)  # its command is copied
        yield from SCREEN.rows("deletes", "; ".join(_deleted_words(outcome)))
        return
    if outcome.unknown is not None:
        yield from SCREEN.rows("not known", outcome.unknown)
        return
    yield from SCREEN.rows("log", _log_words(outcome))
    if copies := outcome.losses.copies:
        are = "is a copy of another" if copies == 1 else "are copies of others"
        yield from SCREEN.rows(
            "copies", f"{count(copies, 'record')} behind the new end {are}: no message is lost by that"
        )
    yield from SCREEN.several("queues", _queue_words(outcome))
    yield from SCREEN.rows("index", _index_words(outcome))
    yield from SCREEN.rows("deletes", "; ".join(_deleted_words(outcome)))
    yield from SCREEN.rows("heals", healed_words(outcome))
    yield from SCREEN.several("groups", _group_words(outcome))
    yield from SCREEN.several("consumers", reach_words(outcome))
    yield from SCREEN.several("delayed", delay_words(outcome))
    yield from SCREEN.rows("half", transaction_words(outcome))
    yield from SCREEN.rows("again", again_words(outcome))
    yield from SCREEN.rows("no queue", no_queue_words(outcome))
    yield from SCREEN.rows("already lost:", "; ".join(already_lost(outcome)))
    if outcome.acknowledged is not None:
        yield from SCREEN.rows("gone", acknowledged_words(outcome.acknowledged))


def _load_words(outcome: Outcome) -> Iterator[str]:
    if outcome.verdict is Verdict.EMPTY and f"commitlog/{0:020}" in outcome.ignored_files:
        yield f"not loaded: {_some(outcome.ignored_files)}"
        yield "the first message that is written goes over segment 0: do not start it"
    elif outcome.ignored_files:
        yield f"not loaded, and left: {_some(outcome.ignored_files)}"
    if outcome.config_from_backup:
        yield f"read from .bak: {_some(outcome.config_from_backup)}"


def _scan_words(outcome: Outcome) -> str:
    if outcome.scan_start is None:
        return ""
    begins = f"begins in segment {outcome.scan_start}"
    return next((decision.text for decision in outcome.decisions if decision.step == "start"), begins)


def _stop_words(outcome: Outcome) -> str:
    rejected = outcome.rejected
    if rejected is None:
        return ""
    place = f"segment {rejected.physical_offset - rejected.position} + {describe_offset(rejected.position)}"
    return f"{group_digits(rejected.physical_offset)} = {place}: {REASONS[rejected.rule]}"


def _log_words(outcome: Outcome) -> str:
    end, was = outcome.end_offset, outcome.losses.end
    if outcome.min_offset < 0:
        proved = f", though {proof_words(outcome)} one" if outcome.proofs else ""
        return f"there is no segment: it begins at 0{proved}"
    if was is not None and was > end:
        text = f"end {group_digits(was)} becomes {group_digits(end)}"
    else:
        text = f"ends at {group_digits(end)}: no record is cut off"
    return f"begins at {group_digits(outcome.min_offset)}; {text}" if outcome.min_offset else text


def _deleted_words(outcome: Outcome) -> Iterator[str]:
    """Yield the files that a start deletes, by kind; segments and index files by name."""
    empty = set(outcome.empty_segments)
    for names, what in (
        ([str(base) for base in outcome.deleted_segments if base not in empty], "segment"),
        (list(map(str, outcome.empty_segments)), "empty segment"),
    ):
        if names:
            yield f"{what}{'' if len(names) == 1 else 's'} {_some(names)}"
    files = sum(name.startswith(("consumequeue", "batchconsumequeue")) for name in outcome.deleted_files)
    if files:
        yield count(files, "queue file")
    if outcome.deleted_index_files:
        names = [f"index/{name}" for name in outcome.deleted_index_files]
        yield f"{_some(names)}, newer than the checkpoint says"


def _queue_words(outcome: Outcome) -> Iterator[str]:
    # Those of an empty start stand below `already lost`.
    lost = {queue[:2] for queue in outcome.lost_queues} if outcome.verdict is Verdict.EMPTY else set()
    for name, words in (
        ("given_twice", "{offset} in {queues} will be used again"),
        ("cut", "{unit} of {queues} {are} cut off"),
        ("added", "{unit} {are} added to {queues}"),
    ):
        queues = [
            queue for queue in outcome.queues if name != "given_twice" or (queue.topic, queue.queue_id) not in lost
        ]
        numbers = [number for queue in queues if (number := getattr(queue, name))]
        if numbers:
            total = sum(numbers)
            yield words.format(
                queues=count(len(numbers), "queue"),
                offset=count(total, "queue offset"),
                unit=count(total, "unit"),
                are=_are(total),
            )
    raised = sum(queue.min_after != queue.min_before for queue in outcome.queues)
    if raised:
        yield f"the minimum of {count(raised, 'queue')} becomes another"


def _index_words(outcome: Outcome) -> str:
    parts = []
    if outcome.index_entries_behind:
        number = outcome.index_entries_behind
        entries = f"{group_digits(number)} {'entry points' if number == 1 else 'entries point'}"
        parts.append(f"{entries} behind the new end, in files that stay")
    if outcome.new_index_files:
        parts.append(f"{count(outcome.new_index_files, 'new file')} for what is dispatched again")
    return "; ".join(parts)


def _group_words(outcome: Outcome) -> Iterator[str]:
    beyond = outcome.groups_beyond
    if beyond:
        groups = len({group.group for group in beyond})
        verb = "has" if groups == 1 else "have"
        yield f"{count(groups, 'group')} {verb} offsets beyond the new maximum of {count(len(beyond), 'queue')}"
    for group in outcome.groups[:_LISTED]:
        yield f"{_clipped(group.group)}, {_place(group, beyond)}: {group_words(group)}"
    if len(outcome.groups) > _LISTED:
        yield f"and {count(len(outcome.groups) - _LISTED, 'more group')} (-f json lists all)"


def _place(group: GroupStart, beyond: Sequence[GroupBeyond]) -> str:
    """Return the queues that are about a group: `TopicA queue 0 (offset 51, maximum 20)`, `9 queues of 2 topics`."""
    topics = sorted({topic for topic, _ in group.queues})
    if len(group.queues) > 1:
        of = _clipped(topics[0]) if len(topics) == 1 else count(len(topics), "topic")
        return f"{count(len(group.queues), 'queue')} of {of}"
    ((topic, queue_id),) = group.queues
    ends = [one for one in beyond if (one.group, one.topic, one.queue_id) == (group.group, topic, queue_id)]
    far = "".join(f" (offset {group_digits(one.offset)}, maximum {group_digits(one.max_offset)})" for one in ends)
    return f"{_clipped(topic)} queue {queue_id}{far}"


# --- tables -------------------------------------------------------------------------------------------


def _loss_lines(outcome: Outcome, zone: tzinfo) -> Iterator[str]:
    """Yield the table of what is lost by topic, the largest first, and its sum."""
    losses = outcome.losses
    if not losses.messages:
        return
    topics = sorted(losses.by_topic, key=lambda topic: (-losses.by_topic[topic], topic))
    folded = topics[_TOPICS:] if len(topics) > _TOPICS + 1 else []
    shown = topics[: len(topics) - len(folded)]
    rows: list[tuple[str, ...]] = [("lost", "records", "bytes", "queue units", "first lost record")]
    rows += [_loss_row(f"  {_clipped(topic)}", [topic], losses, zone) for topic in shown]
    if folded:
        rows.append(_loss_row(f"  {len(folded)} more topics", folded, losses, zone))
    intact = f"{group_digits(losses.intact)} of the {group_digits(losses.messages)} are intact on disk now"
    if outcome.verdict is Verdict.EMPTY:
        intact += "; the broker begins without them"
    whole = (group_digits(number) for number in (losses.messages, losses.bytes, losses.units))
    *lines, last = aligned([*rows, ("  all", *whole, "")], "<>>>>")
    yield from lines
    if cell_width(last) + 4 + len(intact) <= line_width():
        yield f"{last}    {intact}"
    else:
        yield from (last, f"  {intact}")


def _replica_lines(replica: InReplica, listing: str) -> Iterator[str]:
    """Yield what another store has of the lost records, by topic, and the command that lists what it has not."""
    lost = replica.there + replica.missing
    by_id = f"; {group_digits(replica.by_id)} of them elsewhere in its log, by their ids" if replica.by_id else ""
    yield from SCREEN.rows(
        "replica", f"{replica.name} has {group_digits(replica.there)} of the {group_digits(lost)} lost records{by_id}"
    )
    if number := replica.not_looked_for:
        yield from SCREEN.rows("", f"{group_digits(number)} are not at their place; their ids were not looked for")
    if not replica.missing:
        return
    topics = sorted(replica.missing_by_topic, key=lambda topic: (-replica.missing_by_topic[topic], topic))
    rows: list[tuple[str, ...]] = [("not there", "records", "there")]
    for topic in topics[:_TOPICS]:
        numbers = replica.missing_by_topic[topic], replica.by_topic[topic]
        rows.append((f"  {_clipped(topic)}", *map(group_digits, numbers)))
    yield from aligned(rows, "<>>")
    if len(topics) > _TOPICS:
        yield f"  {count(len(topics) - _TOPICS, 'more topic')} (-f json lists all)"
    yield from SCREEN.command("list them", listing)


def _loss_row(label: str, topics: Sequence[str], losses: Losses, zone: tzinfo) -> tuple[str, ...]:
    numbers = (
        sum(found.get(topic, 0) for topic in topics)
        for found in (losses.by_topic, losses.bytes_by_topic, losses.units_by_topic)
    )
    first = min((losses.first_by_topic[topic] for topic in topics if topic in losses.first_by_topic), default=None)
    return (label, *map(group_digits, numbers), "" if first is None else time_words(first, zone))


def _queue_table(queues: Sequence[QueueOutcome]) -> Iterator[str]:
    """Yield the queues that change, those with the most changes first."""
    changed = [
        queue
        for queue in queues
        if queue.cut or queue.added or queue.given_twice or queue.min_after != queue.min_before
    ]
    if not changed:
        return
    changed.sort(key=lambda queue: -(queue.cut + queue.added + queue.given_twice))
    rows: list[tuple[str, ...]] = [("queue", "id", "minimum", "becomes", "maximum", "becomes", "cut", "added", "twice")]
    for queue in changed[:_QUEUES]:
        ends = (queue.min_before, queue.min_after, queue.max_before, queue.max_after)
        numbers = (queue.queue_id, *ends, queue.cut, queue.added, queue.given_twice)
        rows.append((f"  {_clipped(queue.topic)}", *map(group_digits, numbers)))
    yield from aligned(rows, "<>>>>>>>>")
    if len(changed) > _QUEUES:
        yield f"  {count(len(changed) - _QUEUES, 'more queue')} (-f json lists all)"


# --- other ways ---------------------------------------------------------------------------------------


def _way_lines(forecast: Forecast) -> Iterator[str]:
    """Yield the better ways to start, and name the others."""
    if not forecast.instead:
        return
    better = [way for way in forecast.instead if way.is_better]
    others = [way for way in forecast.instead if not way.is_better]
    yield "instead (nothing was changed; each choice was worked out by the same rules)"
    widths = [cell_width(escape(way.way)) for way in better]
    room = line_width() // 2
    aside = Screen(indent=max((width for width in widths if width <= room), default=2) + 2, lead=2, cut=True)
    for way, width in zip(better[:_WAYS], widths, strict=False):
        if width > room:
            yield from (f"  {line}" for line in fold(escape(way.way), line_width() - 2, cut=True))
        scan = "" if way.outcome.scan_start is None else f"scan from segment {way.outcome.scan_start}: "
        yield from aside.rows("" if width > room else way.way, f"{scan}{_price_words(way)}")
    if len(better) > _WAYS:
        yield f"  and {count(len(better) - _WAYS, 'more way')} (-f json lists all)"
    named = [f"{way.way} ({_price_words(way)})" for way in others[:_WAYS]]
    if len(others) > _WAYS:
        named.append(f"{group_digits(len(others) - _WAYS)} more")
    label = "not better:" if better else "no choice is better:"
    yield from Screen(indent=len(label) + 1, lead=2, cut=True).rows(label, ", ".join(named))


def _salvage_words(price: SalvagePrice) -> str:
    if price.refused is not None:
        return f"no new store: {price.refused}"
    lost = []
    if price.aside:
        lost.append(f"{count(price.aside, 'place')} not taken over, {describe_size(price.aside_bytes)}")
    if price.lost_offsets:
        lost.append(f"{count(price.lost_offsets, 'queue offset')} lost")
    inexact = f", {group_digits(price.inexact)} of them store times that are known roughly" if price.inexact else ""
    repaired = f"; {count(price.repaired, 'field')} repaired with proof{inexact}" if price.repaired else ""
    gone = ", ".join(lost) or "nothing is lost"
    return (
        f"a new store for RocketMQ {price.release}: {gone}{repaired}; it is made only if its start loses nothing more"
    )


def _price_words(way: Alternative) -> str:
    others = {Verdict.REFUSES: "will not start", Verdict.UNKNOWN: "cannot tell"}
    if way.outcome.verdict in others:
        return others[way.outcome.verdict]
    starts = "starts empty" if way.outcome.verdict is Verdict.EMPTY else f"loses {loss_words(way.outcome)}"
    return "; ".join((starts, *unit_words(way), *way.remedy.costs))


# --- all versions -------------------------------------------------------------------------------------

SHORT_REASONS = {
    "zero": "zeros",
    "magic": "no magic code",
    "v2": "V2 record unknown",
    "short": "segment ends",
    "size": "TOTALSIZE too large",
    "size_negative": "TOTALSIZE negative",
    "memory": "TOTALSIZE over the heap",
    "field_size": "length of a field",
    "body_crc": "body CRC",
    "duplication_info": "DUP_INFO",
    "delay": "DELAY no number",
    "property_crc": "property CRC",
    "length": "TOTALSIZE not the sum",
    "inner_batch": "INNER_NUM no number",
    "offset": "PHYSICALOFFSET",
    "blank_size": "blank record inside",
    "entry_magic": "entry: magic code",
    "entry_size": "entry: size",
    "entry_place": "entry: place",
    "entry_order": "entry: index",
}
"""Why a scan ends, in the last column of the table of releases; `forecast.check.REASONS` in few words."""

_COLUMNS = ("broker", "starts", "scan from", "new end", "lost", "index files deleted", "stops because")


def era_table(forecast: Forecast) -> Iterator[str]:
    """Yield a line for each run of releases that look the same in it."""
    runs = [(row, list(run)) for row, run in groupby(forecast.outcomes, key=_era_row)]
    rows = [((span_of(run), *cells), reason) for (cells, reason), run in runs]
    lines = list(aligned([_COLUMNS[:-1], *(row for row, _ in rows)], "<<>>>>"))
    start = max(map(cell_width, lines)) + 3
    for line, reason in zip(lines, chain((_COLUMNS[-1],), (why for _, why in rows)), strict=True):
        yield from Screen(indent=start).rows(line, reason)
    refusals = [outcome.refusal for outcome in forecast.outcomes if outcome.refusal]
    refused = map(refusal_words, refusals)
    yield from SCREEN.several("refuses", dict.fromkeys(refused))
    unknown = (outcome.unknown for outcome in forecast.outcomes if outcome.unknown is not None)
    yield from SCREEN.several("not known", dict.fromkeys(unknown))


def _era_row(outcome: Outcome) -> tuple[tuple[str, ...], str]:
    if outcome.unknown is not None:
        return ("?", "", "", "", ""), "not known"
    scan = "" if outcome.scan_start is None else group_digits(outcome.scan_start)
    if outcome.refusal is not None:
        return ("no", scan, "", "", ""), outcome.refusal.rule.replace("_", " ")
    rejected = outcome.rejected
    numbers = (group_digits(number) for number in (outcome.end_offset, outcome.losses.messages))
    row = ("yes", scan, *numbers, group_digits(len(outcome.deleted_index_files)))
    return row, "not stopped" if rejected is None else SHORT_REASONS[rejected.rule]


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _some(texts: Sequence[str]) -> str:
    more = f" and {group_digits(len(texts) - _LISTED)} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def _clipped(text: str) -> str:
    return clip(escape(text), _WIDEST)
