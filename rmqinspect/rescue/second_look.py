"""Records that only the new store contradicts: they prove themselves, and what around them was damaged is gone.

first time      looked at again as suspects, which are repaired if something proves what they were
then            left aside: what a broker would not serve must not end the run
"""

from collections.abc import Sequence

from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.rescue.sources import Composite, Range, Source
from rmqinspect.verify.result import VerifyResult

_CONTRADICTIONS = ("CL-TIME", "CL-OFFSET", "CL-CRC-BODY", "CL-CRC-RECORD", "CQ-MISSING")


def contradicted_in(proof: VerifyResult) -> set[int]:
    """Return the places of records that the verification of the new store finds wrong by what is around them."""
    return {
        finding.physical_offset
        for finding in proof.findings.rows
        if finding.severity == "error" and finding.code in _CONTRADICTIONS and finding.physical_offset is not None
    }


def suspect(sources: Sequence[Source], places: set[int]) -> None:
    """Have records looked at as suspects, in each source that has them sound."""
    for source in sources:
        for place in places:
            if any(one.start <= place < one.end for one in source.sound):
                source.suspects[place] = "CL-TIME"


def take_out(composite: Composite, sources: Sequence[Source], place: int) -> Range | None:
    """Take the record at a place out of the sound bytes; None where it is in none."""
    for source in sources:
        with RecordReader(source.store) as log:
            raw = log.content_at(place)
        segment = source.store.segment_at(place)
        lead = 0 if segment is None else segment.lead
        if raw is not None and composite.take_out(one := Range(place - lead, place + len(raw))):
            return one
    return None
