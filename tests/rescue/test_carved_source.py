"""salvage --carve: a log put together from images, and a store made of it."""

import random
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.errors import NotAStore, Refused
from rmqinspect.rescue.carved_source import carve_sources
from rmqinspect.rescue.given import open_sources
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.rescue.salvage import Salvaged, SalvageJob, SalvageRequest
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import IMAGE, CarvedSegment, Fragment, Segment, Store
from rmqinspect.store.reader import open_file
from tests.rescue.test_carve import noise, pages, segments_of
from tests.support import oracle
from tests.support.building import record
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner("salvage")


def sources_of(*images: Path, notes: list[str] | None = None, **asked: Any) -> list[tuple[str, Store]]:
    told = [] if notes is None else notes
    return carve_sources([str(image) for image in images], note=told.append, on_unreadable=told.append, **asked)


def salvaged(given: list[tuple[str, Store]], target: Path, **asked: Any) -> tuple[Salvaged, dict[int, bytes]]:
    """Salvage without naming the result; return what was made, and the records of its log."""
    evidence = [path for _, store in given for path in store.paths]
    with NewStore(str(target), evidence) as new:
        made = SalvageJob(
            given, SalvageRequest(str(target), **asked), new, lambda size: None, lambda note: None
        ).salvage()
        return made, records_of(open_store([new.folder]))


def records_of(store: Store) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for split in plan_splits(store.segments, 1 << 30):
        for event in scan_split(split):
            if isinstance(event, RecordRun):
                records = event.records
                ends = zip(records.places.tolist(), records.starts.tolist(), records.ends.tolist(), strict=True)
                found |= {place: bytes(records.raw[start:end]) for place, start, end in ends}
    return found


def test_segments_anywhere_in_an_image_in_any_order_make_the_store_again(tmp_path: Path) -> None:
    store = sample("healthy-5.5.0")
    segments = segments_of(store)
    image = b"".join(noise(number * 777 + 13) + segments[number] for number in (2, 0, 3, 1))
    (tmp_path / "disk").write_bytes(noise(5) + image + noise(100) + segments[2])
    notes: list[str] = []
    given = sources_of(tmp_path / "disk", notes=notes)
    assert [name for name, _ in given] == ["127.0.0.1:21911"] and given[0][1].segment_size == 65536
    made, records = salvaged(given, tmp_path / "new")
    assert made.holds and made.is_complete and made.receipt.verdict == "WHOLE"
    assert records == records_of(open_store([str(store)]))
    assert len(notes) == 1 and "65 536 bytes" in notes[0]


def test_what_pages_out_of_order_hold_whole_is_served_and_the_rest_is_bridged(tmp_path: Path) -> None:
    store = sample("healthy-5.5.0")
    image, _ = pages(store)
    (tmp_path / "disk").write_bytes(image)
    # Of the hosts in this log that are not linked any more, the broker's own is meant.
    made, records = salvaged(
        sources_of(tmp_path / "disk", size=65536, prefer="127.0.0.1:21911"), tmp_path / "new", prefer="127.0.0.1:21911"
    )
    assert made.holds
    own = records_of(open_store([str(store)]))
    kept = {place: raw for place, raw in records.items() if own.get(place) == raw}
    assert len(kept) > 100 and made.receipt.bridged


def test_of_several_brokers_one_has_to_be_named(tmp_path: Path) -> None:
    stores = sample("killed-4.9.7"), sample("healthy-4.9.7")
    (tmp_path / "disk").write_bytes(b"".join(noise(99) + raw for store in stores for raw in segments_of(store)))
    with pytest.raises(Refused, match=r"127\.0\.0\.1:21911 .*127\.0\.0\.1:22911 .*--prefer NAME"):
        sources_of(tmp_path / "disk")
    with pytest.raises(Refused, match=r"log-1 \(.*log-2 \("):
        sources_of(tmp_path / "disk", name_hosts=False)
    for store, name in zip(stores, ("127.0.0.1:22911", "127.0.0.1:21911"), strict=True):
        notes: list[str] = []
        [(given, carved)] = sources_of(tmp_path / "disk", prefer=name, notes=notes)
        assert given == name and records_of(carved) == records_of(open_store([str(store)]))
        assert any("another broker's log" in note for note in notes)


def test_what_the_clock_does_not_decide_is_refused_unless_one_is_preferred(tmp_path: Path) -> None:
    first = record(0, body=b"one")
    log = [record(0, body=b"two"), record(len(first), body=b"x")]
    (tmp_path / "disk").write_bytes(first + noise(50) + b"".join(log))
    given = sources_of(tmp_path / "disk", size=65536)
    assert [name for name, _ in given] == ["10.0.0.5:10911", "10.0.0.5:10911#2"]
    with pytest.raises(Refused, match=r"10911 and 10\.0\.0\.5:10911#2 differ from physical offset"):
        salvaged(given, tmp_path / "new")


def test_the_tail_of_an_earlier_life_stays_out_and_is_told(tmp_path: Path) -> None:
    new = [record(0, body=b"a", store_timestamp=10**12 + 10**7)]
    new.append(record(len(new[0]), body=b"b", store_timestamp=10**12 + 10**7 + 5))
    old = record(3000, body=b"old", store_timestamp=10**12)
    (tmp_path / "disk").write_bytes(b"".join(new) + bytes(700) + old)
    notes: list[str] = []
    [(_, store)] = sources_of(tmp_path / "disk", size=65536, notes=notes)
    assert sorted(records_of(store)) == [0, len(new[0])]
    assert any("an older tail of the log" in note for note in notes)
    assert any("stored before the records that lie in front of it" in note for note in notes)


def test_an_image_gives_what_a_damaged_store_lost(tmp_path: Path) -> None:
    damaged = sample("flipped-bit-5.3.3")
    raw = bytearray(b"".join(segments_of(damaged)))
    sound = record_of(raw, 97187)
    (tmp_path / "disk").write_bytes(noise(11) + sound + noise(7))
    given = open_sources([("store", str(damaged))], {})
    before, _ = salvaged(given, tmp_path / "before", repairs=False)
    assert before.receipt.aside
    made, records = salvaged([*given, *sources_of(tmp_path / "disk", size=65536)], tmp_path / "new", repairs=False)
    assert made.holds and not made.receipt.aside
    assert records[97187] == sound


def record_of(log: bytearray, place: int) -> bytes:
    """Return the record at an offset with the bit of its body set back that is wrong there."""
    import zlib

    raw = bytearray(log[place : place + int.from_bytes(log[place : place + 4], "big")])
    body = slice(88, 88 + int.from_bytes(raw[84:88], "big"))
    for bit in range(8 * (body.stop - body.start)):
        raw[88 + bit // 8] ^= 1 << bit % 8
        if zlib.crc32(raw[body]) & 0x7FFFFFFF == int.from_bytes(raw[8:12], "big"):
            return bytes(raw)
        raw[88 + bit // 8] ^= 1 << bit % 8
    raise AssertionError("no bit")


def test_bytes_without_a_record_are_no_source(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(noise(5000))
    with pytest.raises(NotAStore, match="no whole record"):
        sources_of(tmp_path / "disk")


@pytest.mark.parametrize("name", [name for name in oracle.cases("broker") if name.startswith("dledger")])
def test_a_dledger_log_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    """Its records alone are no log; its segments are one, whatever their names are."""
    segments = sorted(Path(oracle.store("broker", name)).glob("dledger-*/data/*"))
    (tmp_path / "disk").write_bytes(b"".join(noise(33) + segment.read_bytes() for segment in segments))
    status, _, err = run("--carve", tmp_path / "disk", "-o", tmp_path / "new")
    assert (status, [path.name for path in tmp_path.iterdir()]) == (ExitStatus.REFUSED, ["disk"])
    assert "disk at 33 (0x21)" in err and "is a DLedger log" in err
    assert run(*segments, "-o", tmp_path / "new")[0] == 0


def test_a_carved_segment_reads_as_its_fragments_and_zeros_between_them(tmp_path: Path) -> None:
    dice, raw = random.Random(3), noise(4000)
    (tmp_path / "disk").write_bytes(raw)
    image = Segment(str(tmp_path / "disk"), "disk", len(raw), IMAGE, 0)
    fragments = (Fragment(100, 50, image, 7), Fragment(150, 20, image, 3000), Fragment(900, 100, image, 3900))
    expected = bytearray(1500)
    for one in fragments:
        expected[one.start : one.start + one.size] = raw[one.position : one.position + one.size]
    with open_file(CarvedSegment("none", "none", 1500, "segment", 0, fragments=fragments)) as reader:
        assert (reader.size, reader.allocated) == (1500, 170)
        for _ in range(300):
            start, size = dice.randrange(1500), dice.randrange(1500)
            assert reader.read(start, size) == expected[start : start + size]
        assert [reader.next_allocated(at) for at in (0, 100, 149, 169, 170, 999, 1000)] == [
            100, 100, 149, 169, 900, 999, 1500,
        ]  # fmt: skip
        assert [reader.next_hole(at) for at in (0, 100, 160, 170, 950, 1400)] == [0, 170, 170, 170, 1000, 1400]


def test_the_command_makes_a_store_of_an_image(run: Run, tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(b"".join(noise(33) + raw for raw in segments_of(sample("healthy-5.5.0"))))
    status, out, err = run("--carve", tmp_path / "disk", "-o", tmp_path / "new")
    assert status == 0, err
    assert "VERDICT      WHOLE" in out and "NEXT START   STARTS, LOSES NOTHING MORE" in out
    assert (tmp_path / "new" / "commitlog" / f"{131072:020}").stat().st_size == 65536
    assert "as blank records say" in (tmp_path / "new.receipt.json").read_text("utf-8")
    assert run("--carve", tmp_path / "disk", "-o", tmp_path / "other", "--prefer", "nobody")[0] == 2
    assert run("--carve", tmp_path / "none", "-o", tmp_path / "other")[0] == 4
    assert run("-o", tmp_path / "other")[0] == 2
