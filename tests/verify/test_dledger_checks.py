"""DLedger entries and their index: each rule with a log that shows it and one, nearly the same, that is silent."""

import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.commitlog.gaps import Gap, plan_splits
from rmqinspect.commitlog.scan import WINDOW_SIZE, RecordRun, scan_split
from rmqinspect.schemas.dledger import EntryHead, EntryIndexUnit
from rmqinspect.store.model import Segment, StoreFile
from rmqinspect.verify.dledger import ChainEnds, EntryChain, join_chains
from rmqinspect.verify.findings import Finding
from tests.support.building import entry_blank, pad, record, write_segment
from tests.support.sampling import sampled
from tests.support.scanning import ENTIRE
from tests.support.side_tables import BROKERS, broker

HEAD = EntryHead.sizeof()
UNIT = EntryIndexUnit.sizeof()
SEGMENT = 4096
DLEDGER = tuple(name for name in BROKERS if name.startswith("dledger"))

Fields = dict[str, int]


class Ledger:
    """A log of three files and its index, as a broker writes them; tests change heads and units before it is read."""

    def __init__(self, count: int = 60, base: int = 0, noops: Sequence[int] = ()) -> None:
        """`noops` are the indexes of the entries without a record; each begins a term."""
        self.base = base
        self.places: list[int] = []  # of the entries
        self.heads: list[Fields] = []
        self.bodies: list[bytes] = []
        at, term = base, 0
        for index in range(count):
            term += index in noops
            body = b"" if index in noops else record(at + HEAD, body=b"m" * (index * 7 % 50), queue_offset=index)
            if at % SEGMENT + HEAD + len(body) + 8 > SEGMENT:
                at += SEGMENT - at % SEGMENT
                body = record(at + HEAD, body=b"m" * (index * 7 % 50), queue_offset=index) if body else body
            magic = 2 if index in noops else 1
            size = HEAD + len(body)
            self.places.append(at)
            self.heads.append(
                {
                    "magic": magic,
                    "size": size,
                    "index": index,
                    "term": term,
                    "position": at,
                    "channel": 0,
                    "chain_crc": 0,
                    "body_crc": 0,
                    "body_size": len(body),
                }
            )
            self.bodies.append(body)
            at += size
        names = ("magic", "position", "size", "index", "term")
        self.units = [{name: head[name] for name in names} for head in self.heads]

    def change(self, number: int, **fields: int) -> "Ledger":
        self.heads[number] |= fields
        return self

    def unit(self, number: int, **fields: int) -> "Ledger":
        self.units[number] |= fields
        return self

    def drop(self, *numbers: int) -> "Ledger":
        """Take units out of the index, as if they had never been written."""
        for number in numbers:
            self.units[number] = dict.fromkeys(self.units[number], 0)
        return self

    def segments(self, root: Path) -> list[Segment]:
        files: dict[int, bytes] = {}
        for place, head, body in zip(self.places, self.heads, self.bodies, strict=True):
            base = place - (place - self.base) % SEGMENT
            files[base] = files.get(base, b"") + EntryHead.build(head) + body
        last = max(files)
        return [
            write_segment(
                root / "data",
                pad(raw + (entry_blank(SEGMENT - len(raw)) if base != last else b""), SEGMENT),
                base,
                "dledger",
            )
            for base, raw in files.items()
        ]

    def index(self, root: Path, size: int = 32 * UNIT) -> list[StoreFile]:
        raw = b"".join(EntryIndexUnit.build(unit) for unit in self.units)
        (root / "index").mkdir(parents=True, exist_ok=True)
        files = []
        for base in range(0, len(raw), size):
            path = root / "index" / f"{base:020}"
            path.write_bytes(raw[base : base + size].ljust(size, b"\0"))
            files.append(StoreFile(str(path), f"index/{path.name}", size, "dledger_index"))
        return files


def follow(
    segments: Sequence[Segment],
    index: Sequence[StoreFile],
    split_size: int = ENTIRE,
    limit: int = 1000,
    window_size: int = WINDOW_SIZE,
) -> list[ChainEnds]:
    """Follow the entries of a log, split by split."""
    chains = []
    for split in plan_splits(segments, split_size):
        chain = EntryChain(split.segment, index, limit)
        for event in scan_split(split, window_size):
            if isinstance(event, RecordRun) and not event.stale:
                chain.take(event.records)
        chains.append(pickle.loads(pickle.dumps(chain.finish())))
    return chains


def reported(
    ledger: Ledger, root: Path, split_size: int = ENTIRE, *, unclean: bool = False, index: bool = True
) -> list[Finding]:
    chains = follow(ledger.segments(root), ledger.index(root) if index else [], split_size)
    assert not any(chain.unread or chain.suppressed for chain in chains)
    findings = [finding for chain in chains for finding in chain.findings]
    findings += join_chains(chains, unclean=unclean)
    return sorted(findings, key=lambda finding: (finding.code, finding.physical_offset or 0))


def only(ledger: Ledger, root: Path, split_size: int = ENTIRE, **how: bool) -> Finding:
    (finding,) = reported(ledger, root, split_size, **how)
    return finding


SPLITS = (ENTIRE, 1000, 300)


# --- silent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("split_size", [ENTIRE, 30_000, 4096])
@pytest.mark.parametrize("name", DLEDGER)
def test_real_stores_are_silent(name: str, split_size: int) -> None:
    store = broker(name)
    index = store.of_kind("dledger_index")
    chains = follow(store.segments, index, split_size)
    assert index
    assert [finding for chain in chains for finding in chain.findings] == []
    assert list(join_chains(chains, unclean=False)) == []
    used = [chain for chain in chains if chain.first is not None]
    last = used[-1].last
    assert last is not None
    assert sum(chain.entries for chain in used) == last.index + 1
    # Every split leads to the first entry of the next one.
    places = [chain.first.position for chain in used if chain.first]
    assert [chain.next_position for chain in used[:-1]] == places[1:]


@pytest.mark.parametrize("split_size", SPLITS)
@pytest.mark.parametrize(
    "ledger",
    [
        Ledger(),
        Ledger(base=1 << 40),
        Ledger(noops=(0, 1, 7, 22, 23, 24, 59)),
        Ledger(noops=(8, 16, 17, 25)),
        Ledger(1),
    ],
)
def test_a_sound_log_is_silent(tmp_path: Path, ledger: Ledger, split_size: int) -> None:
    assert len(ledger.segments(tmp_path)) in (1, 3)
    assert reported(ledger, tmp_path, split_size) == []


def test_a_log_whose_index_begins_late_or_was_not_given_is_silent(tmp_path: Path) -> None:
    ledger = Ledger()
    segments, index = ledger.segments(tmp_path), ledger.index(tmp_path)
    for files in ([], index[1:], index[:1]):
        assert [f for chain in follow(segments, files) for f in chain.findings] == []


def test_an_index_with_more_units_than_entries_is_silent(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.units += [dict(unit) for unit in ledger.units[:3]]
    assert reported(ledger, tmp_path) == []


@pytest.mark.parametrize("split_size", SPLITS)
def test_nothing_is_told_across_a_gap(tmp_path: Path, split_size: int) -> None:
    ledger = Ledger().change(9, size=5)  # an entry that cannot be read: a finding of the commit log
    assert reported(ledger, tmp_path, split_size) == []
    assert any(
        isinstance(event, Gap) and event.kind == "unknown"
        for split in plan_splits(ledger.segments(tmp_path), ENTIRE)
        for event in scan_split(split)
    )


def test_a_missing_file_is_no_jump(tmp_path: Path) -> None:
    ledger = Ledger()
    segments = ledger.segments(tmp_path)
    chains = follow([segments[0], *segments[2:]], ledger.index(tmp_path))
    assert [*join_chains(chains, unclean=False), *(f for chain in chains for f in chain.findings)] == []


# --- position and order ---------------------------------------------------------------------------


@pytest.mark.parametrize("split_size", SPLITS)
@pytest.mark.parametrize("number", [0, 5, 30, 59])
def test_an_entry_that_does_not_know_its_place_is_told(tmp_path: Path, number: int, split_size: int) -> None:
    ledger = Ledger(base=SEGMENT * 3)
    place = ledger.places[number]
    finding = only(ledger.change(number, position=place + 1), tmp_path, split_size)
    assert (finding.code, finding.severity) == ("DL-POSITION", "error")
    assert (finding.physical_offset, finding.length) == (place, HEAD)
    assert finding.file == f"{place - place % SEGMENT:020}"
    assert finding.offset == place % SEGMENT
    assert (finding.expected, finding.found) == (str(place), str(place + 1))


@pytest.mark.parametrize("split_size", SPLITS)
@pytest.mark.parametrize("number", sampled(range(1, 59, 3), 5))
@pytest.mark.parametrize("index", [0, 3000, -1, (1 << 63) - 1])
def test_one_damaged_index_is_told_once(tmp_path: Path, number: int, index: int, split_size: int) -> None:
    ledger = Ledger().change(number, index=index)
    # Alone in its split, it cannot be told before its unit is looked up.
    finding = only(ledger, tmp_path, split_size, index=split_size == ENTIRE)
    assert (finding.code, finding.physical_offset) == ("DL-TERM", ledger.places[number])
    assert (finding.expected, finding.found) == (f"index {number}", f"index {index}")


@pytest.mark.parametrize("split_size", SPLITS)
def test_an_index_that_skips_is_told(tmp_path: Path, split_size: int) -> None:
    ledger = Ledger()
    for number in range(20, 60):
        ledger.change(number, index=number + 2)
    finding = only(ledger, tmp_path, split_size, index=False)
    assert (finding.expected, finding.found) == ("index 20", "index 22")


@pytest.mark.parametrize("split_size", SPLITS)
def test_entries_of_an_earlier_life_right_behind_the_end_are_told(tmp_path: Path, split_size: int) -> None:
    """A follower cut its log at 20 and wrote 20 to 24 anew, in term 3; what it cut begins again at 25."""
    ledger = Ledger()
    for number in range(20, 25):
        ledger.change(number, term=3).unit(number, term=3)
    finding = only(ledger, tmp_path, split_size)
    assert (finding.code, finding.physical_offset) == ("DL-TERM", ledger.places[25])
    assert (finding.expected, finding.found) == ("term 3 or higher", "term 0")


@pytest.mark.parametrize("split_size", SPLITS)
def test_a_term_may_rise_anywhere(tmp_path: Path, split_size: int) -> None:
    ledger = Ledger()
    for number in range(60):
        ledger.change(number, term=number // 7).unit(number, term=number // 7)
    assert reported(ledger, tmp_path, split_size) == []


@pytest.mark.parametrize("split_size", SPLITS)
@pytest.mark.parametrize("missing", [1, 2])
def test_an_index_that_skips_more_than_the_entries_without_a_record(
    tmp_path: Path, missing: int, split_size: int
) -> None:
    ledger = Ledger(noops=(20, 21))
    for number in range(22, 60):
        ledger.change(number, index=number + missing)
    finding = only(ledger, tmp_path, split_size, index=False)
    assert (finding.physical_offset, finding.found) == (ledger.places[22], f"index {22 + missing}")


def test_a_blank_that_does_not_reach_the_end_leads_nowhere(tmp_path: Path) -> None:
    ledger = Ledger()
    for number in range(60):
        ledger.change(number, index=number + 5 * (ledger.places[number] >= SEGMENT))
    segments = ledger.segments(tmp_path)
    assert len(list(join_chains(follow(segments, []), unclean=False))) == 1
    path = Path(segments[0].path)
    raw = path.read_bytes()
    at = raw.rindex(entry_blank(0)[:4])
    path.write_bytes(raw[:at] + entry_blank(SEGMENT - at - 1) + raw[at + 8 :])
    assert list(join_chains(follow(segments, []), unclean=False)) == []


# --- the index ------------------------------------------------------------------------------------


@pytest.mark.parametrize("split_size", SPLITS)
@pytest.mark.parametrize("number", [0, 31, 32, 59])
@pytest.mark.parametrize("name", ["magic", "position", "size", "index", "term"])
def test_a_unit_that_is_not_its_entry_s_is_told(tmp_path: Path, number: int, name: str, split_size: int) -> None:
    ledger = Ledger()
    was = ledger.units[number][name]
    finding = only(ledger.unit(number, **{name: was + 1}), tmp_path, split_size)
    assert (finding.code, finding.severity, finding.count) == ("DL-INDEX", "error", 1)
    assert finding.file == f"index/{number // 32 * 32 * UNIT:020}"
    assert (finding.offset, finding.length) == (number % 32 * UNIT, UNIT)
    assert (finding.expected, finding.found) == (f"{name} {was}", f"{name} {was + 1}")
    assert finding.physical_offset == ledger.places[number]


@pytest.mark.parametrize("window_size", [WINDOW_SIZE, 512])
def test_units_alike_are_one_finding(tmp_path: Path, window_size: int) -> None:
    ledger = Ledger(20)
    for number in range(3, 9):
        ledger.unit(number, term=9)
    (chain,) = follow(ledger.segments(tmp_path), ledger.index(tmp_path), window_size=window_size)
    assert sum(finding.count for finding in chain.findings) == 6
    assert chain.findings[0].offset == 3 * UNIT
    assert len(chain.findings) == 1 or window_size == 512


@pytest.mark.parametrize("split_size", SPLITS)
@pytest.mark.parametrize(
    ("numbers", "unclean", "severity"),
    [
        (range(57, 60), True, "info"),  # a start adds them
        (range(57, 60), False, "error"),
        (range(10, 12), True, "error"),
        (range(10, 12), False, "error"),
    ],
)
def test_entries_without_a_unit(tmp_path: Path, numbers: range, unclean: bool, severity: str, split_size: int) -> None:
    findings = reported(Ledger().drop(*numbers), tmp_path, split_size, unclean=unclean)
    assert sum(finding.count for finding in findings) == len(numbers)
    assert {(finding.severity, finding.found) for finding in findings} == {(severity, "zeros")}


@pytest.mark.parametrize("window_size", [WINDOW_SIZE, 512])
@pytest.mark.parametrize(("numbers", "held"), [(range(3, 15), 0), (range(3, 20), 17)])
def test_entries_without_a_unit_are_one_finding(tmp_path: Path, numbers: range, held: int, window_size: int) -> None:
    ledger = Ledger(20).drop(*numbers)
    (chain,) = follow(ledger.segments(tmp_path), ledger.index(tmp_path), window_size=window_size)
    (finding,) = [*chain.findings, *([chain.unindexed] if chain.unindexed else [])]
    assert (finding.offset, finding.length, finding.count) == (3 * UNIT, len(numbers) * UNIT, len(numbers))
    assert (chain.unindexed.count if chain.unindexed else 0) == held


# --- any bytes ------------------------------------------------------------------------------------


def test_what_is_told_is_bounded_and_all_is_counted(tmp_path: Path) -> None:
    ledger = Ledger()
    for number in range(0, 60, 2):
        ledger.change(number, position=-1).unit(number, size=7)
    chains = follow(ledger.segments(tmp_path), ledger.index(tmp_path), limit=2)
    assert all(len(chain.findings) <= 4 for chain in chains)
    codes = ("DL-POSITION", "DL-INDEX")
    totals = {
        code: sum(chain.suppressed[code] + sum(f.count for f in chain.findings if f.code == code) for chain in chains)
        for code in codes
    }
    assert totals == dict.fromkeys(codes, 30)


@pytest.mark.parametrize("split_size", [ENTIRE, 700])
def test_any_bytes_are_survived(tmp_path: Path, split_size: int) -> None:
    ledger = Ledger(noops=(3, 20))
    segments, index = ledger.segments(tmp_path), ledger.index(tmp_path)
    sound = {path: Path(path).read_bytes() for path in [s.path for s in segments] + [f.path for f in index]}
    for seed in range(30):
        chance = random.Random(seed)
        for path in chance.sample(sorted(sound), 2):
            raw = bytearray(sound[path])
            for _ in range(chance.randrange(1, 30)):
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            at = chance.randrange(len(raw))
            junk: Any = chance.choice((b"", bytes(200), chance.randbytes(50), b"\xff" * 60))
            raw[at : at + len(junk)] = junk
            if chance.random() < 0.2:
                del raw[at:]
            Path(path).write_bytes(raw)
        now = [replace(segment, size=Path(segment.path).stat().st_size) for segment in segments]
        chains = follow(now, index, split_size, limit=3)
        assert all(len(chain.findings) <= 9 and not chain.unread for chain in chains)
        list(join_chains(chains, unclean=False))
        for path, octets_before in sound.items():
            Path(path).write_bytes(octets_before)


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    ledger = Ledger()
    segments, index = ledger.segments(tmp_path), ledger.index(tmp_path)
    Path(index[0].path).unlink()
    (chain, *_) = follow(segments, index, window_size=700)
    assert [finding.message for finding in chain.unread] == [f"{index[0].name}: No such file or directory"]
