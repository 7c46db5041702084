"""All documents about one store that its part of the page is made of.

    report        what `verify` writes                     the only one that a page of a written report has
    forecast      what `forecast -f json` writes, with other ways to start
    usage, flow   bytes by topic and kind; messages and bytes by topic and time
    groups        how far consumer groups are
    transactions, delays    counts
    events        what happened when: moments on the time line

They hold only what JSON has, and are capped here: what a page cannot show is counted. A part that could not be made is
null, and `unread` says why.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rmqinspect.broker.delays import STATES as DELAY_STATES
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.document import as_object
from rmqinspect.errors import Unreadable
from rmqinspect.find.consumers import GroupSurvey, GroupTopic, add_times, survey_groups
from rmqinspect.find.summaries import DelaySummary, TransactionSummary
from rmqinspect.forecast.document import Saving, document
from rmqinspect.page.sums import PageFold, flow_of, lost_ranges, times_at
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import Store
from rmqinspect.store.reader import modified_at
from rmqinspect.tables.delays import DelayChoice, Delays, unqueued_words
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.group_positions import Position
from rmqinspect.tables.request import Request
from rmqinspect.tables.transactions import transactions_of
from rmqinspect.tables.usage import UsageSums, usage_batches
from rmqinspect.text import group_digits
from rmqinspect.times import format_micros, format_millis, to_micros
from rmqinspect.verify.result import VerifyResult

Document = dict[str, Any]

_TOPICS, _GROUPS, _OTHERS = 30, 60, 12  # listed of usage, of groups, of topics that no group consumes
_COLUMNS, _COLOURS = 120, 6  # of the time line: columns, and topics that are told apart
_MARKS = 40  # moments on it
_TICKS = 400  # offsets of groups on the map
_TIMES = frozenset({"oldest_unconsumed", "inflow"})


def written_documents(name: str, report: Mapping[str, Any], start: Mapping[str, Any]) -> Document:
    """Return the documents of a report that `verify` wrote: it and nothing else; `start`: its worst version."""
    return {"store": name, "from_report": True, "report": dict(report), "start": dict(start), "unread": []}


def documents_of(
    name: str, result: VerifyResult, report: Mapping[str, Any], request: Request, saving: Saving
) -> Document:
    """Return the documents of a store that was just verified with a `PageFold`; it is still open.

    What could not be read is told through the request, too. Ctrl-C leaves out what is not made yet; after an
    interrupted run only what takes no further reading is made.
    """
    unread: list[str] = []

    def note(message: str) -> None:
        unread.append(message)
        if request.on_unreadable is not None:
            request.on_unreadable(message)

    asked = Request(jobs=request.jobs, on_unreadable=note, on_remark=request.on_remark)
    told: Document = {"store": name, "from_report": False, "report": dict(report)}
    start = result.next_start
    told["forecast"] = None if start is None else document(start, saving=saving)
    parts: dict[str, Callable[[], Document | None]] = {}
    fold = result.fold
    if isinstance(fold, PageFold) and result.store.segments:
        parts["usage"] = partial(_usage, result, fold)
        parts["flow"] = partial(_flow, fold)
        parts["events"] = partial(_events, result, fold)
    told["interrupted"] = result.interrupted_at is not None
    if not told["interrupted"]:
        parts["groups"] = partial(_groups, result.store, asked)
        if isinstance(fold, PageFold) and result.store.segments:
            lost = lost_ranges(result.store, result.accounts)
            parts["transactions"] = partial(_transactions, result.store, asked, fold, lost)
            parts["delays"] = partial(_delays, result.store, asked, fold, lost)
    try:
        for part, make in parts.items():
            try:
                told[part] = make()
            except Unreadable as error:
                note(str(error))
    except KeyboardInterrupt:
        told["interrupted"] = True
        unread.append("interrupted before all was counted")
    told["unread"] = unread
    return told


# --- of the log -------------------------------------------------------------------------------------------


def _usage(result: VerifyResult, fold: PageFold) -> Document:
    """Return the rows of `usage` by topic and kind, and those of `content`."""
    accounts = {account.segment.path: account for account in result.accounts}
    usage = UsageSums(result.store, fold.usage).usage(accounts)
    found: Document = {}
    for batch in usage_batches(usage, _TOPICS, ("topic", "kind", "content")):
        rows = batch.to_pylist()
        found[rows[0]["dimension"]] = [
            {name: row[name] for name in ("value", "covers", "records", "messages", "bytes", "share")}
            | {"last": _time(row["last_store_timestamp"])}
            for row in rows
        ]
    found["topics"] = len(usage.dimensions["topic"].keys)
    return found


def _flow(fold: PageFold) -> Document | None:
    flow = flow_of(fold.flow, _COLUMNS, _COLOURS)
    return None if flow is None else as_object(flow)


def _events(result: VerifyResult, fold: PageFold) -> Document:
    """Return the moments of the time line, by time: ms since 1970, kind and words."""
    store = result.store
    found: list[Document] = []

    def add(time: int | None, kind: str, text: str) -> None:
        if time:
            found.append({"time": time, "kind": kind, "text": text})

    for file in store.files:
        if file.name == "abort":
            add(modified_at(file) // 1_000_000, "start", "the last start of a broker, by the time of the file abort")
    try:
        stop = read_checkpoint(store).get("physic_msg_timestamp")
    except Unreadable:  # the report says so
        stop = None
    add(stop, "checkpoint", "the newest message that was on disk for certain, by the checkpoint")
    places = [finding for finding in result.findings.rows if finding.severity == "error" and finding.physical_offset]
    for finding, time in zip(
        places[:_MARKS], times_at(fold.delays, [one.physical_offset or 0 for one in places[:_MARKS]]), strict=True
    ):
        at = finding.timestamp if finding.timestamp is not None else time
        add(at, "damage", f"{finding.code} at {group_digits(finding.physical_offset or 0)}")
    return {"moments": sorted(found, key=lambda one: one["time"]), "more": max(0, len(places) - _MARKS)}


def _transactions(store: Store, request: Request, fold: PageFold, lost: Sequence[tuple[int, int]]) -> Document:
    found = transactions_of(store, request, fold.transactions, lost)
    summary = TransactionSummary(found, Selection())
    oldest = summary.oldest()
    return {
        "halves": len(summary),
        "copies": summary.copies,
        "states": summary.by_state(),
        "oldest": None if oldest is None else _time(oldest.born),
        "checks": None if oldest is None else oldest.check_times,
        "check_offset": found.check_offset,
        "half_topic_end": summary.half_topic_end(),
        "remarks": list(found.remarks()),
    }


def _delays(store: Store, request: Request, fold: PageFold, lost: Sequence[tuple[int, int]]) -> Document:
    delays = Delays(store, request, DelayChoice(), fold.delays, max((end for _, end in lost), default=0))
    summary = DelaySummary(0, with_system=False)
    for batch in delays.rows():
        summary.take(batch)
    states = {state: summary.total(number) for number, state in enumerate(DELAY_STATES)}
    due = min((place.next_due for place in summary.places.values() if place.next_due is not None), default=None)
    return {
        "messages": sum(states.values()),
        "states": states,
        "next_due": None if due is None else format_micros(due),
        "now": format_millis(delays.now) if delays.now else None,
        "topics": [[topic, number] for topic, number in summary.topics.most_common(_OTHERS)],
        "more_topics": max(0, len(summary.topics) - _OTHERS),
        "system": summary.system,
        "unqueued": unqueued_words(delays) if delays.unqueued else None,
    }


# --- consumer groups --------------------------------------------------------------------------------------


def _groups(store: Store, request: Request) -> Document:
    survey = survey_groups(store, request, lambda _: True)
    lines = survey.lines
    add_times(store, lines[:_GROUPS], Request(columns=_TIMES, on_unreadable=request.on_unreadable))
    users = [line for line in lines if line.kind != "system"]
    return {
        "known": bool(survey.files),
        "queues_known": survey.queues > 0,
        "why_not": why_unknown(store, "consumer offsets") or why_unknown(store, "queues"),
        "problems": list(survey.problems),
        "groups": len(survey.groups),
        "lag": sum(line.lag for line in users),
        "lost": sum(line.lost for line in users),
        "without_queue": len({line.group for line in users if line.no_queue}),
        "lines": [_line(line) for line in lines[:_GROUPS]],
        "more": max(0, len(lines) - _GROUPS),
        "offsets": [_offsets(survey, file.file, file.written, is_copy=file.is_copy) for file in survey.files],
        **{kind: _topics(survey, kind) for kind in ("unconsumed", "dead_letters", "retries")},
        "positions": [_position(one) for line in users[:_GROUPS] for one in line.positions][:_TICKS],
    }


def _line(line: GroupTopic) -> Document:
    consumed = sum(
        max(0, min(one.entry.offset, one.queue.max_offset) - one.queue.first_kept)
        for one in line.positions
        if one.queue is not None
    )
    return {
        "group": line.group,
        "topic": line.topic,
        "kind": line.kind,
        "queues": len(line.positions),
        "consumed": consumed,
        "lag": None if line.has_no_queue else line.lag,
        "lost": line.lost,
        "beyond": line.beyond,
        "oldest": None if line.oldest_unconsumed is None else format_micros(line.oldest_unconsumed),
        "inflow": line.inflow,
    }


def _position(one: Position) -> Document:
    """Return where a group is in a queue, for the map."""
    entry = one.entry
    return {
        "group": entry.group,
        "topic": entry.topic,
        "queue_id": entry.queue_id,
        "consumer_offset": entry.offset,
        "lag": one.lag,
    }


def _offsets(survey: GroupSurvey, file: str, written: int | None, *, is_copy: bool) -> Document:
    told = None if written is None else format_millis(written)
    last = None if survey.last_time is None else format_millis(survey.last_time)
    return {"file": file, "written": told, "is_copy": is_copy, "last_message": last}


def _topics(survey: GroupSurvey, kind: str) -> Document:
    some = sorted(getattr(survey, kind), key=lambda one: -one.messages)
    shown: Iterator[list[Any]] = ([one.topic, one.messages] for one in some[:_OTHERS])
    return {"topics": list(shown), "more": max(0, len(some) - _OTHERS)}


def _time(moment: Any) -> str | None:
    return None if moment is None else format_micros(to_micros(moment))
