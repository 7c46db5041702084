"""The slow oracle against brokers and against words, and the product against the slow oracle.

`slow_pointers` is believed where it says of real stores what their brokers said and what was done to them. Then
small changes are made to stores, one at a time, and both have to find the same.
"""

import random
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE, QueueUnit
from rmqinspect.schemas.index import IndexEntry, IndexHeader
from rmqinspect.schemas.message import Message
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.expected_findings import (
    POINTER_DEVIATIONS,
    POINTER_SEVERITIES,
    lost_units,
    pointer_codes,
    pointers,
    settings,
    without_followers,
)
from tests.support.sampling import sampled
from tests.support.side_tables import CUT, FILE_QUEUES, UNDAMAGED
from tests.support.slow_pointers import (
    UNIT,
    IndexFile,
    Log,
    Record,
    Row,
    Settings,
    Unit,
    index_paths,
    judge,
    read_index_file,
    read_log,
)

CRASH = oracle.cases("crash")
# The dispatcher of these writers was stopped: a start dispatches what they left.
STOPPED = {name for name in CRASH if oracle.case("crash", name)["base_variant"] == "b"}


# --- the oracle against brokers and words ---------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in UNDAMAGED if name not in CUT | STOPPED])
def test_the_oracle_reads_the_units_that_the_store_class_lists(name: str) -> None:
    read: dict[tuple[str, int], list[list[int]]] = {}
    for unit in pointers("crash", name).units:
        line = [unit.number, unit.physical_offset, unit.size, unit.tags_code]
        read.setdefault((unit.topic, unit.queue_id), []).append(line)
    listed = oracle.truth("crash", name)["after_load"]["queues"]
    queues = {(queue["topic"], queue["queue_id"]): queue for queue in listed if queue["max_offset"]}
    assert read.keys() == queues.keys()
    for queue, units in read.items():
        assert [unit for unit in units if unit[0] >= queues[queue]["min_offset"]] == queues[queue]["units"]


@pytest.mark.parametrize("name", sampled(FILE_QUEUES, 3))
def test_the_oracle_reads_the_units_that_the_broker_serves(name: str) -> None:
    truth = oracle.truth("broker", name)
    read = {(unit.topic, unit.queue_id, unit.number): unit.physical_offset for unit in pointers("broker", name).units}
    inner = {row["topic"] for row in truth["served"] if "inner" in row}  # their units are of another kind
    served = {
        (row["topic"], row["queue_id"], row["queue_offset"]): row.get("cq_physical_offset", row["physical_offset"])
        for row in truth["served"]
        if row.get("physical_offset", -1) >= truth["store"]["min_phy"]
        and row["topic"] not in inner
        and "from_compaction_log" not in row
    }
    assert served
    assert {key: read.get(key) for key in served} == served


def test_the_oracle_says_of_a_damaged_store_what_the_words_say() -> None:
    for name in CRASH:
        rows, lost = pointers("crash", name).rows, lost_units(name)
        assert {row.code for row in rows} == pointer_codes(name), name
        assert lost is None or sum(row.number for row in rows if row.code == "CQ-MISSING") == lost, name


def test_every_deviation_from_the_words_deviates(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {name: pointer_codes(name) for name in POINTER_DEVIATIONS}
    monkeypatch.setattr("tests.support.expected_findings.POINTER_DEVIATIONS", {})
    assert [name for name in listed if pointer_codes(name) == listed[name]] == []


# --- the product against the oracle, one change at a time -----------------------------------------

STORES: tuple[tuple[oracle.Family, str], ...] = (
    ("crash", "base-5.3.3-clean"),
    ("crash", "base-4.9.7-halt"),
    ("crash", "none-4.7.1-r"),
    ("crash", "none-5.2.0-b"),
    ("broker", "lmq-5.3.3"),
    ("broker", "main-5.4.0"),
)


class Changeable:
    """A copy of a store that takes its changes back, and what the oracle knew of it before."""

    def __init__(self, family: oracle.Family, name: str, folder: Path) -> None:
        self.root: Path = oracle.copy(family, name, folder)
        for huge in ("timerlog", "timerwheel"):  # nothing here is about them, and they take long
            path = self.root / huge
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self.settings: Settings = settings(family, name)
        self.units: list[Unit] = pointers(family, name).units
        self.log: Log = read_log(self.root, self.settings)
        self.records: list[Record] = list(self.log.records.values())
        self.index: list[IndexFile] = [
            read_index_file(path, self.root, self.settings) for path in index_paths(self.root)
        ]
        self._before: dict[Path, bytes] = {}

    def queue(self, topic: str, queue_id: int = 0) -> list[Unit]:
        return [unit for unit in self.units if (unit.topic, unit.queue_id) == (topic, queue_id)]

    def write(self, name: str, offset: int, raw: bytes) -> None:
        old = self.read(name)
        self.replace(name, old[:offset] + raw + old[offset + len(raw) :])

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def replace(self, name: str, raw: bytes | None) -> None:
        """Give a file another content; None takes the file away."""
        path = self.root / name
        self._before.setdefault(path, path.read_bytes())
        path.unlink()
        if raw is not None:
            path.write_bytes(raw)

    def undo(self) -> None:
        for path, raw in self._before.items():
            path.write_bytes(raw)
        self._before = {}

    def set_unit(self, unit: Unit, **fields: int) -> None:
        now = {"physical_offset": unit.physical_offset, "size": unit.size, "tags_code": unit.tags_code}
        self.write(unit.file, unit.offset, QueueUnit.build(now | fields))

    def set_entry(self, file: IndexFile, at: int, **fields: int) -> None:
        entry = file.entries[at]
        now = {name: getattr(entry, name) for name in ("key_hash", "physical_offset", "time_diff", "previous")}
        self.write(file.name, entry.offset, IndexEntry.build(now | fields))

    def set_record(self, record: Record, change: Callable[[Any], dict[str, Any]]) -> None:
        """Give a record other fields; `change` is told the old ones."""
        name, offset = self.log.place_of(record)
        fields = Message.parse(self.read(name)[offset : offset + record.size])
        self.write(name, offset, Message.build(fields | change(fields)))


@pytest.fixture(scope="module")
def changeable(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Changeable]:
    """Give the copy of a store by its name, one for all tests of the module."""
    made: dict[str, Changeable] = {}
    families = {name: family for family, name in STORES}

    def of(name: str) -> Changeable:
        if name not in made:
            made[name] = Changeable(families[name], name, tmp_path_factory.mktemp("changeable"))
        return made[name]

    return of


class Difference(NamedTuple):
    """What only one of the two says."""

    product: set[Row]
    oracle: set[Row]


def difference(store: Changeable) -> Difference:
    """Let both judge a store, and take its changes back."""
    try:
        outcome = verify(open_store([str(store.root)]), VerifyOptions(level="deep"))
        verdict = judge(store.root, store.settings)
    finally:
        store.undo()
    reported = [
        Row(row.code, row.file or "", row.offset, row.physical_offset, row.count)
        for row in outcome.findings.rows
        if row.code in POINTER_SEVERITIES
    ]
    found = {_compared(row) for row in without_followers(reported)}
    expected = {_compared(row) for row in without_followers(verdict.rows)}
    return Difference(found - expected, expected - found)


def _compared(row: Row) -> Row:
    """Headers and chains are compared by file: the product tells their fields and links apart."""
    return Row(row.code, row.file, None, None) if row.code in ("IX-HEADER", "IX-CHAIN") else row


NONE = Difference(set(), set())
FIELDS = ("physical_offset", "size", "tags_code")  # of a unit
Change = Callable[[Changeable, random.Random], None]


def some_unit(store: Changeable, rnd: random.Random) -> Unit:
    """Return a unit with neighbours on both sides that leads into the log."""
    chosen = [
        unit
        for before, unit, after in zip(store.units, store.units[1:], store.units[2:], strict=False)
        if before[:2] == unit[:2] == after[:2] and before.physical_offset >= store.log.start
    ]
    return rnd.choice(chosen)


def some_record(store: Changeable, rnd: random.Random) -> Record:
    return rnd.choice(store.records)


def swap_units(store: Changeable, rnd: random.Random) -> None:
    unit = some_unit(store, rnd)
    other = store.units[store.units.index(unit) + 1]
    store.set_unit(unit, **dict(zip(FIELDS, other[5:], strict=True)))
    store.set_unit(other, **dict(zip(FIELDS, unit[5:], strict=True)))


def move_units(store: Changeable, rnd: random.Random, by: int) -> None:
    """Move what stands behind a unit of a file by a unit; what falls out at the end is lost."""
    unit = some_unit(store, rnd)
    raw = store.read(unit.file)
    if by < 0:
        moved = raw[: unit.offset] + raw[unit.offset + UNIT :] + bytes(UNIT)
    else:
        moved = raw[: unit.offset] + bytes(UNIT) + raw[unit.offset : -UNIT]
    store.replace(unit.file, moved)


def zero_units(store: Changeable, rnd: random.Random) -> None:
    unit = some_unit(store, rnd)
    room = len(store.read(unit.file)) - unit.offset
    store.write(unit.file, unit.offset, bytes(min(room, UNIT * rnd.randint(1, 5))))


def entry_at(store: Changeable, rnd: random.Random) -> tuple[IndexFile, int]:
    """Return an index file and the number of an entry that is neither the first nor the last, from 0."""
    file = rnd.choice(store.index)
    return file, rnd.randrange(2, len(file.entries) - 2)


def swap_entries(store: Changeable, rnd: random.Random) -> None:
    file, at = entry_at(store, rnd)
    one, other = file.entries[at], file.entries[at - 1]
    for place, taken in ((at, other), (at - 1, one)):
        store.set_entry(
            file, place, key_hash=taken.key_hash, physical_offset=taken.physical_offset, time_diff=taken.time_diff
        )


CHANGES: dict[str, Change] = {
    "unit leads to another record": lambda store, rnd: store.set_unit(
        some_unit(store, rnd), physical_offset=some_record(store, rnd).physical_offset
    ),
    "unit leads into a record": lambda store, rnd: store.set_unit(
        some_unit(store, rnd), physical_offset=some_record(store, rnd).physical_offset + rnd.randint(1, 80)
    ),
    "unit leads behind the log": lambda store, rnd: store.set_unit(
        some_unit(store, rnd), physical_offset=store.log.end + rnd.choice([0, 1, 1 << 30])
    ),
    "unit with a negative offset": lambda store, rnd: store.set_unit(some_unit(store, rnd), physical_offset=-1),
    "unit of another size": lambda store, rnd: store.set_unit(some_unit(store, rnd), size=rnd.choice([-1, 0, 7])),
    "unit of other tags": lambda store, rnd: store.set_unit(some_unit(store, rnd), tags_code=rnd.choice([1, 1 << 33])),
    "unit is filler": lambda store, rnd: store.set_unit(
        some_unit(store, rnd), physical_offset=0, size=PRE_BLANK_SIZE, tags_code=0
    ),
    "unit twice": lambda store, rnd: store.set_unit(
        unit := some_unit(store, rnd),
        **dict(zip(FIELDS, store.units[store.units.index(unit) - 1][5:], strict=True)),
    ),
    "units swapped": swap_units,
    "units zeroed": zero_units,
    "units a place too early": lambda store, rnd: move_units(store, rnd, -1),
    "units a place too late": lambda store, rnd: move_units(store, rnd, 1),
    "entry of another key": lambda store, rnd: store.set_entry(*entry_at(store, rnd), key_hash=rnd.randrange(1 << 31)),
    "entry leads to another record": lambda store, rnd: store.set_entry(
        *entry_at(store, rnd), physical_offset=some_record(store, rnd).physical_offset
    ),
    "entry leads into a record": lambda store, rnd: store.set_entry(
        *entry_at(store, rnd), physical_offset=some_record(store, rnd).physical_offset + rnd.randint(1, 80)
    ),
    "entry leads behind the log": lambda store, rnd: store.set_entry(
        *entry_at(store, rnd), physical_offset=store.log.end + rnd.choice([0, 1, 1 << 30])
    ),
    "entry of another time": lambda store, rnd: store.set_entry(*entry_at(store, rnd), time_diff=rnd.choice([-1, 99])),
    "entry of another chain": lambda store, rnd: store.set_entry(*entry_at(store, rnd), previous=rnd.choice([-1, 99])),
    "entries swapped": swap_entries,
    "record of another number": lambda store, rnd: store.set_record(
        some_record(store, rnd), lambda fields: {"queue_offset": fields.queue_offset + 64}
    ),
    "record of another queue": lambda store, rnd: store.set_record(
        some_record(store, rnd), lambda fields: {"queue_id": fields.queue_id + 32}
    ),
    "record of another topic": lambda store, rnd: store.set_record(
        some_record(store, rnd), lambda fields: {"topic": b"x" + fields.topic[1:]}
    ),
    "record of other tags": lambda store, rnd: store.set_record(
        some_record(store, rnd), lambda fields: {"properties": fields.properties.replace(b"TAGS\x01T", b"TAGS\x01U")}
    ),
    "record of another transaction": lambda store, rnd: store.set_record(
        some_record(store, rnd), lambda fields: {"sys_flag": fields.sys_flag ^ rnd.choice([4, 8, 12])}
    ),
}


# No common factor of 3 and the number of stores: every change meets some, and every store some changes.
@pytest.mark.parametrize(("change", "name"), sampled(product(CHANGES, [name for _, name in STORES[1:]]), 7))
def test_both_find_the_same_of_a_change(changeable: Callable[[str], Changeable], change: str, name: str) -> None:
    store = changeable(name)
    CHANGES[change](store, random.Random(f"{change} {name}"))
    assert difference(store) == NONE


def move_far(store: Changeable, *units: Unit) -> None:
    for unit in units:
        store.set_unit(unit, physical_offset=unit.physical_offset + (1 << 30))


def cut_file(store: Changeable, name: str) -> None:
    store.replace(name, store.read(name)[:-UNIT])


def lose_the_newest(store: Changeable) -> None:
    """Zero two units: the record of the last one is behind the newest unit of all other queues."""
    newest = max(store.units, key=lambda unit: unit.physical_offset)
    for unit in store.queue(newest.topic, newest.queue_id)[-2:]:
        store.write(unit.file, unit.offset, bytes(UNIT))


def lose_a_light_queue(store: Changeable) -> None:
    (file,) = {unit.file for unit in store.units if unit.topic.startswith("%LMQ%fleet")}
    store.replace(file, None)


def begin_elsewhere(store: Changeable) -> None:
    """Not even where the records of the first entries are gone."""
    name, begin = store.index[0].name, store.index[0].entries[0].physical_offset
    assert begin < store.log.start
    header = IndexHeader.parse(store.read(name)[: IndexHeader.sizeof()])
    store.write(name, 0, IndexHeader.build(header | {"begin_physical_offset": begin + 1}))


# What was once told otherwise, the store, and the change.
ONCE: dict[str, tuple[str, Callable[[Changeable], None]]] = {
    "the unit behind a wrong first one is not out of order": (
        "base-5.3.3-clean",
        lambda store: store.set_unit(store.queue("orders")[0], physical_offset=1 << 30),
    ),
    "the unit behind two wrong ones is not out of order": (
        "base-5.3.3-clean",
        lambda store: move_far(store, *store.queue("orders")[5:7]),
    ),
    "a unit with the size of filler and an offset is no filler": (
        "base-5.3.3-clean",
        lambda store: store.set_unit(store.queue("orders")[5], size=PRE_BLANK_SIZE),
    ),
    "a queue file that was cut has its hole in that file": (
        "base-5.3.3-clean",
        lambda store: cut_file(store, store.queue("TopicA")[0].file),
    ),
    "a queue file that is missing is a hole": (
        "base-5.3.3-clean",
        lambda store: store.replace(store.queue("TopicA")[20].file, None),
    ),
    "records of a lost queue are told together whatever other queues have": ("base-5.3.3-clean", lose_the_newest),
    "a light queue that is lost is no deleted topic": ("lmq-5.3.3", lose_a_light_queue),
    "a wrong begin of an index header accuses no entry": ("none-4.7.1-r", begin_elsewhere),
}


@pytest.mark.parametrize("words", ONCE)
def test_both_find_the_same_of_what_was_once_told_otherwise(
    changeable: Callable[[str], Changeable], words: str
) -> None:
    name, change = ONCE[words]
    store = changeable(name)
    change(store)
    assert difference(store) == NONE


def test_units_that_were_changed_prove_no_loss(changeable: Callable[[str], Changeable]) -> None:
    """Their messages stand in the log, where the units beside them say."""
    store = changeable("base-5.3.3-clean")
    move_far(store, *store.queue("orders")[5:7])
    for level in ("standard", "deep"):
        assert not verify(open_store([str(store.root)]), VerifyOptions(level=level)).loss
    store.undo()
