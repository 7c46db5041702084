"""Whole stores: log, queues, index, checkpoint and configuration, written message by message.

Dispatch is implemented here a second time, for one record, as the reference for the columns of
`rmqinspect.broker.dispatch`.

Source: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue#putMessagePositionInfo, IndexFile#putKey.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqinspect.codec.java import index_hash, index_key, java_string_hash
from rmqinspect.schemas import message
from rmqinspect.schemas.checkpoint import CHECKPOINT_SIZE, Checkpoint
from rmqinspect.schemas.consumequeue import PRE_BLANK, QueueUnit
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.topics import SCHEDULE_TOPIC
from tests.support.building import STORED, fill, lay, pad, record

DELAYS = (1, 5, 10, 30, 60)  # seconds, by queue id of the schedule topic


@dataclass
class WholeStore:
    """A store to be written. `pieces` are arguments of `building.record`; offsets are assigned here."""

    pieces: Sequence[dict[str, Any]]
    segment_size: int = 1024
    queue_rows: int = 8  # units in a queue file
    slots: int = 7
    entries: int = 24  # of an index file
    tag_keys: bool = False  # index the tags, as 5.4.0 and later do
    abort: bool = False
    base: int = 0  # where the log begins
    dispatched: int | None = None  # so many records have units and entries; None: all
    indexed_from: int = 0  # physical offset; records before have no index entries
    configs: Mapping[str, Any] = field(default_factory=dict)  # by name in config/

    def write(self, folder: Path) -> Path:
        """Write all files below `folder` and return it."""
        records = self._write_log(folder / "commitlog")
        known = records[: self.dispatched]
        self._write_queues(folder / "consumequeue", known)
        self._write_index(folder / "index", [(at, piece) for at, piece in known if at >= self.indexed_from])
        newest = max((piece["store_timestamp"] for _, piece in known), default=0)
        times = dict.fromkeys(("physic_msg_timestamp", "logics_msg_timestamp"), newest)
        fields = {part.name: times.get(part.name, 0) for part in Checkpoint.subcons}
        (folder / "checkpoint").write_bytes(Checkpoint.build(fields).ljust(CHECKPOINT_SIZE, b"\0"))
        if self.abort:
            (folder / "abort").write_bytes(b"")
        for name, value in self.configs.items():
            (folder / "config").mkdir(exist_ok=True)
            (folder / "config" / name).write_text(json.dumps(value))
        return folder

    def _write_log(self, folder: Path) -> list[tuple[int, dict[str, Any]]]:
        folder.mkdir(parents=True)
        next_offset: dict[tuple[str, int], int] = {}
        placed: list[tuple[int, dict[str, Any]]] = []
        segment: list[dict[str, Any]] = []
        base, size = self.base, 0
        for number, given in enumerate(self.pieces):
            piece: dict[str, Any] = {"topic": "TopicTest", "queue_id": 0, "store_timestamp": STORED + number} | given
            queue = piece["topic"], piece["queue_id"]
            if (piece.get("sys_flag", 0) & message.TRANSACTION_MASK) not in (0x4, 0xC):
                piece.setdefault("queue_offset", next_offset.get(queue, 0))
                next_offset[queue] = piece["queue_offset"] + 1
            length = len(record(0, **piece))
            if size + length + message.Blank.sizeof() > self.segment_size:
                (folder / f"{base:020}").write_bytes(fill(lay(segment, base), self.segment_size))
                segment, base, size = [], base + self.segment_size, 0
            placed.append((base + size, piece))
            segment.append(piece)
            size += length
        (folder / f"{base:020}").write_bytes(pad(lay(segment, base), self.segment_size))
        return placed

    def _write_queues(self, folder: Path, records: Iterable[tuple[int, dict[str, Any]]]) -> None:
        folder.mkdir(parents=True)
        queues: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for place, piece in records:
            for topic, queue_id, offset, tags_code in units_of(piece):
                unit = {"physical_offset": place, "size": len(record(0, **piece)), "tags_code": tags_code}
                queues.setdefault((topic, queue_id), []).append((offset, QueueUnit.build(unit)))
        for (topic, queue_id), units in queues.items():
            first = units[0][0] - units[0][0] % self.queue_rows
            filler = QueueUnit.build(PRE_BLANK) * (units[0][0] - first)
            raw = filler + b"".join(unit for _, unit in units)
            size = self.queue_rows * QueueUnit.sizeof()
            home = folder / topic / str(queue_id)
            home.mkdir(parents=True)
            for start in range(0, len(raw), size):
                name = f"{first * QueueUnit.sizeof() + start:020}"
                (home / name).write_bytes(raw[start : start + size].ljust(size, b"\0"))

    def _write_index(self, folder: Path, records: Iterable[tuple[int, dict[str, Any]]]) -> None:
        keys = [
            (place, piece["store_timestamp"], index_hash(index_key(piece["topic"], key)))
            for place, piece in records
            for key in keys_of(piece, tags=self.tag_keys)
        ]
        folder.mkdir(parents=True)
        for number, start in enumerate(range(0, len(keys), self.entries - 1)):
            raw = self._index_file(keys[start : start + self.entries - 1])
            (folder / f"{20260101000000000 + number}").write_bytes(raw)

    def _index_file(self, keys: Sequence[tuple[int, int, int]]) -> bytes:
        heads, entries = [0] * self.slots, [bytes(IndexEntry.sizeof())]
        begin = keys[0][1]
        for number, (place, stored, hashed) in enumerate(keys, 1):
            slot = hashed % self.slots
            fields = {
                "key_hash": hashed,
                "physical_offset": place,
                "time_diff": max(0, stored - begin) // 1000,
                "previous": heads[slot],
            }
            entries.append(IndexEntry.build(fields))
            heads[slot] = number
        header = {
            "begin_timestamp": begin,
            "end_timestamp": keys[-1][1],
            "begin_physical_offset": keys[0][0],
            "end_physical_offset": keys[-1][0],
            "hash_slot_count": sum(head > 0 for head in heads),
            "index_count": len(keys) + 1,
        }
        raw: bytes = IndexHeader.build(header) + b"".join(IndexSlot.build({"entry": head}) for head in heads)
        return raw + b"".join(entries).ljust(self.entries * IndexEntry.sizeof(), b"\0")


def _properties(piece: Mapping[str, Any]) -> Mapping[str, str]:
    given = piece.get("properties")
    return given if isinstance(given, Mapping) else {}  # as bytes they are none that matter


def units_of(piece: Mapping[str, Any]) -> list[tuple[str, int, int, int]]:
    """Return (topic, queue id, queue offset, tags code) of each unit that a record is entitled to."""
    properties: Mapping[str, str] = _properties(piece)
    if (piece.get("sys_flag", 0) & message.TRANSACTION_MASK) in (0x4, 0xC):
        return []
    plain = java_string_hash(properties.get("TAGS", ""))
    code = plain
    if piece["topic"] == SCHEDULE_TOPIC:
        code = piece["store_timestamp"] + 1000 * DELAYS[piece["queue_id"]]
    units = [(piece["topic"], piece["queue_id"], piece["queue_offset"], code)]
    names, offsets = properties.get("INNER_MULTI_DISPATCH"), properties.get("INNER_MULTI_QUEUE_OFFSET")
    if names and offsets:
        for name, offset in zip(names.split(","), offsets.split(","), strict=True):
            units.append((name, 0 if name.startswith("%LMQ%") else piece["queue_id"], int(offset), plain))
    return units


def keys_of(piece: Mapping[str, Any], *, tags: bool) -> list[str]:
    """Return the keys under which a record is indexed, in the broker's order."""
    properties: Mapping[str, str] = _properties(piece)
    if piece.get("sys_flag", 0) & message.TRANSACTION_MASK == 0xC:
        return []
    keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    keys += [key for key in properties.get("KEYS", "").split(" ") if key]
    return keys + (["T#" + properties["TAGS"]] if tags and properties.get("TAGS") else [])
