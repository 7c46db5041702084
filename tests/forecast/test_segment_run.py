"""The scan by windows against a walk record by record, for the rules of all releases, on damaged segments."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import eras, rules_of_start
from rmqinspect.broker.start_rules import Rules
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.check import check_record, from_bytes
from rmqinspect.forecast.scan import LogScanner, Scan
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas import message
from rmqinspect.schemas.places import place_of
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment
from tests.support import oracle
from tests.support.broken_disk import broken_disk

HEAD = message.HEADS[False, False]
SIZES = {field.name: field.sizeof() for field in message.FRONT}
PROPERTY_CRC = Settings(force_verify_prop_crc=True)
OFFSETS = Settings(check_commit_log_offset_on_recover=True)


class Log(NamedTuple):
    """A log of which the test knows every byte."""

    segments: list[Segment]
    raws: list[bytearray]
    records: list[tuple[int, int]]  # index of the segment, position in it

    def write(self) -> None:
        for segment, raw in zip(self.segments, self.raws, strict=True):
            Path(segment.path).write_bytes(raw)

    def set(self, record: int, field: str, value: int) -> None:
        index, position = self.records[record]
        at, size = position + place_of(HEAD, field), SIZES[field]
        self.raws[index][at : at + size] = value.to_bytes(size, "big", signed=True)

    def replace(self, record: int, name: bytes, text: bytes) -> None:
        """Overwrite the record's properties from a name on."""
        index, position = self.records[record]
        at = self.raws[index].index(name, position)
        self.raws[index][at : at + len(text)] = text


def log_of(name: str, folder: Path) -> Log:
    """Return a copy of the segments of an undamaged store."""
    copies, raws, records = [], [], []
    for index, segment in enumerate(open_store([str(oracle.store("crash", name))]).segments):
        raw = bytearray(Path(segment.path).read_bytes())
        copies.append(replace(segment, path=str(folder / Path(segment.path).name)))
        raws.append(raw)
        position = 0
        while int.from_bytes(raw[position + 4 : position + 8], "big", signed=True) in message.RECORD_MAGICS:
            records.append((index, position))
            position += int.from_bytes(raw[position : position + 4], "big")
    return Log(copies, raws, records)


class Slow(NamedTuple):
    """What a walk record by record finds."""

    end: int
    records: list[int]  # physical offsets
    mismatched: list[int]  # sizes


def walk(log: Log, rules: Rules, settings: Settings, *, clean: bool) -> Slow:
    """Walk as CommitLog#recoverNormally and #recoverAbnormally do."""
    index = position = shift = 0
    found, raws = Slow(0, [], []), [bytes(raw) for raw in log.raws]
    while True:
        raw, base = raws[index], log.segments[index].base
        check = check_record(from_bytes(raw), position, len(raw) - position, rules, settings, crc=True)
        own = int.from_bytes(raw[position + 28 : position + 36], "big", signed=True)
        asked = rules.offset_check and settings.check_commit_log_offset_on_recover and not clean
        if asked and check.success and check.size and not base <= own <= base + len(raw):
            break
        if check.success and check.size:
            found.records.append(base + position)
            position += check.size
        elif check.success and index + 1 < len(log.raws):
            index, position, shift = index + 1, 0, 0
        elif check.size > 0 and not check.success and rules.unclean_mismatch == "data" and not clean:
            found.mismatched.append(check.size)
            position, shift = position + check.parsed, shift + check.size - check.parsed
        else:
            break
    return found._replace(end=log.segments[index].base + position + shift)


def scanned(scanner: LogScanner, rules: Rules, *, clean: bool) -> Slow:
    """Return what the scan finds, with the same words."""
    found = Slow(0, [], [])

    def take(batch: Batch) -> None:
        found.records.extend((batch.records.base + batch.records.starts).tolist())
        found.mismatched.extend(batch.mismatched)

    taken = scanner.scan(rules, 0, 0, clean=clean, take=take)
    assert scanner.scan(rules, 0, 0, clean=clean, take=None) == taken
    assert taken.records == len(found.records)
    return found._replace(end=taken.end)


def damage(log: Log, draw: random.Random) -> None:
    """Change some fields and properties to what some releases accept and others refuse."""
    for _ in range(draw.choice([1, 3, 6])):
        record = draw.randrange(len(log.records) // 3, len(log.records))
        kind = draw.randrange(5)
        if kind == 0:
            log.set(record, "sys_flag", draw.choice([0x10, 0x30, 0]))
        elif kind == 1:
            log.set(record, "total_size", draw.choice([91, 300, 5000, -1]))
        elif kind == 2:
            log.set(record, "magic", draw.choice([message.MAGIC_V2, message.MAGIC_BLANK, 0]))
        elif kind == 3:
            log.set(record, "physical_offset", draw.choice([0, 1 << 40, log.segments[log.records[record][0]].end]))
        else:
            text = draw.choice([b"DELAY\x01x\x02", b"INNER_NUM\x01x\x02INNER_BASE\x011\x02", b"DUP_INFO\x01a_b\x02"])
            log.replace(record, b"UNIQ_KEY\x01", text)


def with_property_crc() -> str:
    """Return an undamaged store whose records have the property `__CRC32#`."""
    found = (name for name in oracle.cases("crash") if oracle.case("crash", name)["base_variant"] == "p")
    return next(name for name in found if not oracle.is_damaged(name))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("base-4.2.0-halt", Settings()),
        ("base-4.7.1-clean", OFFSETS),
        ("base-5.1.4-clean", Settings()),
        ("base-5.1.4-clean", Settings(duplication_enable=True)),
        ("base-5.5.0-halt", OFFSETS),
        (with_property_crc(), Settings()),
        (with_property_crc(), PROPERTY_CRC),
    ],
)
def test_windows_are_judged_as_records_are(name: str, settings: Settings, tmp_path: Path) -> None:
    draw = random.Random(f"{name} {settings}")
    log = log_of(name, tmp_path)
    damage(log, draw)
    log.write()
    scanner = LogScanner(open_store([str(tmp_path)]), log.segments, settings, jobs=2)
    # One scanner for all: what it has kept for some rules must hold for others.
    for era in draw.sample(eras(), 8):
        rules = rules_of_start(era.first)
        for clean in (True, False):
            assert scanned(scanner, rules, clean=clean) == walk(log, rules, settings, clean=clean), (era, clean)


# --- what follows the end, and what cannot be read ---------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return log_of("base-4.9.7-halt", tmp_path)


def scan(log: Log, release: str) -> Scan:
    log.write()
    scanner = LogScanner(open_store([str(Path(log.segments[0].path).parent)]), log.segments, Settings())
    return scanner.scan(rules_of_start(release), 0, 0, clean=True, take=None)


def test_zeros_behind_the_end_are_not_rejected(log: Log) -> None:
    found = scan(log, "5.5.0")
    assert (found.check.reason, found.rejected) == ("zero", None)
    assert found.records == len(log.records)
    assert found.last_record == log.segments[log.records[-1][0]].base + log.records[-1][1]


def test_zeros_are_rejected_where_data_follows(log: Log) -> None:
    index, position = log.records[-20]
    log.raws[index][position : position + 8] = bytes(8)
    found = scan(log, "5.5.0")
    assert found.rejected is not None
    assert (found.rejected.rule, found.rejected.position) == ("zero", position)
    assert found.rejected.physical_offset == found.end == log.segments[index].base + position


def test_data_in_a_later_segment_follows_too(log: Log) -> None:
    index = log.records[-1][0]
    first = min(position for segment, position in log.records if segment == index)
    log.raws[index - 1][:8] = bytes(8)
    log.raws[index - 1][8:] = bytes(len(log.raws[index - 1]) - 8)
    found = scan(log, "5.5.0")
    assert first == 0
    assert (found.segment, found.position) == (index - 1, 0)
    assert found.rejected is not None


def test_a_blank_record_in_the_last_segment_is_overwritten(log: Log) -> None:
    index, position = log.records[-1]
    end = position + int.from_bytes(log.raws[index][position : position + 4], "big")
    log.raws[index][end : end + 8] = (len(log.raws[index]) - end).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    del log.raws[index + 1 :], log.segments[index + 1 :]
    found = scan(log, "5.5.0")
    assert (found.check.is_blank, found.rejected) == (True, None)
    assert found.end == log.segments[index].base + end


def test_a_segment_that_is_missing_is_stepped_over(log: Log) -> None:
    del log.raws[1], log.segments[1]
    found = scan(log, "5.5.0")
    index, position = log.records[-1]
    assert found.last_record == log.segments[index - 1].base + position


def test_what_cannot_be_read_is_said(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    index, position = log.records[-10]
    name, start = Path(log.segments[index].path).name, position // 512 * 512
    with broken_disk(monkeypatch, lambda path: path.name == name, start, start + 512):
        unreadable = scan(log, "5.5.0").unreadable
    assert unreadable is not None
    assert name in unreadable
    # Behind the end nothing depends on it.
    with broken_disk(monkeypatch, lambda path: path.name == name, len(log.raws[index]) - 512, len(log.raws[index])):
        assert scan(log, "5.5.0").unreadable is None


def test_a_body_that_is_skipped_may_be_longer_than_its_record(log: Log) -> None:
    index, position = log.records[0]
    at = position + place_of(HEAD, "body_size")
    log.raws[index][at : at + 4] = (20000).to_bytes(4, "big")
    log.write()
    checks = {}
    for read_body in (True, False):
        scanner = LogScanner(
            open_store([str(Path(log.segments[0].path).parent)]), log.segments, Settings(), read_body=read_body
        )
        checks[read_body] = scanner.scan(rules_of_start("4.9.7"), index, position, clean=True, take=None).check
    assert checks[True].reason == "field_size"
    # The lengths of topic and properties are read from the middle of a later record.
    assert checks[False].parsed > 20000


def test_progress_adds_up_to_the_bytes_of_the_records(log: Log) -> None:
    log.write()
    done: list[int] = []
    scanner = LogScanner(open_store([str(Path(log.segments[0].path).parent)]), log.segments, Settings(), 2, done.append)
    scanner.scan(rules_of_start("4.9.7"), 0, 0, clean=True, take=None)
    sizes = (int.from_bytes(log.raws[index][at : at + 4], "big") for index, at in log.records)
    assert sum(done) == sum(sizes)
