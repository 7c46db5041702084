"""Pictures from documents: the report of `verify`, with those of `forecast` and `groups`; or from what a screen knows.

A document may come from a file, and may be hostile: what does not fit the log is left out.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rmqinspect.commitlog.log_runs import KINDS, MOST_RUNS, Run, folded, painted
from rmqinspect.forecast.outcome import Forecast, Verdict
from rmqinspect.picture.model import (
    MARKS,
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
from rmqinspect.store.model import Store
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
    marks = [*_start_marks(told, strips, start, end, log_end), *_times(log.checkpoint, report.segments, start, end)]
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
    return max(worst, key=lambda version: _number(version.get("lost_messages")) or 0, default={})


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# --- what the next start does -----------------------------------------------------------------------------


def _start_marks(
    told: Mapping[str, Any], strips: Sequence[Strip], start: int, end: int, log_end: int | None
) -> Iterator[Mark]:
    """Yield what the scan of the next start reads, what it gives up and deletes, and where the log ends."""
    era = told.get("era")
    by = f" ({era})" if isinstance(era, str) and era else ""
    begin, new_end = _number(told.get("scan_start_base")), _number(told.get("end_offset"))
    rejected = told.get("rejected")
    stop = _number(rejected.get("physical_offset")) if isinstance(rejected, dict) else new_end
    if begin is not None and start <= begin < end:
        until = end if stop is None else min(max(stop, begin), end)
        yield Mark("scan", begin, until, f"{MARKS['scan']}{by}")
    deleted = told.get("deleted_segments")
    bases = {base for base in deleted if _number(base) is not None} if isinstance(deleted, list) else set()
    gone = [strip for strip in strips if strip.start in bases]
    last = min(max((strip.end for strip in gone), default=0) if log_end is None else log_end, end)
    if new_end is not None and start <= new_end < last:
        yield Mark("cut", new_end, last, f"{MARKS['cut']}{by}")
        yield Mark("new_end", new_end, new_end, f"{MARKS['new_end']}{by}")
    for first, behind, number in _neighbours(gone):
        words = MARKS["deleted"] if number > 1 else MARKS["deleted"].replace("these segments", "this segment")
        yield Mark("deleted", first, min(behind, end), f"{words}{by}")
    if log_end is not None and start <= log_end <= end and start < end:
        yield Mark("end", log_end, log_end, MARKS["end"])


def _neighbours(strips: Iterable[Strip]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, number) of the segments that follow each other without a hole."""
    first = behind = number = 0
    for strip in strips:
        if number and strip.start == behind:
            behind, number = strip.end, number + 1
            continue
        if number:
            yield first, behind, number
        first, behind, number = strip.start, strip.end, 1
    if number:
        yield first, behind, number


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
    offset, group = _number(row.get("consumer_offset")), row.get("group")
    if offset is None or not isinstance(group, str):
        return None
    span = max(queue.max_offset - queue.min_offset, 1)
    done = min(max(offset - queue.min_offset, 0), span)
    return Tick(group, offset, low + (high - low) * done // span, _number(row.get("lag")))


# --- of a store without a report: what forecast and info know -----------------------------------------------


def picture_of_start(store: Store, forecast: Forecast, name: str) -> Picture | None:
    """Return the picture that `forecast` shows: segments, what its scan has read, where the log ends and is cut."""
    outcome = forecast.worst
    strips = [Strip(segment.name, segment.base, segment.end) for segment in store.segments]
    if not strips:
        return None
    start, end = strips[0].start, max(strip.end for strip in strips)
    told: dict[str, Any] = {"era": outcome.era, "scan_start_base": outcome.scan_start}
    starts = outcome.verdict in (Verdict.SAFE, Verdict.LOSES, Verdict.EMPTY)
    log_end = None
    if starts:
        log_end = max(outcome.losses.end or 0, outcome.end_offset)
        told |= {"end_offset": outcome.end_offset, "deleted_segments": outcome.deleted_segments}
    scanned, damage = [], []
    if outcome.rejected is not None:
        place = outcome.rejected.physical_offset
        told["rejected"] = {"physical_offset": place}
        if outcome.rejected.rule != "v2":  # records that an old release cannot read are no damage
            damage = [Run(place, place + 1, "damage")]
    marks = list(_start_marks(told, strips, start, end, log_end))
    scanned = [Run(mark.start, mark.end, "records") for mark in marks if mark.kind == "scan"]
    return _known_in_part(name, strips, [scanned, damage], marks, log_end)


def picture_of_ends(
    store: str, segments: Sequence[Strip], log_end: int | None, rest: Iterable[Run], start: Forecast | None
) -> Picture | None:
    """Return the picture that `info` shows: segments, what lies behind the log's end, and what the next start does."""
    if not segments:
        return None
    marks: list[Mark] = []
    if start is not None and start.worst.verdict in (Verdict.SAFE, Verdict.LOSES, Verdict.EMPTY):
        first, end = segments[0].start, max(strip.end for strip in segments)
        told = {"era": start.worst.era, "end_offset": start.worst.end_offset}
        marks = list(_start_marks(told, segments, first, end, log_end))
    return _known_in_part(store, segments, [list(rest)], marks, log_end)


def _known_in_part(
    store: str, strips: Sequence[Strip], layers: Sequence[list[Run]], marks: Sequence[Mark], log_end: int | None
) -> Picture:
    """Return a picture of a log of which little was read; behind its end the files are preallocated."""
    start, end = strips[0].start, max(strip.end for strip in strips)
    files = [Run(strip.start, strip.end, "unread") for strip in strips]
    behind = (
        []
        if log_end is None
        else [
            Run(max(strip.start, log_end), strip.end, "zeros")
            for strip in strips
            if strip.end > max(strip.start, log_end)
        ]
    )
    runs = folded(painted([files, behind, *layers], start, end))
    cut = next((mark.start for mark in marks if mark.kind == "cut"), None)
    return Picture(store, start, end, strips, runs, marks, gives_up_from=cut, log_end=log_end)
