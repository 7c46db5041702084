"""salvage of DLedger logs: lost entries are counted and bridged, heads put right; the best copy of an entry counts."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqinspect.errors import Refused
from rmqinspect.rescue.ledger_bridge import BLANK, HEAD, SMALLEST_ENTRY, Entries, ledger_bridge, most_entries
from rmqinspect.rescue.ledger_chain import Run, choose_chain, fits
from rmqinspect.schemas.dledger import EntryBlank, EntryHead, EntryIndexUnit
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import salvage, sound_records
from tests.support import oracle
from tests.support.building import STORED
from tests.support.ledgers import FIRST, FOLDER, INDEX, LAST, SIZE, all_of, damages, entries_of, write, zeros
from tests.support.sampling import rare

NAME = "dledger-4.9.7"


# --- bridges --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "count", "at_end"), [(140, 1, False), (700, 3, False), (9000, 7, True), (300, 2, True)]
)
def test_a_bridge_has_as_many_entries_as_were_lost(room: int, count: int, at_end: bool) -> None:
    start = 4000
    segment_end = start + room if at_end else SIZE
    raw = bytearray(room)
    for place, written in ledger_bridge(start, start + room, segment_end, Entries(17, count, 3), STORED):
        raw[place - start : place - start + len(written)] = written
    at = 0
    for number in range(count):
        head = EntryHead.parse(raw[at:])
        assert (head.magic, head.index, head.term, head.position) == (1, 17 + number, 3, start + at)
        assert head.size == head.body_size + HEAD >= SMALLEST_ENTRY
        at += head.size
    if at_end:
        assert EntryBlank.parse(raw[at:]) == {"magic": -1, "total_size": room - at}
        at += room - at
    assert at == room


def test_more_entries_than_there_is_room_for_are_refused() -> None:
    assert most_entries(0, 2 * SMALLEST_ENTRY - 1, SIZE) == 1
    assert most_entries(SIZE - 2 * SMALLEST_ENTRY - BLANK, SIZE, SIZE) == 2
    for count in (0, 3):
        with pytest.raises(ValueError, match="do not fit"):
            list(ledger_bridge(0, 2 * SMALLEST_ENTRY, SIZE, Entries(0, count, 0), STORED))


# --- the chain ------------------------------------------------------------------------------------


def test_the_chain_with_most_entries_counts() -> None:
    good = [Run(0, 1000, 0, 5, 1), Run(1200, 3000, 6, 9, 1), Run(SIZE, SIZE + 900, 400, 4, 2)]
    flipped = Run(1000, 1200, 5, 1, 99)  # its term: the next ones would be below it
    earlier_life = Run(SIZE + 900, SIZE + 1900, 350, 4, 1)
    assert choose_chain(sorted([*good, flipped, earlier_life]), SIZE) == good
    assert choose_chain([], SIZE) == []


@pytest.mark.parametrize(
    ("start", "end", "missing", "can_be"),
    [
        (500, 500, 0, True),
        (500, 500, 1, False),
        (500, 900, 0, False),  # bytes that no entry had
        (500, 900, 2, True),
        (500, 900, 3, False),
        (SIZE - 20, SIZE, 0, True),  # a blank
        (SIZE - 4, SIZE, 0, False),
        (SIZE - 20, 2 * SIZE, 0, False),  # a whole segment without one
        (SIZE - 20, 2 * SIZE, 100, True),
    ],
)
def test_how_many_entries_can_be_missing(start: int, end: int, missing: int, can_be: bool) -> None:
    assert fits(start, end, missing, SIZE) is can_be


# --- whole stores -----------------------------------------------------------------------------------


class Expected(NamedTuple):
    repaired: tuple[str, ...] = ()
    lost: int = 0  # entries in bridges


EXPECTED = {
    "none": Expected(),
    "body": Expected(lost=1),
    "magic": Expected(("the entry's magic",)),
    "size": Expected(("the entry's size",)),
    "index": Expected(("the entry's index",)),
    "term": Expected(("the entry's term",)),
    "position": Expected(("the entry's position",)),
    "head": Expected(tuple(f"the entry's {name}" for name in ("magic", "size", "position", "body size", "index"))),
    "total size": Expected(("TOTALSIZE",)),
    "page": Expected(lost=8),
    "to the end of a segment": Expected(lost=9),
    "over the end of a segment": Expected(
        tuple(f"the entry's {name}" for name in ("magic", "size", "position", "index")), lost=38
    ),
    "start of the log": Expected(lost=13),
    "start of a segment": Expected(
        tuple(f"the entry's {name}" for name in ("magic", "size", "position", "index")), lost=29
    ),
    "blank": Expected(("blank",)),
    "last entry": Expected(lost=1),
    "last head": Expected(("the entry's index",)),
    "last three": Expected(lost=3),
    "no last segment": Expected(lost=82),
    "short segment": Expected(lost=144),
    "no index": Expected(("the entry's magic",), lost=10),
    "state": Expected(lost=1),
}
OFTEN = ("index", "head", "over the end of a segment", "start of the log", "last entry", "state")


@pytest.mark.parametrize("name", [name if name in OFTEN else rare(name) for name in EXPECTED])
def test_a_damaged_ledger_is_salvaged(name: str, tmp_path: Path) -> None:
    root, expected = oracle.copy("broker", NAME, tmp_path), EXPECTED[name]
    entries, whole = entries_of(root), sound_records(open_store([str(root)]))
    damages(entries)[name](root)
    made, records = salvage(tmp_path / "new", root, release="4.9.7")
    assert made.holds, (made.receipt.verdict, made.receipt.next_start)
    assert tuple(row.field for row in made.receipt.repaired) == expected.repaired
    assert len(whole) - len(records) == expected.lost
    assert all(whole[place] == raw for place, raw in records.items())
    new = entries_of(tmp_path / "new")
    assert [entry.index for entry in new] == list(range(len(entries)))
    assert index_of(tmp_path / "new", len(new)) == [
        (entry.index, entry.start, entry.end - entry.start) for entry in new
    ]


def index_of(root: Path, count: int) -> list[tuple[int, int, int]]:
    raw, size = (root / INDEX).read_bytes(), EntryIndexUnit.sizeof()
    units = (EntryIndexUnit.parse(raw[at : at + size]) for at in range(0, count * size, size))
    return [(unit.index, unit.position, unit.size) for unit in units]


def test_the_term_of_the_group_is_not_below_that_of_the_log(tmp_path: Path) -> None:
    root = oracle.copy("broker", NAME, tmp_path)
    entries = entries_of(root)
    all_of(*(write(entry.start + 16, (7).to_bytes(8, "big")) for entry in entries[250:]))(root)
    made, _ = salvage(tmp_path / "new", root, release="4.9.7")
    assert made.holds
    assert (tmp_path / "new" / FOLDER / "currterm").read_text() == "currTerm=7\n"
    assert any("term of the log's last entry, 7" in note for note in made.receipt.notes)


# --- replicas ---------------------------------------------------------------------------------------


def test_the_best_copy_of_each_entry_counts(tmp_path: Path) -> None:
    one, two = (oracle.copy("broker", NAME, tmp_path / name) for name in ("one", "two"))
    entries, whole = entries_of(one), sound_records(open_store([str(one)]))
    zeros(entries[50].start, entries[60].end)(one)
    zeros(entries[70].start, entries[80].end)(two)
    (two / FOLDER).rename(two / "dledger-n1")
    made, records = salvage(tmp_path / "new", one, two, release="4.9.7")
    assert made.holds and made.is_complete
    assert records == whole
    assert [(row.differs_from, row.taken_bytes > 0) for row in made.receipt.sources] == [(None, True), (None, True)]


def test_segments_with_wrong_names_and_copies_beside_them_are_taken(tmp_path: Path) -> None:
    root = oracle.copy("broker", NAME, tmp_path)
    entries, whole = entries_of(root), sound_records(open_store([str(root)]))
    shutil.copyfile(root / FIRST, root / f"{FIRST}.bak")
    (root / LAST).rename((root / LAST).with_name(f"{400000:020d}"))
    zeros(entries[50].start, entries[60].end)(root)
    made, records = salvage(tmp_path / "new", root, release="4.9.7")
    assert made.holds and made.is_complete
    assert records == whole
    assert [len(row.renamed) for row in made.receipt.sources] == [1, 1]


def test_a_replica_of_another_term_is_no_copy(tmp_path: Path) -> None:
    one, two = (oracle.copy("broker", NAME, tmp_path / name) for name in ("one", "two"))
    all_of(*(write(entry.start + 16, (9).to_bytes(8, "big")) for entry in entries_of(one)[200:]))(two)
    with pytest.raises(Refused, match="differ from physical offset"):
        salvage(tmp_path / "new", one, two, release="4.9.7")


def test_logs_of_several_kinds_are_refused(tmp_path: Path) -> None:
    ledger = oracle.copy("broker", NAME, tmp_path / "ledger")
    with pytest.raises(Refused, match="no copies of one log"):
        salvage(tmp_path / "new", ledger, oracle.store("crash", "base-4.9.7-clean"))
    (ledger / "dledger-n1" / "data").mkdir(parents=True)
    (ledger / LAST).rename(ledger / "dledger-n1" / "data" / f"{SIZE:020d}")
    with pytest.raises(Refused, match="several DLedger groups"):
        salvage(tmp_path / "new", ledger)
