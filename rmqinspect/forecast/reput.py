"""Dispatch from where the queues end, before the broker serves: it does not trust what it reads, and skips.

    segment   |rec|rec|rec|?????|rec|rec|blank|     the rest of the readable part is skipped, its records get no unit
              ^ begin     ^ no record

The check is that of the scan without the body's CRC. Where the lengths of a record do not add up, the parser goes on
where it stopped, while the counter goes on by TOTALSIZE: from then on both differ, and the skip that ends the segment
overshoots into the next one.

Source: DefaultMessageStore.ReputMessageService#doReput, MappedFileQueue#findMappedFileByOffset, CommitLog#rollNextFile;
RocketMQ 4.5.0 to 5.5.0.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rmqinspect.broker.eras import Rules
from rmqinspect.forecast.scan import Batch, LogScanner
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.model import Segment, Store


def reput(
    store: Store,
    segments: Sequence[Segment],
    rules: Rules,
    settings: Settings,
    begin: int,
    end: int,
    take: Callable[[Batch], None],
) -> int | None:
    """Dispatch the records from `begin` to the end of the log; return where that gets stuck, None at the end.

    `segments` are those that are left, `take` gets the records.
    """
    settings = replace(settings, check_crc_on_recover=False, duplication_enable=False)
    size, offset = settings.mapped_file_size_commit_log, begin
    while offset < end:
        segment = next((s for s in segments if s.base <= offset < s.base + size), None)
        if segment is None:
            return offset
        readable = end if segment is segments[-1] else segment.base + size
        scanner = LogScanner(store, [segment], settings, read_body=False)
        following = _through(scanner, rules, settings, offset, readable, take)
        if following is None or following <= offset:
            return offset
        offset = following
    return None


def _through(
    scanner: LogScanner,
    rules: Rules,
    settings: Settings,
    offset: int,
    readable: int,
    take: Callable[[Batch], None],
) -> int | None:
    """Dispatch what a segment has from an offset on; return where dispatch goes on, None if it never does."""
    segment, size = scanner.segments[0], settings.mapped_file_size_commit_log
    first = parser = offset % size
    limit = readable - segment.base
    if first >= limit:
        return None  # nothing is readable there
    offset = segment.base + first  # another one where the segment's name is no multiple of its size

    def take_readable(batch: Batch) -> None:
        inside = batch.records.base + batch.records.ends <= readable
        take(
            batch
            if inside.all()
            else replace(batch, records=batch.records.select(inside), numbers=batch.numbers[inside])
        )

    counted = 0
    while counted < limit - first:
        run = scanner.scan(rules, 0, parser, clean=True, take=take_readable)
        dispatched = min(run.position, limit) - parser
        offset, counted = offset + dispatched, counted + dispatched
        if run.position >= limit:
            break
        if run.check.is_blank:
            return offset + size - offset % size
        if run.check.is_mismatch and run.position + run.check.parsed <= limit:
            offset, parser = offset + run.check.size, run.position + run.check.parsed
        elif settings.is_slave:
            return None
        else:
            return offset + limit - first - counted
    return offset
