"""Pictures from what a screen knows: the marks of the next start, and logs of which little was read.

`forecast` and `info` draw these; their start-up loads nothing of `verify`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rmqinspect.commitlog.log_runs import Run, folded, painted
from rmqinspect.forecast.outcome import Forecast, Verdict
from rmqinspect.picture.model import MARKS, Mark, Picture, Strip
from rmqinspect.store.model import Store


def number_of(value: object) -> int | None:
    """Return a value of a document if it is a number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def start_marks(
    told: Mapping[str, Any], strips: Sequence[Strip], start: int, end: int, log_end: int | None
) -> Iterator[Mark]:
    """Yield what the scan of the next start reads, what it gives up and deletes, and where the log ends."""
    era = told.get("era")
    by = f" ({era})" if isinstance(era, str) and era else ""
    begin, new_end = number_of(told.get("scan_start_base")), number_of(told.get("end_offset"))
    rejected = told.get("rejected")
    stop = number_of(rejected.get("physical_offset")) if isinstance(rejected, dict) else new_end
    if begin is not None and start <= begin < end:
        until = end if stop is None else min(max(stop, begin), end)
        yield Mark("scan", begin, until, f"{MARKS['scan']}{by}")
    deleted = told.get("deleted_segments")
    bases = {base for base in deleted if number_of(base) is not None} if isinstance(deleted, list) else set()
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
    marks = list(start_marks(told, strips, start, end, log_end))
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
        marks = list(start_marks(told, segments, first, end, log_end))
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
