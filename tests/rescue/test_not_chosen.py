"""What a choice between sources costs: sound records of the other side are listed, lie aside, and end with 3."""

from pathlib import Path

import pyarrow.parquet as pq

from rmqinspect.cli import ExitStatus
from rmqinspect.store.discover import open_store
from tests.rescue.test_carve import segments_of
from tests.rescue.test_salvage import salvage, sound_records
from tests.support.command import Run, runner
from tests.support.samples import sample
from tests.support.whole_stores import WholeStore

run = runner("salvage")


def _diverged(folder: Path) -> tuple[Path, Path, dict[int, bytes]]:
    """Return two copies of a log of which one went its own way, and what only that one has."""
    pieces = [{"queue_offset": at, "body": b"common %d" % at} for at in range(8)]
    one = WholeStore([*pieces, *({"queue_offset": at, "body": b"master %d" % at} for at in range(8, 12))])
    two = WholeStore([*pieces, *({"queue_offset": at, "body": b"slave %d!" % at} for at in range(8, 11))])
    stores = one.write(folder / "m"), two.write(folder / "s")
    known, other = (sound_records(open_store([str(store)])) for store in stores)
    return *stores, {place: raw for place, raw in other.items() if known.get(place) != raw}


def test_records_of_the_side_that_was_not_chosen_lie_aside_with_their_bodies(tmp_path: Path) -> None:
    master, slave, only = _diverged(tmp_path)
    assert len(only) == 3
    for dry in (True, False):
        made, _ = salvage(tmp_path / "new", master, slave, prefer=master.name, dry_run=dry)
        assert made.holds and not made.is_complete
        (row,) = made.receipt.not_chosen
        assert (row.records, row.start, row.topics) == (3, min(only), {"TopicTest": 3})
        assert row.end == max(place + len(raw) for place, raw in only.items())
    aside = pq.read_table(tmp_path / "new.aside/messages.parquet").to_pylist()
    assert {one["physical_offset"]: one["body"] for one in aside} == {
        place: raw[88 : 88 + int.from_bytes(raw[84:88], "big")] for place, raw in only.items()
    }
    assert all("not chosen" in one["status"] for one in aside)


def test_the_screen_lists_them_and_names_the_command_that_does(tmp_path: Path, run: Run) -> None:
    master, slave, only = _diverged(tmp_path)
    status, out, _ = run(f"a={master}", f"b={slave}", "--prefer", "a", "--dry-run")
    assert status == ExitStatus.DAMAGE
    assert "3 sound records that only b has" in out and "TopicTest 3" in out
    assert f"rmqinspect decode {slave} --offset {min(only)}.." in out


def test_a_copy_that_only_lacks_something_costs_nothing(tmp_path: Path, run: Run) -> None:
    pieces = [{"body": b"common %d" % at} for at in range(8)]
    master = WholeStore(pieces).write(tmp_path / "m")
    slave = WholeStore(pieces[:5]).write(tmp_path / "s")
    status, out, _ = run(f"a={master}", f"b={slave}", "--prefer", "a", "--dry-run")
    assert status == ExitStatus.DONE
    assert "not chosen" not in out


def test_the_files_beside_the_log_are_those_of_the_side_that_was_chosen(tmp_path: Path) -> None:
    master, slave, _ = _diverged(tmp_path)
    for store, place in ((master, 3), (slave, 5)):
        (store / "config").mkdir()
        (store / "config/consumerOffset.json").write_text(f'{{"offsetTable":{{"TopicTest@g":{{0:{place}}}}}}}')
    made, _ = salvage(tmp_path / "new", master, slave, prefer=slave.name)
    assert ":5}" in (tmp_path / "new/config/consumerOffset.json").read_text()
    assert f"configuration, timer and all else beside the log are those of {slave.name}" in made.receipt.notes


def test_records_of_a_source_with_segments_of_another_size_are_listed(tmp_path: Path) -> None:
    pieces = [{"body": b"%d" % at} for at in range(24)]
    one = WholeStore(pieces[:12], segment_size=1024).write(tmp_path / "one")
    two = WholeStore(pieces, segment_size=2048).write(tmp_path / "two")
    made, _ = salvage(tmp_path / "new", one, two, dry_run=True)
    (row,) = made.receipt.not_chosen
    assert row.source == "two" and row.records >= 12 and not made.is_complete


def test_the_log_of_another_broker_in_an_image_is_a_choice(tmp_path: Path, run: Run) -> None:
    image = tmp_path / "disk"
    image.write_bytes(b"".join(raw for name in ("killed-4.9.7", "healthy-4.9.7") for raw in segments_of(sample(name))))
    status, out, _ = run(image, "--carve", "--dry-run", "--prefer", "127.0.0.1:21911")
    assert status == ExitStatus.DAMAGE
    assert "sound records that only" in out
