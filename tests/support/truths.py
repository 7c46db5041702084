"""What consumers have to get of a store, read from its undamaged log by code of its own: `judge` asks for it."""

import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from construct import ConstructError

from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.schemas.message import (
    CRC_MASK,
    FIXED_SIZE,
    MAGIC_PREFIX,
    MAGIC_V2,
    RECORD_MAGICS,
    TRANSACTION_MASK,
    SysFlag,
)
from rmqinspect.schemas.message import Message as Layout
from tests.support.judge import Message, Queue, Span, Truth, message_of


class Record(NamedTuple):
    """A record of an undamaged log, and what it is entitled to."""

    physical_offset: int
    raw: bytes
    messages: tuple[tuple[Message, int], ...]  # with the number of queue offsets that each takes
    keys: tuple[tuple[str, str], ...]  # topic, key
    long_topic: bool  # unknown before 5.1


def records_of(root: Path) -> list[Record]:
    """Return the records of the undamaged log of a store."""
    return [record for path in _segments(root).values() for record in _chain(path)]


def consumers_of(root: Path, whole: Path) -> dict[Queue, set[int]]:
    """Return the queue offsets at which groups stand, by queue: of those that `whole`, the undamaged store, has.

    A broker deletes the queues of topics that its topics.json does not name; offsets of their groups stay.
    """
    path, found = root / "config" / "consumerOffset.json", dict[Queue, set[int]]()
    text = path.read_text() if path.is_file() else "{}"
    # A broker writes numbers as names.
    for name, places in json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text)).get("offsetTable", {}).items():
        for number, place in places.items():
            found.setdefault((name.partition("@")[0], int(number)), set()).add(place)
    folders = "consumequeue", "batchconsumequeue"
    there = {path.parts[-3:-1] for folder in folders for path in (whole / folder).glob("*/*/*")}
    return {queue: places for queue, places in found.items() if not there or (queue[0], str(queue[1])) in there}


def compacted_of(root: Path, release: str) -> frozenset[str]:
    """Return the topics that a release serves from its compaction log: those that have one."""
    topics = (path.parent.name for path in (root / "compaction").glob("compactionLog/*/*"))
    return frozenset(topics) if not release.startswith("4.") else frozenset()


def truth_of(
    records: Sequence[Record],
    damaged: Path | None = None,
    *,
    release: str = "5",
    consumers: Mapping[Queue, Collection[int]] = {},
    elsewhere: frozenset[str] = frozenset(),
) -> Truth:
    """Return what has to be there: all of these records, or those that a damaged copy still has, byte for byte.

    Of a damaged copy the other messages may be there, proven by whoever repaired them. A queue's next offset is that
    behind its last message, lost or not, at the most, and behind its last sound one at least. Of the `consumers` those
    count that stand in a queue of the undamaged log.
    """
    there = _there(records, damaged) if damaged else {one.physical_offset: one.raw for one in records}
    sound = frozenset(one.physical_offset for one in records if there.get(one.physical_offset) == one.raw)
    readable = {place: raw for place, raw in there.items() if place not in sound and _is_readable(raw)}
    unreadable = {one.physical_offset for one in records if one.long_topic and release.startswith(("4.", "5.0."))}
    sound -= unreadable
    messages = [one for record in records if record.physical_offset in sound for one, _ in record.messages]
    maybe = [one for record in records if record.physical_offset not in sound for one, _ in record.messages]
    ends: dict[Queue, list[int]] = {}
    for record in records:
        for one, taken in record.messages if record.physical_offset not in unreadable else ():
            end = ends.setdefault((one.topic, one.queue_id), [0, 0])
            end[1] = max(end[1], one.queue_offset + taken)
            if record.physical_offset in sound:
                end[0] = max(end[0], one.queue_offset + taken)
    keys: dict[tuple[str, str], set[int]] = {}
    for record in records:
        for key in record.keys if record.physical_offset in sound else ():
            keys.setdefault(key, set()).add(record.physical_offset)
    spans = {queue: Span(*end) for queue, end in ends.items()}
    found = {key: frozenset(places) for key, places in keys.items()}
    # A rollback record is nobody's message, whatever it was.
    forged = frozenset(
        (at, zlib.crc32(raw)) for at, raw in readable.items() if raw[39] & TRANSACTION_MASK != TRANSACTION_MASK
    )
    firsts: dict[Queue, int] = {}
    for one in (*messages, *maybe):
        queue = one.topic, one.queue_id
        firsts[queue] = min(one.queue_offset, firsts.get(queue, one.queue_offset))
    inside = {
        queue: [place for place in places if queue in spans and firsts[queue] <= place <= spans[queue].most]
        for queue, places in consumers.items()
    }
    return Truth(messages, spans, found, maybe, forged, inside, elsewhere)


def truth_of_damaged(damaged: Path, salvaged: Path, *, release: str) -> Truth:
    """Return what has to be there of a damaged store whose undamaged log nobody has.

    Each record that is whole and names its own place, wherever it stands, has to come, unless its queue offset is not
    between those of its neighbours in the queue, or salvage has made something else of it: of one record at the most.
    What else the salvaged log has as messages may come.
    """
    known = not release.startswith(("4.", "5.0."))
    found = [one for path in _segments(damaged).values() for one in _anywhere(path) if known or not one.long_topic]
    made = records_of(salvaged)
    repaired = {one.physical_offset for one in made} - {one.physical_offset for one in made if one in found}
    repaired &= {one.physical_offset for one in found}
    assert len(repaired) <= 1, f"sound records are not what they were: {sorted(repaired)}"
    found = [one for one in found if one.physical_offset not in repaired]
    by_queue: dict[Queue, list[tuple[Message, int]]] = {}
    for record in found:
        for one, taken in record.messages:
            by_queue.setdefault((one.topic, one.queue_id), []).append((one, taken))
    messages, spans = [], {}
    for queue, row in by_queue.items():
        offsets = [-1, *(one.queue_offset for one, _ in row), 1 << 62]
        sure = [one for at, one in enumerate(row, 1) if offsets[at - 1] < offsets[at] < offsets[at + 1]]
        messages += [one for one, _ in sure]
        if len(sure) == len(row):
            spans[queue] = Span(max(one.queue_offset + taken for one, taken in row), 1 << 62)
    wanted = {one.physical_offset for one in messages}
    keys: dict[tuple[str, str], set[int]] = {}
    for record in found:
        for key in record.keys if record.physical_offset in wanted else ():
            keys.setdefault(key, set()).add(record.physical_offset)
    maybe = [one for record in made for one, _ in record.messages if one.physical_offset not in wanted]
    return Truth(messages, spans, {key: frozenset(places) for key, places in keys.items()}, maybe)


def _anywhere(path: Path) -> Iterator[Record]:
    """Yield the whole records of a segment that name the place where they stand."""
    raw, base, at = path.read_bytes(), int(path.name), 0
    for found in re.finditer(re.escape(MAGIC_PREFIX), raw):
        start = found.start() - 4
        size = int.from_bytes(raw[start : start + 4], "big") if start >= at else 0
        record = raw[start : start + size]
        own = int.from_bytes(record[28:36], "big", signed=True)
        if FIXED_SIZE <= size == len(record) and own == base + start and _is_readable(record):
            yield _record(own, record)
            at = start + size


def _there(records: Iterable[Record], damaged: Path) -> dict[int, bytes]:
    """Return the bytes where the records were: so many as the total size there says, else as there were."""
    logs = {base: path.read_bytes() for base, path in _segments(damaged).items()}
    bases, found = sorted(logs), {}
    for record in records:
        base = max((one for one in bases if one <= record.physical_offset), default=None)
        if base is not None:
            raw = logs[base][record.physical_offset - base :]
            size = int.from_bytes(raw[:4], "big")
            found[record.physical_offset] = raw[: size if FIXED_SIZE <= size <= len(raw) else len(record.raw)]
    return found


def _is_readable(raw: bytes) -> bool:
    """Say whether bytes are a record for everyone who does not know what it was: lengths agree, the body's CRC too."""
    try:
        fields = Layout.parse(raw)
        whole: bytes = Layout.build(fields)
    except (ConstructError, ValueError):
        return False
    return whole == raw and (not fields.body or zlib.crc32(fields.body) & CRC_MASK == fields.body_crc)


def _segments(root: Path) -> dict[int, Path]:
    folder = next(root.glob("dledger-*/data"), root / "commitlog")
    files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    named = [path for path in files if re.fullmatch(r"[0-9]{20}", path.name)]
    return {int(path.name): path for path in sorted(named)}


def _chain(path: Path) -> Iterator[Record]:
    raw = path.read_bytes()
    lead = EntryHead.sizeof() if path.parent.name == "data" else 0  # of each record of a DLedger log
    at = lead
    while at + FIXED_SIZE <= len(raw):
        size, magic = (int.from_bytes(raw[at + place : at + place + 4], "big", signed=True) for place in (0, 4))
        if magic not in RECORD_MAGICS or not FIXED_SIZE <= size <= len(raw) - at:
            return
        yield _record(int(path.name) + at, raw[at : at + size])
        at += size + lead


def _record(place: int, raw: bytes) -> Record:
    try:
        fields = Layout.parse(raw)
    except ConstructError as error:
        raise AssertionError(f"no undamaged log: {place}") from error
    topic = fields.topic.decode()
    pairs = (tuple(item.split("\1", 1)) for item in fields.properties.decode().split("\2") if "\1" in item)
    properties = dict(pairs)
    prepared, rollback = SysFlag.TRANSACTION_PREPARED, TRANSACTION_MASK
    messages: list[tuple[Message, int]] = []
    if fields.sys_flag & TRANSACTION_MASK not in (prepared, rollback):
        first = int(properties.get("INNER_BASE", fields.queue_offset))
        one = message_of(raw, topic, fields.queue_id, first, place)
        messages.append((one, int(properties.get("INNER_NUM", 1))))
        messages += [(message_of(raw, name, queue, at, place), 1) for name, queue, at in _others(properties)]
    keys = [] if fields.sys_flag & TRANSACTION_MASK == rollback else _keys(properties)
    named = tuple((topic, key) for key in keys)
    return Record(place, raw, tuple(messages), named, fields.magic == MAGIC_V2)


def _others(properties: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """Yield the light message queues that hold the record too, with its place there."""
    names, offsets = properties.get("INNER_MULTI_DISPATCH"), properties.get("INNER_MULTI_QUEUE_OFFSET")
    if names and offsets:
        for name, offset in zip(names.split(","), offsets.split(","), strict=True):
            if name.startswith("%LMQ%"):
                yield name, 0, int(offset)


def _keys(properties: Mapping[str, str]) -> list[str]:
    unique = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    return unique + [key for key in properties.get("KEYS", "").split(" ") if key]
