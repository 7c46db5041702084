"""Records that only the new store contradicts: they prove themselves, and what around them was damaged is gone.

first time      looked at again as suspects, which are repaired if something proves what they were
then            not taken over: what a broker would not serve must not end the run
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.rescue.rebuild import Rebuilt
from rmqinspect.rescue.sequences import Queue, read_sequences
from rmqinspect.rescue.sources import Composite, Range, Source
from rmqinspect.verify.result import VerifyResult

_CONTRADICTIONS = ("CL-TIME", "CL-OFFSET", "CL-CRC-BODY", "CL-CRC-RECORD", "CQ-MISSING")


def read_order(sources: Sequence[Source], *, repairs: bool) -> dict[Queue, list[int]]:
    """Note for repair what the order of the records proves; return the places of those that it contradicts."""
    outliers: dict[Queue, list[int]] = defaultdict(list)
    for source in sources:
        found = read_sequences(source)
        if repairs:
            source.proven = found.changes
            for place in found.changes:
                source.suspects.setdefault(place, "CL-QUEUE-OFFSET")
        for place, queue in found.queue_of.items() if not repairs else ():
            outliers[queue].append(place)
        for queue, places in found.outliers.items():
            outliers[queue] += places
    return outliers


def contradicted_in(proof: VerifyResult, outliers: Mapping[Queue, Sequence[int]]) -> set[int]:
    """Return the places of records that the verification of the new store finds wrong by what is around them.

    A record without a unit lies behind one whose offset is too high: where such a one is known, it is that one.
    """
    found: set[int] = set()
    for finding in proof.findings.rows:
        if finding.severity == "error" and finding.code in _CONTRADICTIONS and finding.physical_offset is not None:
            ahead = outliers.get((finding.topic or "", finding.queue_id or 0)) if finding.code == "CQ-MISSING" else None
            found.update(ahead or (finding.physical_offset,))
    return found


def has_copies(rebuilt: Rebuilt) -> bool:
    """Whether queues have offsets without a record."""
    return any(one.copies for one in rebuilt.queues.values())


def suspect(sources: Sequence[Source], places: set[int]) -> None:
    """Have records looked at as suspects, in each source that has them sound."""
    for source in sources:
        for place in places:
            if any(one.start <= place < one.end for one in source.sound):
                source.suspects[place] = "CL-TIME"


def take_all_out(composite: Composite, sources: Sequence[Source], places: Iterable[int]) -> list[Range]:
    """Take the records at some places out of the sound bytes; return those that were in them."""
    return [one for place in sorted(places) if (one := _take_out(composite, sources, place)) is not None]


def _take_out(composite: Composite, sources: Sequence[Source], place: int) -> Range | None:
    """Take the record at a place out of the sound bytes; None where it is in none."""
    for source in sources:
        with RecordReader(source.store) as log:
            raw = log.content_at(place)
        segment = source.store.segment_at(place)
        lead = 0 if segment is None else segment.lead
        if raw is not None and composite.take_out(one := Range(place - lead, place + len(raw))):
            return one
    return None
