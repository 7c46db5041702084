"""What `rebuild` writes is what real brokers wrote: every queue unit, every byte of the index.

Stores that nobody damaged; what cannot be equal is in docs/rebuild.md: names of index files, topics that a broker has
deleted, filter bitmaps of ext units, and what retention has taken from the log.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.consumequeue.units import filler_units, read_ext_tags, read_units, unit_numbers
from rmqinspect.index.geometry import read_entries, read_index_files
from rmqinspect.rescue.job import RebuildJob, RebuildRequest
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.rescue.receipt import as_json
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from tests.support import oracle
from tests.support.rocksdb import needs_rocksdict
from tests.support.sampling import sampled

Items = Iterable[tuple[bytes, bytes]]
Unit = tuple[int, int, int]  # physical offset, size, tags code
Queues = dict[tuple[str, int, str], dict[int, Unit]]

IN_ROCKSDB = ("rocksdb-5.3.3", "rocksdb-5.4.0")
UNDAMAGED = [
    *(("broker", name) for name in oracle.cases("broker") if not name.startswith("rocks")),
    *(("crash", name) for name in oracle.cases("crash") if name.startswith("base-")),
]

# Of the others retention took what the first units pointed at, or ext units have bitmaps.
REBUILT_WHOLE = [(family, name) for family, name in UNDAMAGED if not name.startswith(("retention-", "ext-"))]


def rebuild(root: Path, target: Path, release: str | None, **options: object) -> Store:
    """Rebuild a store, and return the new one; it is proven whole."""
    store = open_store([str(root)])
    request = RebuildRequest(str(target), release, **options)  # type: ignore[arg-type]
    with NewStore(str(target), store.paths) as new:
        result = RebuildJob(store, request, new, lambda size: None, lambda text: None).go()
        assert result.holds, (result.receipt.verdict, result.receipt.next_start)
        new.commit(as_json(result.receipt))
    return open_store([str(target)])


def queues_of(store: Store) -> Queues:
    """Return the units of all queues by queue offset, without filler; ext addresses are followed."""
    found: Queues = {}
    for file in store.queue_files:
        if file.kind == "ext_queue":
            continue
        units = found.setdefault((file.topic, file.queue_id, file.kind), {})
        ext = [one for one in store.queue_files if one.kind == "ext_queue" and one.topic == file.topic]
        ext = [one for one in ext if one.queue_id == file.queue_id]
        with open_file(file) as reader:
            for row, window in read_units(reader, file.kind):
                used = (window["size"] > 0) & ~filler_units(window)
                numbers, _ = unit_numbers(file, row, window)
                tags = tags_of(window, ext)
                columns = zip(
                    numbers[used], window["physical_offset"][used], window["size"][used], tags[used], strict=True
                )
                units.update((int(at), (int(place), int(size), int(tag))) for at, place, size, tag in columns)
    return {queue: units for queue, units in found.items() if units}


def tags_of(window: Units, ext: Sequence[QueueFile]) -> Ints:
    tags = window["tags_code"].astype(np.int64)
    found, known = np.zeros_like(tags), np.zeros(len(tags), np.bool_)
    read_ext_tags(ext, tags, found, known)
    assert known[tags <= EXT_ADDRESS_MAX].all()
    return np.where(known, found, tags)


def keys_of(store: Store, log_start: int) -> list[tuple[int, int]]:
    """Return (physical offset, hash) of all entries of the index that lead into the log, in their order."""
    found: list[tuple[int, int]] = []
    for index in read_index_files(store):
        assert index.geometry is not None
        with open_file(index.file) as reader:
            entries = read_entries(reader, index.geometry, 1, index.entries)
        found += zip(entries["physical_offset"].tolist(), entries["key_hash"].tolist(), strict=True)
    return [key for key in found if key[0] >= log_start]


def known_topics(root: Path) -> set[str] | None:
    config = root / "config" / "topics.json"
    return set(json.loads(config.read_text())["topicConfigTable"]) if config.exists() else None


def in_log(queues: Queues, log_start: int) -> Iterator[tuple[tuple[str, int, str], dict[int, Unit]]]:
    for queue, units in queues.items():
        kept = {at: unit for at, unit in units.items() if unit[0] >= log_start}
        if kept:
            yield queue, kept


@pytest.mark.parametrize(("family", "name"), sampled(UNDAMAGED, 4))
def test_queues_and_index_are_those_of_the_broker(tmp_path: Path, family: oracle.Family, name: str) -> None:
    root = oracle.store(family, name)
    release = name.split("-")[1]
    old, new = open_store([str(root)]), rebuild(root, tmp_path / "new", release)
    start = old.log_start
    theirs, ours = dict(in_log(queues_of(old), start)), queues_of(new)
    for topic, queue_id, kind in ours.keys() - theirs.keys():
        # The broker has deleted the topic; its records are in the log.
        assert not any(queue[0] == topic for queue in theirs), (topic, queue_id, kind)
        assert topic not in (known_topics(root) or ())
    assert {queue: ours[queue] for queue in theirs} == theirs
    assert keys_of(new, start) == keys_of(old, start)
    if start == 0:
        assert [(tmp_path / "new" / file.name).read_bytes() for file in new.index_files] == [
            (root / file.name).read_bytes() for file in old.index_files
        ]


@pytest.mark.parametrize(("family", "name"), sampled(REBUILT_WHOLE, 9))
def test_files_of_queues_are_equal_byte_by_byte(tmp_path: Path, family: oracle.Family, name: str) -> None:
    root = oracle.store(family, name)
    old, new = open_store([str(root)]), rebuild(root, tmp_path / "new", name.split("-")[1], only="queues")
    assert all((tmp_path / "new" / file.name).read_bytes() == Path(file.path).read_bytes() for file in old.queue_files)
    # What was not asked for is what it was.
    assert [file.name for file in new.index_files] == [file.name for file in old.index_files]


@needs_rocksdict
@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_queues_in_rocksdb_have_the_broker_s_keys_and_values(tmp_path: Path, name: str) -> None:
    root = oracle.store("broker", name)
    rebuild(root, tmp_path / "new", name.split("-")[1])
    theirs, ours = items_of(root, tmp_path / "theirs"), items_of(tmp_path / "new", tmp_path / "ours")
    assert {key: ours["default"].get(key) for key in theirs["default"]} == theirs["default"]
    ends = {key: value for key, value in theirs["offset"].items() if b"\1max\1" in key}
    assert {key: ours["offset"].get(key) for key in ends} == ends


def items_of(root: Path, copy: Path) -> dict[str, dict[bytes, bytes]]:
    """Return the entries of the database of queues, by column family; a copy is opened."""
    import shutil

    from rocksdict import AccessType, Options, Rdict

    shutil.copytree(root / "consumequeue", copy)
    families = {name: Options(raw_mode=True) for name in ("default", "offset")}
    with Rdict(str(copy), Options(raw_mode=True), families, AccessType.read_only()) as database:
        found = {name: cast(Items, database.get_column_family(name).items()) for name in families}
        return {name: dict(items) for name, items in found.items()}


@pytest.mark.parametrize("name", [name for name in oracle.cases("broker") if name.startswith("dledger")])
def test_the_index_of_a_dledger_log_is_equal_byte_by_byte(tmp_path: Path, name: str) -> None:
    root = oracle.store("broker", name)
    rebuild(root, tmp_path / "new", name.split("-")[1])
    files = [path.relative_to(root) for path in root.glob("dledger-*/*/*")]
    assert {path.parts[1] for path in files} == {"data", "index"}
    assert all((tmp_path / "new" / path).read_bytes() == (root / path).read_bytes() for path in files)
