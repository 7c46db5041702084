"""Bytes of a segment by what they are: sums that add up to the file's size."""

from msgspec import Struct, field

from rmqinspect.commitlog.gaps import Gap, merge_gaps
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.store.model import Segment


class ByteAccount(Struct):
    """Bytes and records of a segment, or of one split: `add` takes the events of the scan."""

    segment: Segment
    records: int = 0
    record_bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)  # cut at the borders of splits, as the scan yields them
    first_timestamp: int | None = None  # ms, of the first and the last record
    last_timestamp: int | None = None
    begin: int | None = None  # physical offset of the first record
    end: int | None = None  # physical offset after the last record

    def add(self, event: RecordRun | Gap) -> None:
        """Count a run of records or a gap."""
        if isinstance(event, Gap):
            self.gaps.append(event)
            return
        records = event.records
        self.records += len(records)
        self.record_bytes += int(records.total_size.sum())
        times = records.field("store_timestamp")
        if self.first_timestamp is None:
            self.first_timestamp = int(times[0])
            self.begin = records.base + int(records.starts[0])
        self.last_timestamp = int(times[-1])
        if not event.stale:  # the log does not end in records of an earlier life
            self.end = records.base + int(records.ends[-1])

    def join(self, later: "ByteAccount") -> None:
        """Add the account of the split that follows."""
        self.records += later.records
        self.record_bytes += later.record_bytes
        self.gaps += later.gaps
        if self.first_timestamp is None:
            self.first_timestamp, self.begin = later.first_timestamp, later.begin
        if later.last_timestamp is not None:
            self.last_timestamp = later.last_timestamp
        if later.end is not None:
            self.end = later.end

    def merged_gaps(self) -> list[Gap]:
        """Return the gaps as if the segment had been read in one split."""
        return list(merge_gaps(self.gaps, self.segment.end))

    @property
    def gap_bytes(self) -> dict[str, int]:
        """Bytes by kind of gap, as in the table `gaps`: a few zeros beside unknown bytes are unknown."""
        sums = {"filler": self.records * self.segment.lead, "zeros": 0, "unknown": 0}
        for gap in self.merged_gaps():
            sums[gap.kind] += gap.end - gap.start
        return sums

    @property
    def total(self) -> int:
        """Bytes of records and gaps; the file's size when the whole segment was read."""
        return self.record_bytes + sum(self.gap_bytes.values())

    def state(self, *, follows_data: bool, segment_size: int | None) -> str:
        """Return full, current, preallocated or damaged.

        `follows_data`: a later segment holds records, so this one should be full.
        """
        sums = self.gap_bytes
        zeros, unknown = sums["zeros"], sums["unknown"]
        if not self.segment.size or (segment_size is not None and self.segment.size != segment_size) or unknown:
            return "damaged"
        if zeros and follows_data:
            return "damaged"
        if zeros == self.segment.size:
            return "preallocated"
        return "current" if zeros else "full"
