"""Repairs: what has a proof is repaired to the byte, what has none is not touched."""

import random
import shutil
from pathlib import Path

import pytest

from rmqinspect.commitlog.records import Records
from rmqinspect.rescue.given import open_sources
from rmqinspect.rescue.log_plan import LogPlan, Planner
from rmqinspect.rescue.repair import Times, Unit, repair_record, time_change, topic_of
from rmqinspect.rescue.sources import Composite, judge_source
from rmqinspect.schemas.message import TRANSACTION_MASK, SysFlag
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import sound_records
from tests.support import oracle
from tests.support.building import STORED, fields_of, record
from tests.support.sampling import rare

# What the body's CRC, the lengths, the place or the queue unit determine; of STORETIMESTAMP the high bits.
PROVEN = (
    "body",
    "body_crc",
    "total_size",
    "magic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "body_size",
    "topic_size",
    "topic",
    "properties_size",
)


def plan_of(store: Path) -> LogPlan:
    """Return what a salvage of one store would write."""
    size = open_store([str(store)]).segment_size
    assert size is not None
    given = open_sources([("store", str(store))], {})
    sources = [judge_source(name, one, size, jobs=1, release=None, progress=lambda _: None) for name, one in given]
    return Planner(Composite(sources), size, repairs=True).make()


@pytest.mark.parametrize(
    ("name", "flips"),
    [
        ("base-5.3.3-clean", 20),
        ("base-4.9.7-halt", 20),
        *(rare((name, 300)) for name in ("base-4.2.0-clean", "base-5.1.4-halt", "base-5.5.0-clean")),
    ],
)
def test_a_flipped_bit_with_a_counterpart_is_repaired(name: str, flips: int, tmp_path: Path) -> None:
    store = oracle.copy("crash", name, tmp_path)
    # Prepared and rolled-back messages have no unit: nothing says which queue they are of.
    records = {
        place: raw
        for place, raw in sound_records(open_store([str(store)])).items()
        if int.from_bytes(raw[36:40], "big") & TRANSACTION_MASK in (0, SysFlag.TRANSACTION_COMMIT)
    }
    rng = random.Random(name)
    size = open_store([str(store)]).segment_size or 0
    for number in range(flips):
        place, raw = rng.choice(sorted(records.items()))
        names = fields_of(raw)
        field = PROVEN[number % len(PROVEN)]
        places = [at for at, one in enumerate(names) if one == field]
        if not places:
            continue
        at, bit = rng.choice(places), rng.randrange(8)
        path = store / f"commitlog/{place - place % size:020}"
        kept = path.read_bytes()
        changed = bytearray(kept)
        changed[place % size + at] ^= 1 << bit
        path.write_bytes(changed)
        plan = plan_of(store)
        path.write_bytes(kept)
        assert [(one.place, one.raw) for one, _ in plan.repaired] == [(place, raw)], (field, place, at, bit)
        assert not plan.lost


def test_every_bit_of_a_record_with_its_own_crc_is_repaired() -> None:
    raw = record(4096, properties={"UNIQ_KEY": "7F00"}, body=b"a body", crc=True)
    for at in range(len(raw)):
        changed = raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]
        found = repair_record(changed + bytes(200), 4096, 60_000, len(raw))
        # The name of the property is covered by nothing: without it the record has no CRC, and is sound.
        if fields_of(raw)[at] in ("crc_name", "crc"):
            assert found is None or found.raw == raw
        else:
            assert found is not None, (at, fields_of(raw)[at])
            assert found.raw == raw


def test_two_flipped_bits_are_not_repaired() -> None:
    raw = bytearray(record(0, body=b"x" * 300))
    raw[100] ^= 1
    raw[200] ^= 4
    assert repair_record(bytes(raw) + bytes(100), 0, 60_000, len(raw)) is None


def test_damage_of_a_field_up_to_bytes_that_nothing_proves_is_not_repaired() -> None:
    raw = record(0, properties={"UNIQ_KEY": "7F00", "TAGS": "a"}, body=b"x" * 300)
    at = fields_of(raw).index("properties_size")
    size = int.from_bytes(raw[at : at + 2], "big")
    for other, proven in ((size ^ 4, True), (size | 0x4000, True), (size | 0x6000, True), (size ^ 0x26, False)):
        changed = raw[:at] + other.to_bytes(2, "big") + raw[at + 2 :]
        found = repair_record(changed + bytes(100), 0, 60_000, len(raw))
        assert (found is not None and found.raw == raw) is proven, other


def test_a_sysflag_with_bits_that_mean_nothing_is_not_repaired() -> None:
    raw = record(0, sys_flag=0x100)
    unit = Unit("TopicA", 0, 0, 0, len(raw), 0)._replace(topic=topic_of(Records.of_one(raw, 0)).decode())
    for flags, proven in ((0x104, True), (0x504, False), (0x1104, False)):
        changed = raw[:36] + flags.to_bytes(4, "big") + raw[40:]
        found = repair_record(changed + bytes(100), 0, 60_000, len(raw), unit)
        assert (found is not None and found.raw == raw) is proven, hex(flags)
        assert proven or found is None


def test_in_a_body_with_a_lost_page_no_bit_is_looked_for() -> None:
    body = random.Random(1).randbytes(3 << 20)
    raw = bytearray(record(0, body=body))
    raw[8192 : 8192 + 4096] = bytes(4096)
    assert repair_record(bytes(raw) + bytes(100), 0, 1 << 30, len(raw)) is None


def test_a_store_time_gets_back_its_bit_or_comes_between_its_neighbours() -> None:
    raw = bytearray(record(0, store_timestamp=STORED ^ 1 << 30))
    found = time_change(bytes(raw), 0, Times(STORED - 5, STORED + 5))
    assert found is not None
    assert int.from_bytes(found.after, "big") == STORED
    assert found.bit is not None
    odd = time_change(record(0, store_timestamp=STORED + 3_600_000), 0, Times(STORED - 5, STORED + 5))
    assert odd is not None
    assert int.from_bytes(odd.after, "big") == STORED - 5
    assert "at most 10 ms" in odd.proof
    assert time_change(record(0), 0, Times(STORED - 5, STORED + 5)) is None


def test_the_index_and_the_unit_narrow_a_store_time_down() -> None:
    raw = record(0, store_timestamp=STORED ^ 1 << 12)
    wide = Times(STORED - 3_600_000, STORED + 3_600_000)
    # Between its neighbours nothing is wrong with it; one witness alone may be wrong itself.
    second = STORED - STORED % 1000, STORED - STORED % 1000 + 999
    delivery = STORED + 5000
    assert time_change(raw, 0, wide) is None
    assert time_change(raw, 0, wide._replace(indexed=second)) is None
    assert time_change(raw, 0, wide._replace(delivery=delivery)) is None
    assert time_change(raw, 0, wide._replace(batch=STORED)) is None
    for times in (
        wide._replace(indexed=second, delivery=delivery),
        wide._replace(indexed=second, batch=STORED),
        wide._replace(indexed=second, contradicted=True),
    ):
        found = time_change(raw, 0, times)
        assert found is not None
        assert (int.from_bytes(found.after, "big"), found.exact) == (STORED, True)
    # Far from its neighbours, and no bit does: it is as good as the index knows.
    odd = record(0, store_timestamp=STORED + 86_400_000)
    found = time_change(odd, 0, wide._replace(indexed=second))
    assert found is not None
    assert (int.from_bytes(found.after, "big"), found.exact) == (second[0], False)
    assert "at most 999 ms" in found.proof


def test_a_negative_queue_id_gets_back_its_sign() -> None:
    raw = record(0, queue_id=3, sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    at = fields_of(raw).index("queue_id")
    changed = raw[:at] + bytes([raw[at] ^ 0x80]) + raw[at + 1 :]
    found = repair_record(changed + bytes(100), 0, 60_000, len(raw))
    assert found is not None
    assert found.raw == raw
    odd = raw[:at] + b"\xff\xff\xff\xfd" + raw[at + 4 :]
    assert repair_record(odd + bytes(100), 0, 60_000, len(raw)) is None


@pytest.mark.parametrize("hosts", ["10.0.0.1:40000", "[fe80::1]:40000"])
@pytest.mark.parametrize("field", ["born_host", "store_host"])
def test_a_port_above_65535_gets_back_its_bit(field: str, hosts: str) -> None:
    raw = record(0, born_host=hosts, store_host=hosts)
    last = len(fields_of(raw)) - 1 - fields_of(raw)[::-1].index(field)
    for at in (last - 3, last - 2):
        for bit in range(8):
            changed = bytearray(raw + bytes(100))
            changed[at] ^= 1 << bit
            found = repair_record(bytes(changed), 0, 60_000, len(raw))
            assert found is not None and found.raw == raw
            changed[at] ^= 1 << (bit + 1) % 8
            assert repair_record(bytes(changed), 0, 60_000, len(raw)) is None


def test_a_record_that_ends_in_zeros_is_not_repaired() -> None:
    """What was torn before its end has lost properties that nothing tells."""
    raw = record(0, properties={"UNIQ_KEY": "7F00", "TAGS": "a"})
    for zeros in range(len("a\x02TAGS")):
        changed = bytearray(raw[: len(raw) - zeros] + bytes(zeros + 100))
        changed[4] ^= 1
        assert (repair_record(bytes(changed), 0, 60_000, len(raw)) is None) is bool(zeros)


def test_a_shifted_queue_proves_nothing_about_its_records(tmp_path: Path) -> None:
    shutil.copytree(oracle.store("crash", "base-5.3.3-clean"), tmp_path / "store")
    queue = next(iter(sorted((tmp_path / "store/consumequeue/TopicA/0").iterdir())))
    raw = queue.read_bytes()
    queue.write_bytes(raw[20:] + bytes(20))
    assert plan_of(tmp_path / "store").repaired == []


def test_nor_about_damaged_ones(tmp_path: Path) -> None:
    """The magic of a record is repaired, and its queue offset stays: the first unit behind a lost one leads here."""
    store = oracle.copy("crash", "base-5.3.3-clean", tmp_path)
    queue = next(iter(sorted((store / "consumequeue/TopicA/0").iterdir())))
    units = queue.read_bytes()
    queue.write_bytes(units[:20] + units[40:] + bytes(20))
    place = int.from_bytes(units[40:48], "big")
    path = store / f"commitlog/{place - place % (open_store([str(store)]).segment_size or 1):020}"
    log, at = bytearray(path.read_bytes()), place - int(path.name)
    kept = bytes(log[at : at + int.from_bytes(log[at : at + 4], "big")])
    log[at + 4] ^= 1
    path.write_bytes(log)
    (repaired,) = [one for one, _ in plan_of(store).repaired if one.place == place]
    assert repaired.raw == kept
