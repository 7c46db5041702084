"""Everything about one physical offset: what lies there, its fields, its body, its neighbours, its queue units.

`inspect_offset` is what `rmqinspect show` prints. Damage never raises; it is a marked row or a marked fact. For
`show --redact` the fields, hex and facts come without values of the message.
"""

from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec import message_id as ids
from rmqinspect.codec.decompress import decompress
from rmqinspect.codec.layout import FieldRow, ParsedFields, walk_fields
from rmqinspect.commitlog.gaps import BRIDGED, REASONS
from rmqinspect.commitlog.record_reader import OpenSegment, RecordReader, Spot
from rmqinspect.errors import BadRecord
from rmqinspect.find.queue_units import Reference, find_references
from rmqinspect.loops.records import has_queue_unit
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.show.record import compression_name, describe_entry_head, describe_items, describe_record
from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_offset, escape

if TYPE_CHECKING:
    from rmqinspect.tables.redact import Redaction  # reads Arrow, which `show` does without

_FIRST_READ = 64 << 10  # bytes; holds nearly every record


class Fact(NamedTuple):
    """A line below the fields."""

    name: str
    text: str
    is_damage: bool = False


class Inspected(Struct, frozen=True):
    """What is known about the offset asked for."""

    asked: int
    spot: Spot
    raw: bytes  # from the start of the spot
    rows: list[FieldRow]
    entry_rows: list[FieldRow]  # of the DLedger entry head in front of the record
    body: bytes | None
    body_note: str
    facts: list[Fact]

    @property
    def damaged(self) -> bool:
        """Whether a field or a fact shows damage."""
        return bool(self.problems)

    @property
    def problems(self) -> list[str]:
        """The names of the damaged fields and facts, in their order."""
        names = [row.name for row in (*self.entry_rows, *self.rows) if row.problem]
        names += [fact.name for fact in self.facts if fact.is_damage]
        return list(dict.fromkeys(names))

    @property
    def items(self) -> list[FieldRow]:
        """The rows of an inner batch in a compressed body; others have theirs among `rows`."""
        record = walk_fields(message.Message.subcons, self.raw)
        if self.body is None or not (record.compressed and record.number("sys_flag") & SysFlag.INNER_BATCH):
            return []
        return describe_items(self.body)

    @property
    def position(self) -> int:
        """Where the spot begins in its file."""
        return self.spot.start - self.spot.segment.base

    @property
    def body_position(self) -> int:
        """Where the body lies in the file; 0 for a decompressed one."""
        stored = next((row for row in self.rows if row.name == "body" and row.depth == 0), None)
        return self.position + stored.offset if stored is not None and stored.raw == self.body else 0


def inspect_offset(
    store: Store,
    asked: int,
    identity: ids.OffsetId | None = None,
    *,
    raw_body: bool = False,
    max_body: int = 64 << 20,
    zone: tzinfo = UTC,
) -> Inspected:
    """Return what lies at a physical offset; any offset inside a record finds the record.

    `identity` is the id that named the offset; its broker address is compared with the record's.

    :raises NothingFound: no segment holds the offset.
    :raises Unreadable: an I/O error.
    """
    with RecordReader(store) as log:
        spot = log.locate(asked)
        if spot.kind == "zeros":
            return Inspected(asked, spot, b"", [], [], None, "", list(_zero_facts(spot)))
        segment = log.opened(spot.segment)
        raw = _read(segment, spot, max_body)
        neighbours = list(_neighbours(store, segment, spot))
        entry_rows = []
        if spot.entry is not None:
            entry_rows = describe_entry_head(segment.read_at(spot.entry, spot.start - spot.entry), spot.entry)
    if spot.kind == "entry":
        rows = describe_entry_head(raw, spot.start)
        content = raw[dledger.EntryHead.sizeof() :]
        return Inspected(asked, spot, raw, rows, [], content, "of an entry without a record", neighbours)
    if spot.kind == "blank" and spot.segment.kind == "dledger":
        rows = describe_entry_head(raw[: dledger.EntryBlank.sizeof()], spot.start)
        return Inspected(asked, spot, raw, rows, [], None, "", neighbours)
    rows = describe_record(raw, spot.start, spot.start - spot.segment.base, zone)
    if spot.kind == "blank":
        return Inspected(asked, spot, raw, rows, entry_rows, None, "", neighbours)
    record = walk_fields(message.Message.subcons, raw, spot.start)
    body, note, undecodable = _readable_body(record, raw_body, max_body)
    facts = [Fact("body", note, True)] if undecodable else []
    if is_bridge(record):
        facts.append(Fact("bridge", f"no message: {REASONS[BRIDGED].removeprefix('a bridge: ')}"))
    if any(row.problem for row in (*rows, *entry_rows)):
        from rmqinspect.damage.diagnose import explain_damage  # compiles loops, which sound records do without

        cause = explain_damage(store, spot.segment, spot.start if spot.entry is None else spot.entry)
        facts += [Fact("cause", cause)] if cause else []
    facts += [*neighbours, *_identity_facts(record, identity)]
    if record.reason is None:
        facts += _queue_unit_facts(store, record)
    return Inspected(asked, spot, raw, rows, entry_rows, body, note, facts)


def is_bridge(record: ParsedFields) -> bool:
    """Whether a record is one that a salvage wrote over a gap."""
    marked = record.number("flag") == message.BRIDGE_FLAG
    return marked and record.number("sys_flag") == message.TRANSACTION_MASK


def _read(segment: OpenSegment, spot: Spot, max_body: int) -> bytes:
    """Return the bytes from the start of the spot to its end; without an end, as many as its lengths claim."""
    limit = max_body + _FIRST_READ
    if spot.end is not None and spot.kind != "blank":
        return segment.read_at(spot.start, min(spot.end - spot.start, limit))
    content = segment.read_at(spot.start, _FIRST_READ)
    if spot.kind == "record":
        record = walk_fields(message.Message.subcons, content)
        claimed = max(record.number("total_size"), record.end + record.number("body_size") + _FIRST_READ)
        if record.reason is not None and claimed > len(content):
            content = segment.read_at(spot.start, min(claimed, limit))
    return content


def _readable_body(record: ParsedFields, raw_body: bool, max_body: int) -> tuple[bytes | None, str, bool]:
    """Return a record's body, a note on its decompression, and whether that failed."""
    body = record.body
    if body is None or not record.compressed or raw_body:
        return body, "", False
    compression = compression_name(record.number("sys_flag"))
    if compression is None:
        return body, "unknown compression type; as stored", True
    try:
        content = decompress(body, compression, max_body)
    except BadRecord as error:
        return body, f"not decompressed: {error}; as stored", True
    return content, f"decompressed from {count(len(body), 'byte')} of {compression}", False


def _zero_facts(spot: Spot) -> Iterator[Fact]:
    end = "beyond the range searched" if spot.end is None else f"to {describe_offset(spot.end)}"
    yield Fact("zeros", f"no record here: zeros from here {end}")
    if spot.previous is not None:
        yield Fact("before", _frame_text(spot.previous.start, spot.previous.end))


def _frame_text(start: int, end: int) -> str:
    return f"record {describe_offset(start)} to {describe_offset(end)}, {count(end - start, 'byte')}"


def _neighbours(store: Store, segment: OpenSegment, spot: Spot) -> Iterator[Fact]:
    """Yield what ends where the spot begins, and what begins where it ends."""
    border = spot.start if spot.entry is None else spot.entry
    if spot.previous is not None:
        yield Fact("previous", _frame_text(spot.previous.start, spot.previous.end))
    elif border == segment.base:
        yield Fact("previous", "none: this is the first in its segment")
    else:
        yield Fact("previous", f"unknown: no record ends at {describe_offset(border)}")
    if spot.end is None:
        yield Fact("next", "unknown: the end of this is not confirmed")
        return
    if spot.end >= spot.segment.end:
        after = next((other for other in store.segments if other.base == spot.end), None)
        name = f"segment {after.name} begins there" if after else "the last segment ends here"
        yield Fact("next", f"{describe_offset(spot.end)}: {name}")
        return
    begins = segment.what_begins(spot.end)
    if begins is None:
        what = "zeros: the log ends, or a gap begins" if segment.is_zero_at(spot.end) else "no record"
        yield Fact("next", f"{describe_offset(spot.end)}: {what}")
    elif begins[2] is None:
        yield Fact("next", f"{describe_offset(begins[1])}: an unconfirmed {begins[0]}")
    else:
        kind, start, end = begins[0], begins[1], begins[2]
        text = _frame_text(start, end)
        yield Fact("next", text if kind == "record" else text.replace("record", kind, 1))


def _identity_facts(record: ParsedFields, identity: ids.OffsetId | None) -> Iterator[Fact]:
    if identity is None or "store_host" not in record.fields:
        return
    host = record.fields["store_host"].value
    asked = identity.address, identity.port
    if asked != (ids.address_text(host["address"]), host["port"]):
        yield Fact("id", f"names broker {ids.host_text(*asked)}, not the store host of this record")


def _queue_unit_facts(store: Store, record: ParsedFields) -> Iterator[Fact]:
    if not store.queue_files:
        yield Fact("queue unit", f"not searched: {why_unknown(store, 'queues') or 'no consume queue files given'}")
        return
    references, wanted = find_references(store, record), has_queue_unit(record.number("sys_flag"))
    if not references:
        why = why_unknown(store, "queues", record.topic, str(record.number("queue_id")))
        none = f"not known: {why}" if why else "none found"
        yield Fact("queue unit", none if wanted else "none: prepared and rollback records have none")
    for reference in references:
        yield Fact("queue unit", _queue_unit_text(reference, wanted), reference.disagrees and wanted)


def _queue_unit_text(reference: Reference, wanted: bool) -> str:
    place = f"{escape(reference.file.name)} at {describe_offset(reference.position)}"
    points = f"{reference.place}, {count(reference.size, 'byte')}"
    text = f"{place}: unit {reference.number} -> {points}, tags code {reference.tags_code}"
    if not wanted:
        return f"{text}; of another record: prepared and rollback records have none"
    return f"{text}: {'differs: ' + '; '.join(reference.problems) if reference.problems else 'ok'}"


# --- without values of the message --------------------------------------------------------------

HIDDEN = "hidden"

# Fields that hold values of a word by themselves.
_FIELDS = {"body": "body", "born_host": "hosts", "store_host": "hosts"}
# Words whose values are among the bytes of the field `properties`.
_IN_PROPERTIES = ("keys", "tags", "properties", "hosts")
# Facts that quote: bytes, the host of a broker, a tags code.
_FACTS = {"cause": None, "id": "hosts", "queue unit": "tags", "body": "body"}


def redact_record(found: Inspected, redaction: "Redaction") -> Inspected:
    """Return a record with its values masked; sizes, offsets and verdicts stay."""
    body, facts = found.body, [_redacted_fact(fact, redaction) for fact in found.facts]
    stored = any(row.name == "body" and row.depth == 0 for row in found.rows)
    if body is not None and (not stored or redaction.hides("body")):
        hashed = redaction.value("body", body) if stored else None
        facts.insert(0, Fact("body", f"{count(len(body), 'byte')}, {hashed or HIDDEN}"))
        body = None
    return replace(
        found,
        raw=b"",  # what is parsed again from it would show all
        rows=list(_redacted_rows(found.rows, redaction)),
        body=body,
        facts=facts,
    )


def _redacted_rows(rows: list[FieldRow], redaction: "Redaction") -> Iterator[FieldRow]:
    parent = ""
    for row in rows:
        if row.depth == 0:
            parent = row.name
            yield _redacted_field(row, redaction)
        elif parent == "properties":
            yield _redacted_property(row, redaction)
        else:  # a message of an inner batch, with its properties
            yield replace(row, value=HIDDEN, note="", hidden=True)


def _redacted_field(row: FieldRow, redaction: "Redaction") -> FieldRow:
    if row.name.startswith("("):  # bytes that no field explains
        return replace(row, hidden=True)
    word = _FIELDS.get(row.name)
    if word == "hosts" and redaction.hides(word):
        address = row.value.rpartition(":")[0].strip("[]").encode()
        return replace(row, value=redaction.value(word, address) or HIDDEN, note="", hidden=True)
    if row.name == "body_crc":
        note = row.note.partition(";")[0]  # the cause quotes bytes of the body
        # A short body is found from its checksum by brute force.
        return (
            replace(row, value=HIDDEN, note=_judged(note), hidden=True)
            if redaction.hides("body")
            else replace(row, note=note)
        )
    inside = _IN_PROPERTIES if row.name == "properties" else (word,) if word else ()
    hides = any(map(redaction.hides, inside))
    return replace(row, hidden=True) if hides else row


def _redacted_property(row: FieldRow, redaction: "Redaction") -> FieldRow:
    if row.name == "__CRC32#" and not redaction.hides("body"):
        return replace(row, note=row.note.partition(";")[0])
    word = redaction.of_property(row.name)
    if row.name.startswith("(") or word is not None:
        raw = row.raw.partition(b"\x01")[2].removesuffix(b"\x02")
        value = (redaction.value(word, raw) if word and row.name != "__CRC32#" else None) or HIDDEN
        return replace(row, value=value, note=_judged(row.note) if row.name == "__CRC32#" else "", hidden=True)
    return row


def _judged(note: str) -> str:
    """Return the verdict on a checksum, without the other value that it may name."""
    return note if note == "ok" else "differs" if note else ""


def _redacted_fact(fact: Fact, redaction: "Redaction") -> Fact:
    if fact.name not in _FACTS:
        return fact
    word = _FACTS[fact.name]
    if word == "tags" and redaction.hides("tags"):
        head, found, tail = fact.text.partition(", tags code ")
        verdict = ": ok" if tail.endswith(": ok") else ": differs" if ": differs" in tail else ""
        return fact._replace(text=f"{head}{', tags code ' + HIDDEN if found else ''}{verdict}")
    return fact._replace(text=HIDDEN) if word is None or redaction.hides(word) else fact
