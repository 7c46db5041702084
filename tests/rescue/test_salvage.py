"""salvage: what real brokers wrote, damaged, comes back sound, in one store that verify calls whole.

The stores of the oracle are small; each has one damage of 76 kinds, done to what a real broker wrote.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.errors import NotAStore, Refused
from rmqinspect.rescue.given import open_sources
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.rescue.receipt import as_json
from rmqinspect.rescue.salvage import Salvaged, SalvageJob, SalvageRequest
from rmqinspect.rescue.salvage_receipt import SalvageReceipt
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.broken_disk import broken_disk
from tests.support.rocksdb import needs_rocksdict
from tests.support.samples import ROOT, sample
from tests.support.sampling import sampled

# Their logs hold no record at all.
_EMPTY = ("log_dir_lost", "log_empty", "log_only_zero_len")
# The broker's own setting refuses records that were written without it.
_REFUSED = ("none-5.3.3-c-forceVerifyPropCRC", "none-5.4.0-g-forceVerifyPropCRC")


def sound_records(store: Store) -> dict[int, bytes]:
    """Return the records of a log that prove themselves, by physical offset, bridges left out."""
    found: dict[int, bytes] = {}
    for split in plan_splits(store.segments, 1 << 30):
        for event in scan_split(split):
            if not isinstance(event, RecordRun) or event.stale:
                continue
            records = event.records
            good = records.body_crc_ok & (records.physical_offset == records.places) & (records.record_crcs != 1)
            for place, start, end, is_good in zip(
                records.places.tolist(), records.starts.tolist(), records.ends.tolist(), good.tolist(), strict=True
            ):
                if is_good:
                    found[place] = bytes(records.raw[start:end])
    return found


def salvage(target: Path, *sources: Path, commit: bool = True, **asked: Any) -> tuple[Salvaged, dict[int, bytes]]:
    """Salvage into `target`; return what was made, and the sound records of the new log."""
    opening = {"config": asked["config"]} if "config" in asked else {}
    given = open_sources([(path.name, str(path)) for path in sources], opening)
    request = SalvageRequest(str(target), **asked)
    with NewStore(str(target), [str(path) for path in sources], dry_run=request.dry_run) as new:
        made = SalvageJob(given, request, new, lambda size: None, lambda note: None).salvage()
        records = {} if request.dry_run else sound_records(open_store([new.folder]))
        if commit and not request.dry_run:
            new.commit(as_json(made.receipt))
    return made, records


def _conf(folder: Path, settings: dict[str, Any]) -> str:
    path = folder / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.mark.parametrize("name", sampled([*oracle.cases("crash")], 24))
def test_all_sound_records_of_a_damaged_store_are_in_one_that_is_whole(name: str, tmp_path: Path) -> None:
    about = oracle.case("crash", name)
    source = oracle.store("crash", name)
    asked = {"config": _conf(tmp_path, about["settings"]), "release": about["opened_by"]}
    if name.startswith(_EMPTY):
        with pytest.raises(NotAStore):
            salvage(tmp_path / "new", source, **asked)
        return
    made, records = salvage(tmp_path / "new", source, commit=False, **asked)
    receipt = made.receipt
    assert receipt.verdict == "WHOLE"
    assert made.holds or name in _REFUSED
    changed = {row.physical_offset for row in receipt.repaired}
    cannot_read = {row.start for row in receipt.aside if "cannot read" in row.why}
    for place, raw in sound_records(open_store([str(source)])).items():
        assert place in changed | cannot_read or records[place] == raw
    assert set(records) <= set(sound_records(open_store([str(source)]))) | changed


def _receipt_of(target: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{target}.receipt.json").read_text())
    return found


def test_a_flipped_bit_is_repaired_and_nothing_else_changes(tmp_path: Path) -> None:
    source, new = sample("flipped-bit-5.3.3"), tmp_path / "new"
    made, _ = salvage(new, source)
    assert made.holds
    assert made.is_complete
    before = (source / "commitlog/00000000000000065536").read_bytes()
    after = (new / "commitlog/00000000000000065536").read_bytes()
    assert [(at, one, two) for at, (one, two) in enumerate(zip(before, after, strict=True)) if one != two] == [
        (31794, 0x48, 0x68)
    ]
    (repair,) = _receipt_of(new)["repaired"]
    assert (repair["position"], repair["bit"], repair["before"], repair["after"]) == (31794, 5, "48", "68")
    assert (repair["field"], repair["file"]) == ("BODY", "commitlog/00000000000000065536")


def test_what_cannot_be_saved_lies_aside_with_all_that_can_be_read(tmp_path: Path) -> None:
    new = tmp_path / "new"
    made, _ = salvage(new, sample("zeroed-page-4.7.1"))
    assert made.holds
    assert not made.is_complete
    rows = pq.read_table(f"{new}.aside/messages.parquet").to_pylist()
    assert [row["physical_offset"] for row in rows] == [row["start"] for row in _receipt_of(new)["aside"]]
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows} >= {("one", 0, 21)}
    for row in rows:
        if row["file"]:
            assert (Path(f"{new}.aside") / row["file"]).stat().st_size == row["size"]


def test_without_repairs_a_damaged_message_is_left_aside(tmp_path: Path) -> None:
    made, _ = salvage(tmp_path / "new", sample("flipped-bit-5.3.3"), repairs=False)
    assert made.holds
    (aside,) = made.receipt.aside
    assert (aside.start, aside.topic, aside.queue_offset) == (97187, "BatchTopic", 13)
    assert [(row.topic, row.lost) for row in made.receipt.lost_offsets] == [("BatchTopic", [13])]


def test_a_dry_run_has_the_same_receipt_and_writes_nothing(tmp_path: Path) -> None:
    def compared(receipt: SalvageReceipt) -> tuple[object, ...]:
        return receipt.repaired, receipt.bridged, receipt.sources, receipt.log_end, receipt.kept_bytes

    dry, _ = salvage(tmp_path / "new", sample("zeroed-page-4.7.1"), dry_run=True)
    assert list(tmp_path.iterdir()) == []
    wet, _ = salvage(tmp_path / "new", sample("zeroed-page-4.7.1"))
    assert compared(dry.receipt) == compared(wet.receipt)


# --- several sources ----------------------------------------------------------------------------------


def _copy_of(name: str, target: Path) -> Path:
    for path in sample(name).rglob("*"):
        if path.is_file():
            to = target / path.relative_to(sample(name))
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
    return target


def _damage(store: Path, segment: int, *places: tuple[int, bytes]) -> None:
    path = store / f"commitlog/{segment:020}"
    raw = bytearray(path.read_bytes())
    for at, new in places:
        raw[at : at + len(new)] = new
    path.write_bytes(raw)


def _healthy() -> dict[int, bytes]:
    return sound_records(open_store([str(sample("healthy-5.5.0"))]))


def test_of_two_damaged_copies_one_whole_store_comes(tmp_path: Path) -> None:
    one, two = (_copy_of("healthy-5.5.0", tmp_path / name) for name in ("one", "two"))
    _damage(one, 0, (10_000, bytes(3000)))
    _damage(two, 0, (30_000, bytes(3000)))
    (two / "commitlog/00000000000000065536").unlink()
    made, records = salvage(tmp_path / "new", one, two)
    assert made.holds
    assert made.is_complete
    assert records == _healthy()
    assert all(source.taken_bytes for source in made.receipt.sources)


def test_segments_with_wrong_names_and_loose_ones_find_their_places(tmp_path: Path) -> None:
    store = _copy_of("healthy-5.5.0", tmp_path / "store")
    loose = tmp_path / "loose"
    loose.mkdir()
    (store / "commitlog/00000000000000065536").rename(loose / "disk-image-part")
    (store / "commitlog/00000000000000131072").rename(store / "commitlog/00000000000009999999")
    made, records = salvage(tmp_path / "new", store, loose)
    assert made.holds
    assert records == _healthy()


def test_one_record_says_less_than_the_name_of_its_segment(tmp_path: Path) -> None:
    """Of a segment one record is left, and a bit of its PHYSICALOFFSET was flipped: it would stand elsewhere."""
    store, base = _copy_of("healthy-5.5.0", tmp_path / "store"), 131072
    first = _healthy()[base]
    for bit in (0, 17, 40):
        flipped = (base ^ 1 << bit).to_bytes(8, "big")
        _damage(store, base, (0, first[:28] + flipped + first[36:]), (len(first), bytes(65536 - len(first))))
        made, records = salvage(tmp_path / f"new{bit}", store)
        assert made.holds
        assert [row.field for row in made.receipt.repaired] == ["PHYSICALOFFSET"]
        assert records == {at: raw for at, raw in _healthy().items() if not base < at < base + 65536}


def test_a_segment_off_the_grid_leaves_aside_what_cannot_stand_there(tmp_path: Path) -> None:
    """`--base` may say anything: a gap of 20 bytes in front of a record holds no bridge."""
    given = open_sources(
        [("one", str(_copy_of("healthy-5.5.0", tmp_path / "one") / "commitlog/00000000000000000000"))], {"base": 20}
    )
    assert [segment.base for _, store in given for segment in store.segments] == [20]
    with NewStore(str(tmp_path / "new"), []) as new:
        job = SalvageJob(given, SalvageRequest(str(tmp_path / "new")), new, lambda size: None, lambda note: None)
        with pytest.raises(NotAStore):
            job.salvage()


def _diverged(tmp_path: Path) -> tuple[Path, Path]:
    """Return two copies; the second has another body in one of its records, with the right CRC."""
    from rmqinspect.schemas.message import Message

    one, two = (_copy_of("healthy-5.5.0", tmp_path / name) for name in ("one", "two"))
    place, raw = sorted(_healthy().items())[5]
    fields = Message.parse(raw)
    body = bytes(len(fields.body))
    import zlib

    changed = Message.build({**fields, "body": body, "body_crc": zlib.crc32(body) & 0x7FFFFFFF})
    _damage(two, 0, (place, changed))
    return one, two


def test_sources_that_differ_are_refused_unless_one_is_preferred(tmp_path: Path) -> None:
    one, two = _diverged(tmp_path)
    with pytest.raises(Refused, match="differ from physical offset"):
        salvage(tmp_path / "new", one, two)
    made, records = salvage(tmp_path / "new", two, one, prefer="one")
    assert made.holds
    assert records == _healthy()
    assert [source.name for source in made.receipt.sources] == ["one", "two"]
    assert made.receipt.sources[1].differs_from is not None


def test_a_copy_beside_a_segment_has_a_name_of_its_own(tmp_path: Path) -> None:
    one, two = _diverged(tmp_path)
    name = "00000000000000000000.bak"
    (two / f"commitlog/{0:020}").rename(one / "commitlog" / name)
    with pytest.raises(Refused, match=f"one and one:{name} differ"):
        salvage(tmp_path / "new", one)
    made, records = salvage(tmp_path / "new", one, prefer="one")
    assert made.holds
    assert records == _healthy()
    assert [source.name for source in made.receipt.sources] == ["one", f"one:{name}"]


def test_a_queue_offset_that_no_queue_has_is_left_aside(tmp_path: Path) -> None:
    store = _copy_of("healthy-5.5.0", tmp_path / "store")
    place = sorted(_healthy())[-1]
    _damage(store, place - place % 65536, (place % 65536 + 20, b"\xff" * 8))
    made, records = salvage(tmp_path / "new", store)
    assert made.holds
    assert [one.start for one in made.receipt.aside] == [place]
    assert records == {at: raw for at, raw in _healthy().items() if at != place}


def test_linked_segments_are_the_sources_own_but_never_the_last(tmp_path: Path) -> None:
    store = _copy_of("healthy-5.5.0", tmp_path / "store")
    made, _ = salvage(tmp_path / "new", store, link=True)
    assert made.holds
    same = [
        path.name
        for path in sorted((tmp_path / "new/commitlog").iterdir())
        if path.stat().st_ino == (store / "commitlog" / path.name).stat().st_ino
    ]
    names = sorted(path.name for path in (tmp_path / "new/commitlog").iterdir())
    assert same == names[:-1]


# --- other files ----------------------------------------------------------------------------------------


def test_a_broken_json_file_is_replaced_by_its_sound_backup(tmp_path: Path) -> None:
    store = _copy_of("healthy-5.5.0", tmp_path / "store")
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json.bak").write_text('{"dataVersion":{"counter":1},"topicConfigTable":{}}')
    (config / "topics.json").write_text('{"dataVersion":{"cou')
    (config / "consumerOffset.json").write_text("{")
    made, _ = salvage(tmp_path / "new", store)
    assert made.holds
    assert json.loads((tmp_path / "new/config/topics.json").read_text())["topicConfigTable"] == {}
    assert not (tmp_path / "new/config/consumerOffset.json").exists()
    assert [note for note in made.receipt.notes if "broken" in note]
    assert [row.file for row in made.receipt.left_out] == ["config/consumerOffset.json"]


def test_what_is_brought_and_broken_is_left_out_again(tmp_path: Path) -> None:
    store = _copy_of("healthy-5.5.0", tmp_path / "store")
    (store / "compaction").mkdir(exist_ok=True)
    (store / "compaction/position-checkpoint").write_text('{"topicPositions":{"T')
    made, _ = salvage(tmp_path / "new", store)
    assert made.holds
    assert [row.file for row in made.receipt.left_out] == ["compaction/position-checkpoint"]
    assert any("compacts each queue again" in note for note in made.receipt.notes)
    assert not (tmp_path / "new/compaction/position-checkpoint").exists()


def test_a_record_that_is_too_far_from_its_queue_is_left_aside(tmp_path: Path) -> None:
    """No queue file is left to contradict it."""
    store = _copy_of("healthy-5.5.0", tmp_path / "store")
    shutil.rmtree(store / "consumequeue")
    places = sorted(_healthy())
    _damage(store, 0, (places[20] + 20, (1 << 40).to_bytes(8, "big")))
    made, records = salvage(tmp_path / "new", store, repairs=False)
    assert made.holds
    assert [one.start for one in made.receipt.aside] == [places[20]]
    assert records == {at: raw for at, raw in _healthy().items() if at != places[20]}


@needs_rocksdict
def test_a_broken_database_is_left_out(tmp_path: Path) -> None:
    store = oracle.copy("broker", "rocksopt-5.5.0", tmp_path)
    for path in (store / "rocksdbstore").glob("*.sst"):
        path.write_bytes(bytes(path.stat().st_size))
    made, _ = salvage(tmp_path / "new", store)
    assert made.holds
    assert not (tmp_path / "new/rocksdbstore").exists()
    assert {row.file.partition("/")[0] for row in made.receipt.left_out} == {"rocksdbstore"}


@needs_rocksdict
def test_a_database_is_kept_though_timers_of_it_lead_to_lost_messages(tmp_path: Path) -> None:
    """A broker passes over them: TimerMessageRocksDBStore.TimerMessageReputService.Task#call, 5.4.0 to 5.5.0."""
    store = oracle.copy("broker", "rocksopt-5.5.0", tmp_path)
    last = max((store / "commitlog").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    made, _ = salvage(tmp_path / "new", store)
    assert made.holds and made.proof is not None
    assert [one.severity for one in made.proof.findings.rows if one.code.startswith("TM-")] == ["info"]
    kept = sorted(path.name for path in (tmp_path / "new/rocksdbstore").iterdir())
    assert kept == sorted(path.name for path in (store / "rocksdbstore").iterdir())


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    return ((str(path), path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file())


def test_the_sources_are_never_changed(tmp_path: Path) -> None:
    store = _copy_of("zeroed-page-4.7.1", tmp_path / "store")
    before = list(_files(store))
    salvage(tmp_path / "new", store, link=True)
    assert list(_files(store)) == before


# --- what cannot be read -------------------------------------------------------------------------------


def test_around_a_bad_sector_all_other_records_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _copy_of("healthy-5.5.0", tmp_path / "store")
    segment = store / "commitlog/00000000000000065536"
    with broken_disk(monkeypatch, lambda path: path == segment.resolve(), 20480, 24576):
        made, records = salvage(tmp_path / "new", store)
    assert made.holds
    assert not made.is_complete
    healthy = _healthy()
    touched = {place for place, raw in healthy.items() if place < 65536 + 24576 and place + len(raw) > 65536 + 20480}
    assert touched
    assert records == {place: raw for place, raw in healthy.items() if place not in touched}


@pytest.mark.parametrize("torn", [None, 1, 7])
def test_a_record_whose_last_properties_were_torn_or_lie_in_a_lost_page_is_no_sound_one(
    tmp_path: Path, torn: int | None
) -> None:
    """`torn`: bytes of it that were not written; None: as many as lie in a sector that is lost."""
    store = _copy_of("killed-4.9.7", tmp_path / "store")
    path = store / "commitlog/00000000000000000000"
    raw = bytearray(path.read_bytes())
    records = sound_records(open_store([str(store)]))
    place, lost = next(
        (place, one)
        for place, one in sorted(records.items())
        if (cut := -place % 512) and len(one) - 40 < cut < len(one) - 1 and one[cut - 1] and place > 512
    )
    border = place + (-place % 512 if torn is None else len(lost) - torn)
    raw[border : border + 512] = bytes(512)
    path.write_bytes(raw)
    made, _ = salvage(tmp_path / "new", store)
    assert made.holds
    assert place in [one.start for one in made.receipt.aside]
    assert place not in sound_records(open_store([str(tmp_path / "new")]))
    assert len(lost) > border - place


def test_a_segment_of_a_log_far_away_is_refused_before_anything_is_planned(tmp_path: Path) -> None:
    store, size, far = _copy_of("flipped-bit-5.3.3", tmp_path / "store"), 65536, 1 << 44
    raw = bytearray((store / "commitlog" / f"{0:020}").read_bytes())
    for place in sound_records(open_store([str(store)])):
        if place < size:
            raw[place + 28 : place + 36] = (place + far).to_bytes(8, "big")
    (store / "commitlog" / f"{far:020}").write_bytes(raw)
    with pytest.raises(Refused, match="is of another log"):
        salvage(tmp_path / "new", store)


def test_a_reader_that_goes_away_leaves_the_store_that_was_made(tmp_path: Path) -> None:
    new = tmp_path / "new"
    words = [sys.executable, "-m", "rmqinspect", "salvage", str(sample("flipped-bit-5.3.3")), "-o", str(new)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as ended:
        assert ended.stdout is not None and ended.stderr is not None
        ended.stdout.close()
        ended.stderr.read()
    assert ended.returncode == 0
    assert verify(open_store([str(new)]), VerifyOptions()).verdict == "WHOLE"
