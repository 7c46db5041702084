"""Pictures from documents: the report of `verify`, with those of `forecast` and `groups`.

A document may come from a file, and may be hostile: what does not fit the log is left out.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rmqinspect.commitlog.log_runs import KINDS, MOST_RUNS, Run, folded, painted
from rmqinspect.picture.model import (
    MOST_QUEUES,
    MOST_TICKS,
    TIMES,
    IndexRow,
    Mark,
    Picture,
    QueueRow,
    Strip,
    Tick,
)
from rmqinspect.picture.starts import number_of, start_marks
from rmqinspect.times import to_micros
from rmqinspect.verify.findings import FindingRow, moment
from rmqinspect.verify.log_map import LogMap, MapCheckpoint, MapQueue, is_damage
from rmqinspect.verify.report import Report, SegmentAccount

# --- from the report of verify ----------------------------------------------------------------------------


_SEGMENT_NAME = re.compile("[0-9]{20}")


def picture_of(
    report: Report,
    forecast: Mapping[str, Any] | None = None,
    groups: Iterable[Mapping[str, Any]] = (),
    most_runs: int = MOST_RUNS,
) -> Picture | None:
    """Return the picture of a store from its report; None if the report has none, as those of earlier versions.

    `forecast` is the document of `forecast`; without it the report says what the next start does. `groups` are rows of
    the table groups. A page of many stores gives each fewer runs.
    """
    log = report.map
    if log is None:
        return None
    runs, start, end = _runs(log, most_runs)
    strips = [strip for strip in _strips(report) if start <= strip.start < strip.end <= end]
    told = _outcome(report, forecast)
    log_end = None if report.next_start is None else report.next_start.log_end
    if log_end is None:
        log_end = max((run.end for run in runs if run.kind in ("records", "damage", "bridged")), default=None)
    marks = [*start_marks(told, strips, start, end, log_end), *_times(log.checkpoint, report.segments, start, end)]
    queues, left_out = _queue_rows(log.queues, groups, start, end)
    cut = next((mark.start for mark in marks if mark.kind == "cut"), None)
    index = [
        IndexRow(one.file, one.entries, max(one.first_physical_offset, start), min(one.last_physical_offset, end))
        for one in log.index_files
        if one.first_physical_offset < end and start <= one.last_physical_offset
    ]
    return Picture(
        report.run.store,
        start,
        end,
        strips,
        runs,
        marks,
        queues,
        left_out,
        [row for row in index if row.start <= row.end],
        _codes(runs, report.findings),
        cut,
        log_end,
        report.run.words,
    )


def _codes(runs: Sequence[Run], findings: Iterable[FindingRow]) -> dict[int, str]:
    """Return the codes of the findings about each damaged run, by its start."""
    damaged = [run for run in runs if run.kind == "damage"]
    starts = [run.start for run in damaged]
    codes: dict[int, list[str]] = {}
    for row in findings:
        if not is_damage(row) or row.physical_offset is None:
            continue
        behind = row.physical_offset + max(row.length or 1, 1)
        for run in damaged[max(bisect_right(starts, row.physical_offset) - 1, 0) : bisect_left(starts, behind)]:
            known = codes.setdefault(run.start, [])
            if row.physical_offset < run.end and row.code not in known:
                known.append(row.code)
    return {start: ", ".join(known) for start, known in codes.items() if known}


def _runs(log: LogMap, most: int) -> tuple[list[Run], int, int]:
    """Return the runs of a report and what they cover; a report that was tampered with may have any."""
    given = [Run(run.start, run.end, run.kind, run.mixed) for run in log.runs if 0 <= run.start < run.end]
    if not given:
        return [], 0, 0
    given = [run if run.kind in KINDS else run._replace(kind="unread") for run in given]
    start, end = min(run.start for run in given), max(run.end for run in given)
    return folded(painted([given], start, end, "unread"), most), start, end


def _strips(report: Report) -> list[Strip]:
    """Return the segments in log order: where they begin by the byte account, else by their names."""
    bases = {account.file: account.base for account in report.segments}
    strips = []
    for file in report.inputs:
        if file.kind in ("segment", "dledger"):
            name = file.file.rpartition("/")[2]
            base = bases.get(file.file, int(name) if _SEGMENT_NAME.fullmatch(name) else -1)
            strips.append(Strip(file.file, base, base + file.size))
    return sorted(strips, key=lambda strip: strip.start)


def _outcome(report: Report, forecast: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the document of the worst outcome of the next start, {} without any."""
    if forecast is not None:
        return forecast
    start = report.next_start
    if start is None:
        return {}
    worst = [version for version in start.versions if version.get("verdict") == start.verdict]
    return max(worst, key=lambda version: number_of(version.get("lost_messages")) or 0, default={})


# --- times of the checkpoint ------------------------------------------------------------------------------


def _times(
    checkpoint: MapCheckpoint | None, accounts: Sequence[SegmentAccount], start: int, end: int
) -> Iterator[Mark]:
    """Yield between which places of the log the records of a time of the checkpoint are: as near as segments tell."""
    known = [
        (_micros(first), _micros(last), account.base, account.base + account.file_size)
        for account in accounts
        if (first := account.first_store_timestamp) is not None and (last := account.last_store_timestamp) is not None
    ]
    for name, words in TIMES.items():
        text = getattr(checkpoint, name, None)
        if text is None or not known:
            continue
        try:
            time = _micros(text)
        except ValueError:
            continue
        after = max((base for first, _, base, _ in known if first is not None and first <= time), default=start)
        before = min((stop for _, last, _, stop in known if last is not None and last > time), default=end)
        if before <= after:
            before = after
        if start <= after <= before <= end:
            yield Mark("time", after, before, f"the checkpoint {words}: records up to {text} end between these places")


def _micros(text: str) -> int:
    return to_micros(moment(text))


# --- queues -----------------------------------------------------------------------------------------------


def _queue_rows(
    queues: Sequence[MapQueue], groups: Iterable[Mapping[str, Any]], start: int, end: int
) -> tuple[list[QueueRow], int]:
    """Return the rows of the largest queues, in their order, and how many are left out."""
    inside = [
        (queue, queue.first_physical_offset, queue.last_physical_offset)
        for queue in queues
        if queue.first_physical_offset is not None
        and queue.last_physical_offset is not None
        and start <= queue.first_physical_offset < end
    ]
    largest = sorted(inside, key=lambda one: -one[0].units)[:MOST_QUEUES]
    shown = {(queue.topic, queue.queue_id) for queue, _, _ in largest}
    ticks: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in groups:
        topic, queue_id = row.get("topic"), row.get("queue_id")
        if isinstance(topic, str) and isinstance(queue_id, int) and (topic, queue_id) in shown:
            ticks.setdefault((topic, queue_id), []).append(row)
    rows, left = [], MOST_TICKS
    for queue, first, last in inside:
        if (queue.topic, queue.queue_id) not in shown:
            continue
        low, high = first, min(max(first, last), end)
        own = [_tick(row, queue, low, high) for row in ticks.get((queue.topic, queue.queue_id), ())]
        marks = tuple(tick for tick in own if tick is not None)[:left]
        left -= len(marks)
        name = f"{queue.topic} {queue.queue_id}"
        rows.append(QueueRow(name, queue.min_offset, queue.max_offset, queue.units, low, high, marks))
    return rows, len(inside) - len(rows)


def _tick(row: Mapping[str, Any], queue: MapQueue, low: int, high: int) -> Tick | None:
    offset, group = number_of(row.get("consumer_offset")), row.get("group")
    if offset is None or not isinstance(group, str):
        return None
    span = max(queue.max_offset - queue.min_offset, 1)
    done = min(max(offset - queue.min_offset, 0), span)
    return Tick(group, offset, low + (high - low) * done // span, number_of(row.get("lag")))
