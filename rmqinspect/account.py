"""What the bytes of a segment are: the sums that an auditor can add up to the file's size."""

from dataclasses import dataclass, field

from rmqinspect.scan import Gap, Stretch
from rmqinspect.schemas import dledger
from rmqinspect.store import Segment

_ENTRY_HEAD = dledger.EntryHead.sizeof()


@dataclass(slots=True)
class Account:
    """Bytes and records of one segment, or of a split of one: `add` what the scan yields."""

    segment: Segment
    records: int = 0
    record_bytes: int = 0
    gap_bytes: dict[str, int] = field(default_factory=lambda: {"filler": 0, "zeros": 0, "unknown": 0})
    first_timestamp: int | None = None  # ms, of the first and the last record
    last_timestamp: int | None = None
    begin: int | None = None  # physical offset of the first record
    end: int | None = None  # physical offset after the last record

    def add(self, event: Stretch | Gap) -> None:
        """Count a stretch of records or a gap."""
        if isinstance(event, Gap):
            self.gap_bytes[event.kind] += event.end - event.start
            return
        records = event.records
        count = len(records)
        self.records += count
        self.record_bytes += int(records.total_size.sum())
        if self.segment.kind == "dledger":
            self.gap_bytes["filler"] += count * _ENTRY_HEAD
        times = records.field("store_timestamp")
        if self.first_timestamp is None:
            self.first_timestamp = int(times[0])
            self.begin = records.base + int(records.starts[0])
        self.last_timestamp = int(times[-1])
        self.end = records.base + int(records.ends[-1])

    def join(self, later: "Account") -> None:
        """Add the account of the split that follows."""
        self.records += later.records
        self.record_bytes += later.record_bytes
        for kind, size in later.gap_bytes.items():
            self.gap_bytes[kind] += size
        if self.first_timestamp is None:
            self.first_timestamp, self.begin = later.first_timestamp, later.begin
        if later.last_timestamp is not None:
            self.last_timestamp, self.end = later.last_timestamp, later.end

    @property
    def total(self) -> int:
        """All bytes accounted for; the file's size when the whole segment was read."""
        return self.record_bytes + sum(self.gap_bytes.values())

    def state(self, *, follows_data: bool, segment_size: int | None) -> str:
        """Return full, current, preallocated or damaged.

        `follows_data`: a later segment holds records, so this one should be full.
        """
        zeros, unknown = self.gap_bytes["zeros"], self.gap_bytes["unknown"]
        if not self.segment.size or (segment_size is not None and self.segment.size != segment_size) or unknown:
            return "damaged"
        if zeros and follows_data:
            return "damaged"
        if zeros == self.segment.size:
            return "preallocated"
        return "current" if zeros else "full"
