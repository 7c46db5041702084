"""The rows of a salvage's receipt, from what the plan of the log holds."""

import os
from collections.abc import Iterator, Sequence

from rmqinspect.rescue import salvage_receipt as document
from rmqinspect.rescue.log_plan import LogPlan, Lost
from rmqinspect.rescue.rebuild import Rebuilt
from rmqinspect.rescue.repair import Change
from rmqinspect.rescue.sources import Source
from rmqinspect.schemas import message
from rmqinspect.store.model import Segment, Store
from rmqinspect.system import uri


def kept_units(rebuilt: Rebuilt, queue: tuple[str, int]) -> int:
    written = rebuilt.queues.get(queue)
    return 0 if written is None else written.end - written.first - written.copies


def source_row(source: Source, taken: int) -> document.SourceRow:
    return document.SourceRow(
        name=source.name,
        path=uri.shown(source.store.paths[0]),
        verdict=source.result.verdict,
        segments=len(source.store.segments),
        sound_bytes=sum(one.end - one.start for one in source.sound),
        taken_bytes=taken,
        differs_from=source.taken_until,
        renamed=[f"{segment.name}: {segment.base:020d}" for segment in _renamed(source.store)],
        stale_bytes=sum(one.end - one.start for one in source.damaged if one.kind == "stale"),
    )


def _renamed(store: Store) -> Iterator[Segment]:
    return (one for one in store.segments if os.path.basename(one.name) != f"{one.base:020d}")


def repairs(log: LogPlan, sources: Sequence[Source]) -> Iterator[document.Repair]:
    for repaired, number in log.repaired:
        segment = sources[number].store.segment_at(repaired.place)
        identity = message.Message.parse(repaired.raw[repaired.lead :])
        for change in repaired.changes:
            yield document.Repair(
                physical_offset=repaired.place + repaired.lead,
                source=sources[number].name,
                file=None if segment is None else segment.name,
                position=None if segment is None else repaired.place - segment.base + _first_byte(change),
                field=change.field,
                bit=None if change.bit is None else change.bit[1],
                before=change.before.hex(),
                after=change.after.hex(),
                proof=change.proof,
                exact=change.exact,
                topic=identity.topic.decode(errors="replace"),
                queue_id=identity.queue_id,
                queue_offset=identity.queue_offset,
            )


def _first_byte(change: Change) -> int:
    return change.at if change.bit is None else change.bit[0]


def blank_row(change: Change) -> document.Repair:
    before, after = change.before.hex(), change.after.hex()
    return document.Repair(
        change.at, None, None, None, change.field, None, before, after, change.proof, True, None, None, None
    )


def aside_row(lost: Lost, sources: Sequence[Source], files: dict[int, str]) -> document.Aside:
    name = None if lost.source is None else sources[lost.source].name
    return document.Aside(
        lost.start, lost.end, lost.why, name, files.get(lost.start), lost.topic, lost.queue_id, lost.queue_offset
    )


def lost_offsets(lost: Sequence[Lost]) -> dict[tuple[str, int], list[int]]:
    """Return the queue offsets of lost messages that are known, by queue, ascending."""
    found: dict[tuple[str, int], set[int]] = {}
    for one in lost:
        is_certain = one.certain and one.topic and one.queue_id is not None and one.queue_offset is not None
        flags = 0 if one.fields is None else one.fields.number("sys_flag")
        if is_certain and flags & message.TRANSACTION_MASK in (0, int(message.SysFlag.TRANSACTION_COMMIT)):
            assert one.topic is not None and one.queue_id is not None and one.queue_offset is not None
            found.setdefault((one.topic, one.queue_id), set()).add(one.queue_offset)
    return {queue: sorted(offsets) for queue, offsets in sorted(found.items())}
