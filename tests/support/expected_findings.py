"""The findings that `verify` must report for every real store, derived from how the store was made.

The crash family says of each case in plain words which bytes of which file were changed (`case.json`), and
the broker where it stopped reading (`truth.json`). From these, and never from an answer of `verify`, come the
findings: a table of words for damage inside the log, a rule for names and lengths, a rule for the checkpoint.
Where a store deviates from the tables, `DEVIATIONS` has its findings and the reason.

Where queues and index say something of their own, `slow_pointers` finds it in the store, unit by unit; the words
say which codes these must be (`pointer_codes`), and so check the finder.
"""

import re
import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from rmqinspect.rocksdb.unpack import has_rocksdict
from rmqinspect.store.discover import open_store
from rmqinspect.verify.codes import BY_CODE, levels_up_to
from tests.support import oracle
from tests.support.slow_pointers import Row, Settings, Verdict, judge


class Expected(NamedTuple):
    """The columns of a finding that must be right in every case."""

    code: str
    severity: str
    file: str | None
    offset: int | None
    physical_offset: int | None
    number: int = 1  # of findings folded into it: its column `count`


class Words(NamedTuple):
    """Words about a damage inside a segment, and the code it gives at the record that was hit."""

    words: str
    code: str
    severity: str = "error"
    into: int = 0  # how far into the record the bytes were changed; used where no record is named


# `magic` of a blank and of a first record is named by the place of its 4 bytes, 4 into the record.
LOG_DAMAGE = (
    Words("body byte flipped", "CL-CRC-BODY"),
    Words("MAGICCODE", "CL-MAGIC"),
    Words("magic of the first record", "CL-MAGIC", into=4),
    Words("magic of the blank record", "CL-MAGIC", into=4),
    Words("blank record of the second-last used segment: size", "CL-BLANK-SIZE", "warning"),
    Words("TOTALSIZE", "CL-LENGTH"),
    Words("PROPERTIESLEN", "CL-LENGTH"),
    Words("topic length byte", "CL-LENGTH"),
    Words("SYSFLAG bit 4 flipped", "CL-LENGTH"),  # the head grows by 12 bytes, so the lengths no longer agree
    Words("PHYSICALOFFSET", "CL-OFFSET"),
    Words("QUEUEOFFSET", "CL-QUEUE-OFFSET", "warning"),
    Words("STORETIMESTAMP", "CL-TIME"),
)

# A record of another queue than before is named by its unit alone, CQ-MISMATCH.
NAMED_BY_UNIT = ("QUEUEID", "topic name")

# Zeros do not say where the record began that they hit; the broker does, which ended the log there.
ZEROS = (Words("second half of the last record zeroed", "CL-TORN-TAIL"), Words("page zeroed", "CL-ZERO-INSIDE"))

# Words about damage that takes the newest records away; the checkpoint remembers them.
LOST_END = ("removed commitlog/", "whole last used segment zeroed", "length 65536 -> 0")

# What is said of queues and index. Severities are those that users are told.
POINTER_SEVERITIES = {
    "CQ-SIZE": "error",
    "CQ-HOLE": "error",
    "CQ-ORDER": "error",
    "CQ-DANGLING": "error",
    "CQ-BEYOND": "error",
    "CQ-MISMATCH": "error",
    "CQ-SHIFT": "error",
    "CQ-MISSING": "error",
    "CQ-TAG": "warning",
    "CQ-BEHIND": "info",
    "CQ-EXPIRED": "info",
    "CQ-ZERO-BEHIND": "info",
    "IX-SIZE": "error",
    "IX-HEADER": "error",
    "IX-CHAIN": "error",
    "IX-DANGLING": "error",
    "IX-KEY": "error",
    "IX-BEYOND": "warning",
    "IX-TIME": "warning",
    "IX-MISSING": "warning",
    "IX-NONE": "warning",
}

# Words about a damage, as a regular expression, and the codes about queues and index that it gives. A number in
# the words is that of the units that were lost. Segments that were taken away have a rule of their own.
POINTER_DAMAGE: dict[str, frozenset[str]] = {
    r"last CQ unit now points 2\^30 bytes further": frozenset({"CQ-BEYOND", "CQ-MISSING"}),
    r"one more CQ unit that points exactly at the end": frozenset({"CQ-BEYOND"}),
    r"last used CQ file zeroed \(it held (\d+) units": frozenset({"CQ-MISSING"}),
    r"last (\d+) CQ units zeroed": frozenset({"CQ-MISSING"}),
    r"CQ unit \d+ of this file zeroed": frozenset({"CQ-HOLE", "CQ-MISSING"}),
    r"content shifted down by one unit": frozenset({"CQ-HOLE", "CQ-SHIFT", "CQ-MISSING"}),
    r"^consumequeue/.*: length 400 -> 393": frozenset({"CQ-SIZE"}),
    r"^removed consumequeue/": frozenset({"CQ-MISSING"}),
    r"^index/.*: length 5440 -> (0|5540)": frozenset({"IX-SIZE"}),
    r"^index/.*: length 5440 -> 1000": frozenset({"IX-SIZE", "IX-MISSING"}),
    r"header of the first index file zeroed": frozenset({"IX-HEADER"}),
    r"QUEUEOFFSET": frozenset({"CQ-SHIFT"}),
    r"QUEUEID": frozenset({"CQ-MISMATCH"}),
    r"topic name": frozenset({"CQ-MISMATCH"}),
    r"whole last used segment zeroed": frozenset({"CQ-BEYOND", "IX-BEYOND"}),
}
RETENTION = frozenset({"CQ-EXPIRED", "CQ-ZERO-BEHIND"})

# Stores whose queues and index say something else than the words, and why.
POINTER_DEVIATIONS: dict[str, tuple[str, frozenset[str]]] = {
    "queueid_third-4.3.2-h": ("a prepared message, which has no unit", frozenset()),
}

# MessageStoreConfig#messageDelayLevel; no store was written with another.
DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
SECONDS = {"s": 1, "m": 60, "h": 3600}

# A checkpoint may be this much newer than the newest record, in milliseconds.
CHECKPOINT_SKEW = 1000


class Deviation(NamedTuple):
    """Findings of one store that differ from the rules, and the reason."""

    reason: str
    findings: tuple[Expected, ...]


DEVIATIONS: dict[str, Deviation] = {
    "zero_page_last-5.4.0-c": Deviation(
        "the page lies within one body of 8 kB: the record around it is whole",
        (Expected("CL-CRC-BODY", "error", "commitlog/00000000000000196608", 14805, 211413),),
    ),
    "storets_last-4.9.7-h": Deviation(
        "the record has an IPv6 producer: bytes 56 to 63 are of its address, which nothing protects", ()
    ),
}


def expected(family: oracle.Family, name: str, level: str = "deep") -> list[Expected]:
    """Return what must be found in a store at a level, without ST-UNCHECKED, sorted by `in_order`."""
    found: list[Expected] = []
    if family == "crash":
        found += DEVIATIONS[name].findings if name in DEVIATIONS else _by_rules(name)
        found += _abort(name)
    else:
        halted = oracle.truth(family, name)["store"]["exit"] == "halt"
        found += [Expected("ST-ABORT", "info", "abort", None, None)] if halted else []
        found += [*_groups(name), *_deleted_topic(name)]
    of_pointers = pointers(family, name)
    rows = [row for row in of_pointers.rows if level == "deep" or row.code != "CQ-MISSING"]
    rows += of_pointers.ends if level != "deep" else []
    found += [Expected(row.code, POINTER_SEVERITIES[row.code], *row[1:]) for row in rows]
    levels = levels_up_to(level)
    return sorted((finding for finding in found if BY_CODE[finding.code].level in levels), key=in_order)


def in_order(finding: Expected) -> tuple[object, ...]:
    """Sort key: the log by physical offset, then the rest by name; enough to compare two lists."""
    place = finding.physical_offset or 0, finding.file or "", finding.offset or 0
    return (finding.code[:3], *place, finding.code, finding.number)


@cache
def pointers(family: oracle.Family, name: str) -> Verdict:
    """Return what the slow finder says of a store's queues and index."""
    verdict = judge(oracle.store(family, name), settings(family, name))
    rows = without_followers(verdict.rows)
    if any("STORETIMESTAMP" in words for words in oracle.case(family, name).get("damage", [])):
        rows = [row for row in rows if row.code != "IX-TIME"]  # CL-TIME names the record
    return verdict._replace(rows=rows)


def without_followers(rows: list[Row]) -> list[Row]:
    """Return the rows but the entries whose key only seems wrong because the record names another topic."""
    misnamed = {row.physical_offset for row in rows if row.code == "CQ-MISMATCH"}
    return [row for row in rows if row.code != "IX-KEY" or row.physical_offset not in misnamed]


@cache
def settings(family: oracle.Family, name: str) -> Settings:
    """Return the settings that a store was written with."""
    if family == "crash":
        version, given = oracle.case(family, name)["written_by"], oracle.case(family, name)["settings"]
    else:
        described = oracle.truth(family, name)["store"]
        version, given = described["rocketmq_version"], described["settings"]
    return Settings(
        version=tuple(int(number) for number in version.split(".")),
        segment_size=int(given["mappedFileSizeCommitLog"]),
        queue_size=int(given["mappedFileSizeConsumeQueue"]),
        slots=int(given["maxHashSlotNum"]),
        entries=int(given["maxIndexNum"]),
        delays=tuple(1000 * int(word[:-1]) * SECONDS[word[-1]] for word in DELAYS.split()),
        file_queues=given.get("storeType") != "defaultRocksDB",
        multi_dispatch=given.get("enableMultiDispatch") == "true",
    )


def pointer_codes(name: str) -> frozenset[str]:
    """Return the codes about queues and index that what was done to a store of the crash family leads to."""
    if name in POINTER_DEVIATIONS:
        return POINTER_DEVIATIONS[name][1]
    described = oracle.case("crash", name)
    codes: set[str] = set()
    for words in described["damage"]:
        for pattern, given in POINTER_DAMAGE.items():
            codes |= given if re.search(pattern, words) else set()
        codes |= _taken_away(name, words)
    has_units = not any(words == "removed consumequeue/" for words in described["damage"])
    if described["base_variant"] == "r" and has_units:
        codes |= RETENTION
    if described["base_variant"] == "b":
        codes |= {"CQ-BEHIND"} if "abort" in _files(name) else {"CQ-MISSING", "IX-NONE"}
    if "removed index/" in described["damage"] and ("abort" not in _files(name) or _has_index_time(name)):
        codes.add("IX-NONE")
    return frozenset(codes)


def _has_index_time(name: str) -> bool:
    """Whether the checkpoint says when an index file was written last, and so that there was one."""
    raw = (oracle.store("crash", name) / "checkpoint").read_bytes()
    return any(raw[16:24])


def lost_units(name: str) -> int | None:
    """Return how many units the words say were zeroed, None where they do not."""
    numbers = [
        int(match[1])
        for words in oracle.case("crash", name)["damage"]
        for pattern, codes in POINTER_DAMAGE.items()
        if codes == {"CQ-MISSING"} and (match := re.search(pattern, words)) is not None and match.groups()
    ]
    return sum(numbers) if numbers else None


def _taken_away(name: str, words: str) -> frozenset[str]:
    """What units and entries say of a removed segment: an older log, a shorter one, or a hole."""
    removed = re.match(r"removed commitlog/(\d*)", words)
    if removed is None:
        return frozenset()
    left = [int(file[-20:]) for file, size in _files(name).items() if re.match(r"commitlog/\d{20}$", file) and size]
    if not left or not removed[1] or int(removed[1]) > max(left):
        return frozenset({"CQ-BEYOND", "IX-BEYOND"})
    return RETENTION if int(removed[1]) < min(left) else frozenset()


def _groups(name: str) -> Iterator[Expected]:
    """Groups whose offset lies before the first message that the broker still serves."""
    truth = oracle.truth("broker", name)
    start = truth["store"]["min_phy"]
    first: dict[tuple[str, int], int] = {}
    for row in truth["served"]:
        if row.get("physical_offset", -1) >= start:
            first.setdefault((row["topic"], row["queue_id"]), row["queue_offset"])
    ends = {(queue["topic"], queue["queue_id"]): queue["max"] for queue in truth["queues"]}
    for group in truth["groups"] if settings("broker", name).file_queues else []:
        queue = group["topic"], group["queue_id"]
        if queue in ends and group["offset"] < first.get(queue, ends[queue]):
            yield Expected("ST-GROUP-LOST", "info", "config/consumerOffset.json", None, None)


def _deleted_topic(name: str) -> Iterator[Expected]:
    """The first record that the log still has of the topic that a command deleted, with its queues and offsets."""
    truth = oracle.truth("broker", name)
    sent = (message["offset_msg_id"] for message in truth["sent"] if message.get("topic_deleted_later"))
    places = [int(offset_id[-16:], 16) for offset_id in sent]
    store = open_store([str(oracle.store("broker", name))])
    if truth["names"]["topics"]["deleted"] in {file.topic for file in store.queue_files}:
        return  # the broker was killed before it deleted the queues
    if name.startswith("rocksdb-") and not has_rocksdict():
        return  # whether it has queues there is not known
    kept = [place for place in places if place >= store.log_start]
    segment = store.segment_at(min(kept)) if kept else None
    if segment is not None:
        yield Expected("CQ-NO-TOPIC", "info", segment.name, min(kept) - segment.base, min(kept))


def _abort(name: str) -> Iterator[Expected]:
    if "abort" in _files(name):
        yield Expected("ST-ABORT", "info", "abort", None, None)


def _files(name: str) -> dict[str, int]:
    """Return the lengths of the store's files, as the broker's own listing has them."""
    return dict(oracle.truth("crash", name)["files_before"])


def _by_rules(name: str) -> Iterator[Expected]:
    described = oracle.case("crash", name)
    for words in described["damage"]:
        yield from _one_damage(name, words)
    if any(lost in words for words in described["damage"] for lost in LOST_END):
        yield from _lost_end(name)


# Words about an entry that does not belong where it is: what it is, its code, and its severity.
STRAYS = (
    (r"created (index/\d+)/", "IX-NAME", "error"),  # a folder with the name of an index file
    (r"created (index/[^/,]*[^/,\d][^/,]*)", "IX-NAME", "info"),
    (r"created (consumequeue/[^/,]+),", "CQ-NAME", "info"),
    (r"created (consumequeue/[^/,]+/[^/,]*[^/,\d][^/,]*)[/,]", "CQ-NAME", "info"),
    (r"created (consumequeue/[^/,]+/\d+/[^/,]*[^/,\d][^/,]*),", "CQ-NAME", "error"),
)


def _version(name: str) -> tuple[int, ...]:
    return tuple(map(int, oracle.case("crash", name)["written_by"].split(".")))


def _stray(words: str) -> Iterator[Expected]:
    for pattern, code, severity in STRAYS:
        if (entry := re.match(pattern, words)) is not None:
            yield Expected(code, severity, entry[1], None, None)


def _one_damage(name: str, words: str) -> Iterator[Expected]:
    yield from _stray(words)
    named = re.match(r"(?:created |removed )?(commitlog|checkpoint)\b", words)
    if named is None:
        return
    if named[1] == "checkpoint":
        yield from _checkpoint(words)
    elif words.startswith(("created", "removed")):
        yield from _names(name, words)
    elif (length := re.fullmatch(r"(commitlog/(\d{20})): length (\d+) -> (\d+)", words)) is not None:
        yield Expected("CL-SIZE", "error", length[1], None, int(length[2]))
    else:
        yield from _inside(name, words)


def _inside(name: str, words: str) -> Iterator[Expected]:
    place = re.match(r"(commitlog/(\d{20})) at offset (\d+)", words)
    assert place is not None, words
    file, base = place[1], int(place[2])
    for kind in ZEROS:
        if kind.words in words:
            stopped = oracle.truth("crash", name)["after_load"]["max_phy"]
            yield Expected(kind.code, kind.severity, file, stopped - base, stopped)
            return
    if any(lost in words for lost in LOST_END):
        return  # as if preallocated: only the checkpoint tells
    if any(field in words for field in NAMED_BY_UNIT):
        return  # its unit tells
    (kind,) = [kind for kind in LOG_DAMAGE if kind.words in words]
    record = re.search(r"record at position (\d+)", words)
    position = int(record[1]) if record is not None else int(place[3]) - kind.into
    yield Expected(kind.code, kind.severity, file, position, base + position)
    if kind.code == "CL-CRC-BODY" and oracle.case("crash", name)["base_variant"] in ("p", "ph", "g", "gh"):
        # These stores have a CRC over each whole record, the body included.
        yield Expected("CL-CRC-RECORD", kind.severity, file, position, base + position)


def _names(name: str, words: str) -> Iterator[Expected]:
    entry = re.search(r"commitlog/([^/,]+)", words)
    if entry is None:
        return  # the whole folder
    file = f"commitlog/{entry[1]}"
    if not re.fullmatch(r"\d{20}", entry[1]):
        skipped = "/" in words.partition("commitlog/")[2] and _version(name) >= (5, 1, 0)
        yield Expected("CL-NAME", "info" if skipped else "error", file, None, None)
    elif words.startswith("created"):
        yield Expected("CL-SIZE", "error", file, None, int(entry[1]))
    else:
        left = [other for other in _files(name) if other.startswith("commitlog/0")]
        # A log that ends early is a shorter log; one that begins late was not cleaned up behind, as by a retention.
        if left and min(left) < file < max(left):
            yield Expected("CL-HOLE", "error", file, None, int(entry[1]))
        if left and file < min(left):
            yield Expected("CL-FIRST", "warning", min(left), None, int(min(left)[-20:]), 1)


def _checkpoint(words: str) -> Iterator[Expected]:
    if words.startswith("removed") or "length 4096 -> 20" in words:
        yield Expected("ST-CHECKPOINT", "warning", "checkpoint", None, None)
    elif "checkpoint zeroed" in words:
        yield Expected("ST-CHECKPOINT", "warning", "checkpoint", 0, None)
    else:
        assert "three timestamps of the checkpoint moved 10^10 ms into the future" in words
        for field in range(3):
            yield Expected("ST-CHECKPOINT", "warning", "checkpoint", 8 * field, None)


def _lost_end(name: str) -> Iterator[Expected]:
    """Yield a finding for each time of the checkpoint that is newer than the newest record left."""
    described = oracle.case("crash", name)
    end = oracle.truth("crash", name)["after_load"]["max_phy"]
    written = oracle.puts(f"base-{described['written_by']}-{described['exit']}")
    newest = max((put["store_timestamp"] for put in written if put["phys"] < end), default=0)
    times = struct.unpack(">3q", (oracle.store("crash", name) / "checkpoint").read_bytes()[:24])
    severity = "warning" if newest else "error"  # no record at all is left: the log is lost
    for number, time in enumerate(times):
        if time > newest + CHECKPOINT_SKEW:
            yield Expected("ST-CHECKPOINT", severity, "checkpoint", 8 * number, None)
