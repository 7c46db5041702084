"""What `verify` has to find in every real store, told by what was done to the store.

The crash family says of each case in plain words which bytes of which file were changed (`case.json`), and
the broker where it stopped reading (`truth.json`). From these, and never from an answer of `verify`, come the
findings: a table of words for damage inside the log, a rule for names and lengths, a rule for the checkpoint.
Where a store deviates from the tables, `DEVIATIONS` has its findings and the reason.

Damage to consume queues, index files and the lock is not looked for yet, and nothing may be said about it.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from tests import oracle


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
    Words("QUEUEID", "CL-QUEUE-OFFSET", "warning"),
    Words("topic name", "CL-QUEUE-OFFSET", "warning"),
    Words("STORETIMESTAMP", "CL-TIME", "info"),
)

# Zeros do not say where the record began that they hit; the broker does, which ended the log there.
ZEROS = (Words("second half of the last record zeroed", "CL-TORN-TAIL"), Words("page zeroed", "CL-ZERO-INSIDE"))

# Harmless by itself: a start that finds it reads the log from its beginning.
HARMLESS = ("checkpoint zeroed",)

# Words about damage that takes the newest records away; the checkpoint remembers them.
LOST_END = ("removed commitlog/", "whole last used segment zeroed", "length 65536 -> 0")

# A checkpoint may be this much newer than the newest record, in milliseconds.
CHECKPOINT_SKEW = 1000


class Deviation(NamedTuple):
    """What is found instead in one store, and why."""

    reason: str
    findings: tuple[Expected, ...]


DEVIATIONS: dict[str, Deviation] = {
    "zero_page_last-5.4.0-c": Deviation(
        "the page lies within one body of 8 kB: the record around it is whole",
        (Expected("CL-CRC-BODY", "error", "commitlog/00000000000000196608", 14805, 211413),),
    ),
    "storets_last-5.5.0-c": Deviation(
        "a record that is an hour too new is told by the next one, which seems older",
        (Expected("CL-TIME", "info", "commitlog/00000000000000196608", 19747, 216355),),
    ),
    "storets_last-4.9.7-h": Deviation(
        "the record has an IPv6 producer: bytes 56 to 63 are of its address, which nothing protects", ()
    ),
    "queueid_third-5.2.0-c": Deviation(
        "the record is alone in the queue it moved to, so the gap that it left in its own queue tells it",
        (Expected("CL-QUEUE-OFFSET", "warning", "commitlog/00000000000000065536", 60322, 125858),),
    ),
    "queueid_third-4.3.2-h": Deviation("a prepared message, whose queue offset is 0 and does not count", ()),
    "topicname_last-5.2.0-h": Deviation(
        "the last record of its queue, and alone in the queue it moved to: only the consume queue knows better", ()
    ),
}


def expected(family: oracle.Family, name: str) -> list[Expected]:
    """Return what must be found in a store, without ST-UNCHECKED, sorted by `in_order`."""
    if family == "broker":
        halted = oracle.truth(family, name)["store"]["exit"] == "halt"
        return [Expected("ST-ABORT", "info", "abort", None, None)] if halted else []
    found = DEVIATIONS[name].findings if name in DEVIATIONS else tuple(_by_rules(name))
    return sorted([*found, *_abort(name)], key=in_order)


def in_order(finding: Expected) -> tuple[object, ...]:
    """Sort key: the log by physical offset, then the rest by name; enough to compare two lists."""
    return (finding.code[:3], finding.physical_offset or 0, finding.file or "", finding.code)


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


def _one_damage(name: str, words: str) -> Iterator[Expected]:
    named = re.match(r"(?:created |removed )?(commitlog|checkpoint)\b", words)
    if named is None or any(harmless in words for harmless in HARMLESS):
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
        yield Expected("CL-NAME", "error", file, None, None)
    elif words.startswith("created"):
        yield Expected("CL-SIZE", "error", file, None, int(entry[1]))
    else:
        left = [other for other in _files(name) if other.startswith("commitlog/0")]
        # Retention takes the first segments away, and a log that ends early is a shorter log.
        if left and min(left) < file < max(left):
            yield Expected("CL-HOLE", "error", file, None, int(entry[1]))


def _checkpoint(words: str) -> Iterator[Expected]:
    if words.startswith("removed") or "length 4096 -> 20" in words:
        yield Expected("ST-CHECKPOINT", "warning", "checkpoint", None, None)
    else:
        assert "three timestamps of the checkpoint moved 10^10 ms into the future" in words
        yield Expected("ST-CHECKPOINT", "warning", "checkpoint", 0, None, 3)


def _lost_end(name: str) -> Iterator[Expected]:
    """What the checkpoint remembers of records that are gone: times newer than the newest one left."""
    described = oracle.case("crash", name)
    end = oracle.truth("crash", name)["after_load"]["max_phy"]
    written = oracle.puts(f"base-{described['written_by']}-{described['exit']}")
    newest = max((put["store_timestamp"] for put in written if put["phys"] < end), default=0)
    times = struct.unpack(">3q", (oracle.store("crash", name) / "checkpoint").read_bytes()[:24])
    newer = [number for number, time in enumerate(times) if time > newest + CHECKPOINT_SKEW]
    if newer:
        assert newer == list(range(newer[0], newer[-1] + 1)), "neighbours are one finding"
        severity = "warning" if newest else "error"  # no record at all is left: the log is lost
        yield Expected("ST-CHECKPOINT", severity, "checkpoint", 8 * newer[0], None, len(newer))
