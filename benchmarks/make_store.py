"""Writes a store of any size within seconds, every byte as a broker would have written it.

A few thousand distinct records are built with the layouts and repeated in random order. The fields that differ from
record to record (offsets, times, serial numbers in two properties) are patched through numpy views of the same
layouts. pointers.py derives queues and index from the log.

    python -m benchmarks.make_store STORE [--size 1GiB] [--profile mid] [--segment-size 256MiB] [--seed 1]
        [--log-only | --queue-file-size 6000000 --index-slots 5000000 --index-entries 20000000]
"""

import argparse
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.pointers import DELAYS, QUEUE_FILE_SIZE, geometry_for, write_pointers
from rmqinspect.codec.java import masked_crc32
from rmqinspect.codec.layout import dtype_of
from rmqinspect.index.geometry import Geometry
from rmqinspect.schemas import checkpoint, message
from rmqinspect.text import parse_size
from rmqinspect.topics import SCHEDULE_TOPIC

Ints = NDArray[np.int64]


class Profile(NamedTuple):
    """Range of body sizes in bytes."""

    smallest: int
    largest: int


PROFILES = {
    "mid": Profile(512, 1536),  # records of about 1.2 KB: orders with their items
    "small": Profile(100, 150),  # records of about 0.36 KB: more head and properties than body
}

TOPICS, QUEUES = 20, 8  # by default


class Layout(NamedTuple):
    """The topics of a store, their queues, and how many distinct records are built for each queue with construct."""

    topics: int = TOPICS
    queues: int = QUEUES
    distinct: int = 16
    system: bool = False  # some records are half messages, others are delayed


HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
_SYSTEM_SHARE = 20  # one record in so many is one of these, or fewer
_GROUPS = 100
# Source: TopicConfig, SubscriptionGroupConfig.
_TOPIC = {"order": False, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
_GROUP = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}

KEYS_PER_RECORD = 2  # in the index: UNIQ_KEY, and one word in KEYS

SEGMENTS = 4  # by default
LARGEST_SEGMENT = 1 << 30  # MessageStoreConfig.mappedFileSizeCommitLog
_PAGE = 4096

_BLOCK = 1 << 13  # records laid out at a time: about 10 MB of mid
_FIRST_TIME = 1_760_000_000_000  # ms
_RECORDS_PER_MS = 16
_TRAVEL_MS = 3  # between the producer's clock and the broker's

_HOLE = b"0" * 8  # placeholder of the serial number, in hex digits
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_HOLE_DTYPE = np.dtype((np.void, len(_HOLE)))

_WORDS = ("amber", "basket", "candle", "drawer", "engine", "feather", "garden", "hammer", "island", "velvet")
_STATES = ("open", "paid", "packed", "sent", "returned")


class Template(NamedTuple):
    """One record, and the positions of its serial numbers."""

    raw: bytes
    queue: int  # number of the (topic, queue)
    holes: tuple[int, int]  # positions of the serial in UNIQ_KEY and in KEYS


def make_store(
    store: str,
    profile: str = "mid",
    size: int = 1 << 30,
    segment_size: int | None = None,
    seed: int = 1,
    *,
    log_only: bool = False,
    queue_file_size: int = QUEUE_FILE_SIZE,
    geometry: Geometry | None = None,
    layout: Layout = Layout(),  # noqa: B008 (frozen)
) -> int:
    """Write the folder `store` with a commit log of at least `size` bytes, its queues, index and checkpoint.

    Returns the size of the log in bytes.

    All segments are full and end in a blank record. `geometry` None chooses index settings with which the keys fill a
    few files; `log_only` writes neither queues nor index. The same arguments give the same bytes. The folder is renamed
    into place when it is complete.

    :raises FileExistsError: `store` exists.
    """
    if os.path.lexists(store):
        raise FileExistsError(store)
    segment_size = segment_size or min(LARGEST_SEGMENT, -(-size // (SEGMENTS * _PAGE)) * _PAGE)
    unfinished = f"{store}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(os.path.join(unfinished, "commitlog"))
    writer = _LogWriter(PROFILES[profile], seed, layout)
    bases = range(0, size, segment_size)
    for base in bases:
        with open(os.path.join(unfinished, "commitlog", f"{base:020}"), "wb") as file:
            for raw in writer.write_segment(base, segment_size):
                file.write(raw)
    indexed = None
    if not log_only:
        geometry = geometry or geometry_for(writer.serial * KEYS_PER_RECORD)
        indexed = write_pointers(unfinished, queue_file_size, geometry)
    writer.write_checkpoint(unfinished, indexed)
    os.rename(unfinished, store)
    return len(bases) * segment_size


def write_sparse_store(store: str, segments: int, segment_size: int, used: int, layout: Layout = Layout()) -> None:  # noqa: B008 (frozen)
    """Write a store whose segments hold `used` bytes of records each, and a blank record over a hole.

    Of each topic a group has consumed nine tenths; of the delayed messages half are delivered.

    :raises FileExistsError: `store` exists.
    """
    os.makedirs(os.path.join(store, "commitlog"))
    writer = _LogWriter(PROFILES["mid"], 1, layout)
    for base in range(0, segments * segment_size, segment_size):
        with open(os.path.join(store, "commitlog", f"{base:020}"), "wb") as file:
            *records, blank = writer.write_segment(base, used)
            file.writelines(records)
            left = segment_size - file.tell()
            file.write(message.Blank.build({"total_size": left, "magic": message.MAGIC_BLANK}))
            file.truncate(segment_size)
            assert not any(blank[message.Blank.sizeof() :])
    writer.write_checkpoint(
        store, write_pointers(store, QUEUE_FILE_SIZE, geometry_for(writer.serial * KEYS_PER_RECORD))
    )
    writer.write_config(os.path.join(store, "config"))


class _LogWriter:
    """Lays out templates one after the other; holds the state that continues across segments."""

    def __init__(self, profile: Profile, seed: int, layout: Layout = Layout()) -> None:  # noqa: B008 (frozen)
        self.templates, self.names = build_templates(profile, random.Random(seed), layout)
        self.sizes: Ints = np.array([len(template.raw) for template in self.templates], np.int64)
        self.queues: Ints = np.array([template.queue for template in self.templates], np.int64)
        self.holes: Ints = np.array([template.holes for template in self.templates], np.int64)
        self.choose = np.random.default_rng(seed)
        self.next_offsets: Ints = np.zeros(len(self.names), np.int64)
        self.serial = 0

    def write_segment(self, base: int, size: int) -> Iterator[bytes | bytearray]:
        """Yield the bytes of one segment in pieces: records as long as they fit, then the blank record."""
        position, full = 0, False
        while not full:
            chosen = self.choose.integers(len(self.templates), size=_BLOCK)
            ends = position + np.cumsum(self.sizes[chosen])
            # CommitLog.DefaultAppendMessageCallback: a record is appended only if a blank record fits after it.
            fits = int(np.searchsorted(ends, size - message.BLANK_MIN_SIZE, "right"))
            full = fits < _BLOCK
            if fits:
                starts = ends[:fits] - self.sizes[chosen[:fits]] - position
                yield self._lay_out(chosen[:fits], base + position, starts)
                position = int(ends[fits - 1])
        blank: bytes = message.Blank.build({"total_size": size - position, "magic": message.MAGIC_BLANK})
        yield blank.ljust(size - position, b"\0")

    def write_checkpoint(self, store: str, indexed: int | None = None) -> None:
        """Write the checkpoint of a broker that has flushed everything written so far.

        `indexed` is the end time in ms of the newest full index file; None: the whole log is indexed.
        """
        last = _FIRST_TIME + (self.serial - 1) // _RECORDS_PER_MS
        times = dict.fromkeys(checkpoint.TIMESTAMP_FIELDS, last)
        if indexed is not None:
            times["index_msg_timestamp"] = indexed
        zeros = {field.name: 0 for field in checkpoint.Checkpoint.subcons}
        raw: bytes = checkpoint.Checkpoint.build({**zeros, **times})
        with open(os.path.join(store, "checkpoint"), "wb") as file:
            file.write(raw.ljust(checkpoint.CHECKPOINT_SIZE, b"\0"))

    def write_config(self, folder: str) -> None:
        """Write topics, groups, and the offsets of consumers and of delivered delays."""
        os.makedirs(folder)
        consumed: dict[str, dict[int, int]] = {}
        delivered = {}
        queues = Counter(topic for topic, _ in self.names)
        for (topic, queue_id), count in zip(self.names, self.next_offsets.tolist(), strict=True):
            if topic == SCHEDULE_TOPIC:
                delivered[queue_id + 1] = count // 2
            elif count:
                group = f"billing-{sum(topic.encode()) % _GROUPS:03}" if topic != HALF else "CID_RMQ_SYS_TRANS"
                consumed.setdefault(f"{topic}@{group}", {})[queue_id] = count * 9 // 10
        topics = {
            topic: {**_TOPIC, "topicName": topic, "readQueueNums": count, "writeQueueNums": count}
            for topic, count in queues.items()
        }
        groups = {name: {**_GROUP, "groupName": name} for name in sorted(key.split("@")[1] for key in consumed)}
        for name, member, table in (
            ("topics.json", "topicConfigTable", topics),
            ("subscriptionGroup.json", "subscriptionGroupTable", groups),
            ("consumerOffset.json", "offsetTable", consumed),
            ("delayOffset.json", "offsetTable", delivered),
        ):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump({member: table}, file)

    def _lay_out(self, chosen: Ints, base: int, starts: Ints) -> bytearray:
        """Return the chosen templates as consecutive records; the first has physical offset `base`."""
        raw = bytearray().join([self.templates[number].raw for number in chosen.tolist()])
        serials = self.serial + np.arange(len(chosen), dtype=np.int64)
        self.serial += len(chosen)
        times = _FIRST_TIME + serials // _RECORDS_PER_MS
        heads = _anywhere(raw, dtype_of(message.HEADS[False, False]))
        heads["physical_offset"][starts] = base + starts
        heads["queue_offset"][starts] = self._assign_queue_offsets(self.queues[chosen])
        heads["store_timestamp"][starts] = times
        heads["born_timestamp"][starts] = times - _TRAVEL_MS
        holes = _anywhere(raw, _HOLE_DTYPE)
        digits = _HEX[(serials[:, None] >> np.arange(28, -1, -4)) & 15]
        for place in self.holes[chosen].T:
            holes[starts + place] = digits.view(_HOLE_DTYPE)[:, 0]
        return raw

    def _assign_queue_offsets(self, queues: Ints) -> Ints:
        """Return the queue offset of each record, given the number of its queue."""
        order = np.argsort(queues, kind="stable")
        counts = np.bincount(queues, minlength=len(self.next_offsets))
        before = np.cumsum(counts) - counts
        offsets: Ints = np.empty(len(queues), np.int64)
        offsets[order] = np.arange(len(queues)) - before[queues[order]]
        offsets += self.next_offsets[queues]
        self.next_offsets += counts
        return offsets


def _anywhere(raw: bytearray, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view with a value of `dtype` at every byte position."""
    return np.ndarray((len(raw) - dtype.itemsize + 1,), dtype, raw, 0, (1,))


def build_templates(
    profile: Profile, dice: random.Random, layout: Layout
) -> tuple[list[Template], list[tuple[str, int]]]:
    """Return distinct records, equally many per queue, and the queues: (topic, queue id)."""
    names = [
        (f"shop-events-{topic:02}", queue_id) for topic in range(layout.topics) for queue_id in range(layout.queues)
    ]
    own = len(names)
    names += [(HALF, 0), *((SCHEDULE_TOPIC, level) for level in range(len(DELAYS)))] if layout.system else []
    count = own * layout.distinct
    templates = [_build_template(number, number % own, names, profile, dice) for number in range(count)]
    templates += [
        _build_template(count + queue, queue, names, profile, dice)
        for queue in range(own, len(names))
        for _ in range(max(1, count // _SYSTEM_SHARE // (len(names) - own)))
    ]
    return templates, names


def _build_template(
    number: int, queue: int, names: Sequence[tuple[str, int]], profile: Profile, dice: random.Random
) -> Template:
    (topic_name, queue_id), (real_topic, real_queue) = names[queue], names[number % min(TOPICS, len(names))]
    topic = topic_name.encode()
    bound_for = {b"REAL_TOPIC": real_topic.encode(), b"REAL_QID": str(real_queue).encode()}
    system = {
        HALF: {b"TRAN_MSG": b"true", b"PGROUP": b"shop", **bound_for},
        SCHEDULE_TOPIC: {b"DELAY": str(queue_id + 1).encode(), **bound_for},
    }
    body = _build_body(number, dice.randint(profile.smallest, profile.largest), dice)
    unique_key = f"{dice.getrandbits(96):024X}".encode() + _HOLE
    key = b"ORDER-" + _HOLE
    properties = {  # in the order in which a broker writes them
        b"traceId": f"{dice.getrandbits(64):016x}".encode(),
        b"KEYS": key,
        b"UNIQ_KEY": unique_key,
        b"CLUSTER": b"ShopCluster",
        b"WAIT": b"true",
        b"TAGS": f"TAG_{dice.choice(_STATES)}".encode(),
        **system.get(topic_name, {}),
    }
    text = b"".join(
        name + bytes([message.NAME_VALUE_SEPARATOR]) + value + bytes([message.PROPERTY_SEPARATOR])
        for name, value in properties.items()
    )
    raw = message.Message.build(
        {
            "total_size": message.FIXED_SIZE + len(body) + len(topic) + len(text),
            "magic": message.MAGIC_V1,
            "body_crc": masked_crc32(body),
            "queue_id": queue_id,
            "flag": 0,
            "queue_offset": 0,
            "physical_offset": 0,
            "sys_flag": 0,
            "born_timestamp": 0,
            "born_host": {"address": bytes([10, 0, 1, dice.randrange(1, 255)]), "port": 40000},
            "store_timestamp": 0,
            "store_host": {"address": bytes([10, 0, 9, 1]), "port": 10911},
            "reconsume_times": 0,
            "prepared_transaction_offset": 0,
            "body_size": len(body),
            "body": body,
            "topic_size": len(topic),
            "topic": topic,
            "properties_size": len(text),
            "properties": text,
        }
    )
    properties_start = len(raw) - len(text)
    in_unique_key, in_keys = (
        properties_start + text.index(value) + len(value) - len(_HOLE) for value in (unique_key, key)
    )
    return Template(raw, queue, (in_unique_key, in_keys))


def _build_body(number: int, size: int, dice: random.Random) -> bytes:
    """Return a JSON object of exactly `size` bytes."""
    order: dict[str, object] = {"order": 10_000_000 + number, "state": dice.choice(_STATES), "note": ""}
    items: list[dict[str, object]] = []
    while True:
        item = {
            "name": f"{dice.choice(_WORDS)} {dice.choice(_WORDS)}",
            "count": dice.randint(1, 12),
            "price": dice.randrange(100_000) / 100,
            "digest": f"{dice.getrandbits(64):016x}",
        }
        if len(_json({**order, "items": [*items, item]})) > size:
            break
        items.append(item)
    if items:
        order["items"] = items
    order["note"] = (" ".join(dice.choices(_WORDS, k=size // 5)))[: size - len(_json(order))]
    return _json(order)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def main() -> None:
    """Write one store."""
    parser = argparse.ArgumentParser(prog="benchmarks.make_store", description=make_store.__doc__)
    parser.add_argument("store", help="a folder that does not exist yet")
    parser.add_argument("--size", type=parse_size, default=1 << 30)
    parser.add_argument("--profile", choices=PROFILES, default="mid")
    parser.add_argument("--segment-size", type=parse_size)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-only", action="store_true", help="no queues, no index")
    parser.add_argument("--queue-file-size", type=parse_size, default=QUEUE_FILE_SIZE, help="a multiple of 20")
    parser.add_argument("--index-slots", type=int, help="maxHashSlotNum; with --index-entries")
    parser.add_argument("--index-entries", type=int, help="maxIndexNum; default: a few full files")
    options = parser.parse_args()
    if (options.index_slots is None) != (options.index_entries is None):
        parser.error("--index-slots and --index-entries go together")
    geometry = Geometry(options.index_slots, options.index_entries) if options.index_slots else None
    make_store(
        options.store,
        options.profile,
        options.size,
        options.segment_size,
        options.seed,
        log_only=options.log_only,
        queue_file_size=options.queue_file_size,
        geometry=geometry,
    )


if __name__ == "__main__":
    main()
