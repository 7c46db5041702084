"""schemas/*.ksy: made from the layouts, and the real compiler's readers find in real stores what rmqinspect finds."""

import shutil
from contextlib import closing
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from construct import Construct, Int24ub, Int32ul, Struct, this

from docs.build import kaitai
from docs.build.layouts import MODULES, condition, expression, fields_of, type_name
from rmqinspect.codec import message_id
from rmqinspect.codec.layout import dtype_of
from rmqinspect.index.geometry import read_index_files
from rmqinspect.schemas import checkpoint, consumequeue, dledger, message, messageid, rocksdb, timer
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables import TABLES
from tests.codec.test_layout import raw_records
from tests.support import oracle
from tests.support.kaitai import compiled
from tests.support.rocksdb import needs_rocksdict
from tests.support.samples import NAMES, ROOT, sample
from tests.support.side_tables import ROCKSDB, broker, crash, milliseconds, rows_of_broker

pytestmark = pytest.mark.xdist_group("kaitai")  # compiled once

FILES = sorted((ROOT / "schemas").glob("*.ksy"))
# A reader of Kaitai goes as far as lengths lead it: of logs with a damaged frame it reads what is before the damage.
LOGS = (
    *(name for name in NAMES if not name.startswith("zeroed-page")),
    "base-4.2.0-clean",
    "base-5.2.0-halt",
    "main-4.7.1",
    "main-5.3.3",
    "main-5.5.0",
)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The class of each .ksy file, by the file's name."""
    modules = compiled(FILES, tmp_path_factory.mktemp("kaitai"))
    return {name.removeprefix("rocketmq_"): _class(module, name) for name, module in modules.items()}


def _class(module: ModuleType, name: str) -> Any:
    return getattr(module, _camel(name))


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def store_of(name: str) -> Store:
    if name in NAMES:
        return open_store([str(sample(name))])
    return crash(name) if name.startswith("base-") else broker(name)


def agree(kaitai_value: Any, own: Any) -> None:
    """Assert that a value of Kaitai's reader is that of ours: numpy's or construct's, with all fields."""
    names: list[str] = []
    if isinstance(own, np.void):
        names = list(own.dtype.names or ())
    elif hasattr(own, "keys"):
        names = [name for name in own if not name.startswith("_")]
    for name in names:
        agree(getattr(kaitai_value, name), own[name])
    if isinstance(own, np.ndarray):
        assert kaitai_value == own.tobytes()
    elif not names:
        assert kaitai_value == own


# --- how they are made -----------------------------------------------------------------------------------------------


def test_every_file_is_what_the_generator_writes() -> None:
    assert [path.stem for path in FILES] == sorted(one.name for one in kaitai.FORMATS)
    for one in kaitai.FORMATS:
        assert kaitai.file_of(one) == (kaitai.FOLDER / f"{one.name}.ksy").read_text(), (
            "run: python -m docs.build.kaitai"
        )


def test_every_layout_of_the_schemas_is_in_a_file() -> None:
    inside = {type_name(consumequeue.ExtHead)}  # of ext_unit
    written = {type_name(layout) for one in kaitai.FORMATS for layout in one.layouts}
    layouts = {value for module in MODULES for value in vars(module).values() if isinstance(value, Struct)}
    assert written | inside == {type_name(layout) for layout in layouts}


@pytest.mark.parametrize(
    "wrong", [Int24ub, Int32ul, Struct("inner" / Int32ul)], ids=["three bytes", "little-endian", "without a name"]
)
def test_what_kaitai_has_no_word_for_is_an_error(wrong: Construct) -> None:
    with pytest.raises(TypeError):
        kaitai.type_of(wrong)


def test_an_expression_without_a_translation_is_an_error() -> None:
    assert expression(message.at_least_zero(this.size)) == "size > 0 ? size : 0"
    assert condition(this.flags & SysFlag.BORNHOST_V6) == "(flags & 16) != 0"
    assert condition((this.a & 1) == 2) == "(a & 1) == 2"
    for wrong in (lambda record: record.size, this.size / 2, this._.size, "size"):
        with pytest.raises(TypeError):
            expression(wrong)


def test_a_field_says_what_explain_says_or_its_comment() -> None:
    meanings = {field.name: field.meaning for field in fields_of(timer.TimerUnit)}
    assert meanings["size"] == "52"
    assert meanings["previous"].endswith("-1: none")
    assert "hash of the TAGS" in next(f.meaning for f in fields_of(consumequeue.ExtUnit) if f.name == "tags_code")


# --- what they read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
def test_all_records_of_a_log_are_read_alike(name: str, readers: dict[str, Any]) -> None:
    store = store_of(name)
    ours = {numbers["physical_offset"]: (raw, numbers) for raw, numbers in raw_records(store)}
    read = set()
    for segment in store.segments:
        position = segment.base
        for entry in getattr(readers["commitlog"].from_bytes(Path(segment.path).read_bytes()), "entries", []):
            if entry.is_record:
                raw, numbers = ours[position]
                found = entry.record
                agree(found, message.Message.parse(raw))
                for field, value in numbers.items():
                    owner, _, part = field.rpartition(".")
                    assert getattr(getattr(found, owner) if owner else found, part) == value
                assert found.physical_offset == position
                for flag in SysFlag:
                    assert getattr(found, str(flag.name).lower()) == bool(numbers["sys_flag"] & flag)
                read.add(position)
                position += found.total_size
            elif entry.is_blank:
                assert entry.blank.total_size == segment.end - position
    assert read == ours.keys()
    assert len(read) > 200


def test_records_of_both_versions_and_of_all_kinds_of_hosts_are_among_them() -> None:
    records = [numbers for name in LOGS for _, numbers in raw_records(store_of(name))]
    assert {numbers["magic"] for numbers in records} == set(message.RECORD_MAGICS)
    assert {numbers["sys_flag"] & 0x30 for numbers in records} == {0, 0x10, 0x20, 0x30}


@pytest.mark.parametrize(
    ("format_", "kind", "layout", "name"),
    [
        ("consumequeue", "queue", consumequeue.QueueUnit, "main-5.3.3"),
        ("consumequeue", "queue", consumequeue.QueueUnit, "base-4.2.0-clean"),
        ("batchconsumequeue", "batch_queue", consumequeue.BatchUnit, "main-5.3.3"),
        ("batchconsumequeue", "compaction_queue", consumequeue.BatchUnit, "compaction-5.3.3"),
        ("checkpoint", "checkpoint", checkpoint.Checkpoint, "base-4.2.0-clean"),
        ("checkpoint", "checkpoint", checkpoint.Checkpoint, "base-5.5.0-clean"),
        ("timercheck", "config", timer.TimerCheck, "main-5.3.3"),
        ("timerwheel", "timer_wheel", timer.WheelSlot, "main-5.3.3"),
        ("dledger_index", "dledger_index", dledger.EntryIndexUnit, "dledger-5.3.3"),
    ],
)
def test_units_are_read_alike(
    format_: str, kind: str, layout: Construct, name: str, readers: dict[str, Any], tmp_path: Path
) -> None:
    files = [file for file in store_of(name).of_kind(kind) if kind != "config" or file.name.endswith("timercheck")]
    assert files
    used = 0
    for file in files[:12]:
        raw = Path(file.path).read_bytes()[: 4096 * layout.sizeof()]
        found = readers[format_].from_bytes(raw)
        units = [found.fields] if hasattr(found, "fields") else getattr(found, "slots", None) or found.units
        rows = np.frombuffer(raw, dtype_of(layout), 1 if hasattr(found, "fields") else len(raw) // layout.sizeof())
        assert len(units) == len(rows)
        for unit, row in zip(units, rows, strict=True):
            agree(unit, row)
        used += sum(row.tobytes().strip(b"\0") != b"" for row in rows)
    assert used or kind == "timer_wheel"


@pytest.mark.parametrize("name", ["base-4.2.0-clean", "main-5.5.0"])
def test_index_files_are_read_alike(name: str, readers: dict[str, Any]) -> None:
    for index in read_index_files(store_of(name)):
        assert index.geometry is not None
        geometry, path = index.geometry, Path(index.file.path)
        raw = path.read_bytes()
        found = readers["index"](geometry.slots, geometry.entries, _stream(raw))
        agree(found.header, index.header)
        for number, slot in enumerate(found.slots):
            assert slot.entry == int.from_bytes(raw[geometry.slot_position(number) :][:4], signed=True)
        used = [found.entries[number] for number in range(1, index.entries + 1)]
        assert used and all(entry.key_hash >= 0 and entry.previous < len(found.entries) for entry in used)
        # A slot leads to the newest entry whose hash chooses it.
        newest = {entry.key_hash % geometry.slots: number for number, entry in enumerate(used, 1)}
        assert {number: slot.entry for number, slot in enumerate(found.slots) if slot.entry} == newest


def _stream(raw: bytes) -> Any:
    from kaitaistruct import BytesIO, KaitaiStream

    return KaitaiStream(BytesIO(raw))


@pytest.mark.parametrize("name", ["ext-4.9.7", "ext-5.3.3"])
def test_ext_units_are_read_alike(name: str, readers: dict[str, Any]) -> None:
    files = store_of(name).of_kind("ext_queue")
    read = 0
    for file in files:
        raw = Path(file.path).read_bytes()
        place = 0
        for entry in readers["consumequeue_ext"].from_bytes(raw).entries:
            if entry.is_unit:
                agree(entry.unit, consumequeue.ExtUnit.parse(raw[place:]))
                place += entry.unit.size
                read += 1
        assert place == len(raw) or int.from_bytes(raw[place : place + 2], signed=True) <= 0
    assert read > 10


def test_the_timer_log_is_read_alike(readers: dict[str, Any]) -> None:
    read = 0
    for file in store_of("main-5.3.3").of_kind("timer_log"):
        raw = Path(file.path).read_bytes()
        entries = [entry.unit for entry in readers["timerlog"].from_bytes(raw).entries if entry.is_unit]
        rows = np.frombuffer(raw, dtype_of(timer.TimerUnit), len(entries))
        for unit, row in zip(entries, rows, strict=True):
            agree(unit, row)
        assert raw[len(entries) * timer.UNIT_SIZE :][:4] in (b"", bytes(4)) or timer.BLANK_MAGIC in [
            int.from_bytes(raw[len(entries) * timer.UNIT_SIZE :][12:16], signed=True)
        ]
        read += len(entries)
    assert read > 5


@pytest.mark.parametrize("name", ["dledger-4.9.7", "dledger-5.3.3"])
def test_entries_of_dledger_and_the_records_in_them_are_read_alike(name: str, readers: dict[str, Any]) -> None:
    store = store_of(name)
    ours = {numbers["physical_offset"]: raw for raw, numbers in raw_records(store)}
    read = set()
    for segment in store.segments:
        raw, place = Path(segment.path).read_bytes(), 0
        for entry in readers["dledger"].from_bytes(raw).entries:
            if entry.is_ledger:
                agree(entry.ledger.head, dledger.EntryHead.parse(raw[place:]))
                assert entry.ledger.head.position == segment.base + place
                if entry.ledger.head.magic == dledger.ENTRY_MAGICS[0]:
                    at = segment.base + place + segment.lead
                    agree(entry.ledger.body, message.Message.parse(ours[at]))
                    read.add(at)
                place += entry.ledger.head.size
            elif entry.is_blank:
                assert entry.blank.total_size == segment.size - place
    assert read == ours.keys()
    assert len(read) > 100


def test_any_bytes_are_read_alike(readers: dict[str, Any]) -> None:
    """Of every type of fixed size: also those of ids and of RocksDB, which are no files."""
    random = Random(8)
    tried = set()
    for one in kaitai.FORMATS:
        for layout in one.layouts:
            if layout in (message.Message, message.BatchItem, consumequeue.ExtUnit):
                continue
            if layout in (rocksdb.ConsumerOffsetKey, rocksdb.ConfigKey):
                continue
            reader = getattr(readers[one.name], _camel(type_name(layout)))
            for raw in (random.randbytes(layout.sizeof()) for _ in range(20)):
                agree(reader(_stream(raw)), layout.parse(raw))
            tried.add(type_name(layout))
    assert len(tried) > 30
    assert type_name(messageid.GrpcClientId) in tried


def test_names_and_bodies_of_any_length_are_read_alike(readers: dict[str, Any]) -> None:
    head = {"prefix": 1, "table": 1, "record": 2}
    sizes = {"body_size": 4, "properties_size": 2, "total_size": 1, "magic": 0, "body_crc": 0, "flag": 5}
    parts = {"group_size": 3, "group": b"abc", "group_separator": 1, "topic_size": 1, "topic": b"T"}
    tries: list[tuple[str, Construct, dict[str, Any]]] = [
        ("rocksdb", rocksdb.ConsumerOffsetKey, head | parts | {"topic_separator": 1, "queue_id": 7}),
        ("rocksdb", rocksdb.ConfigKey, head | {"name_size": 2, "name": b"ab"}),
        ("commitlog", message.BatchItem, sizes | {"body": b"body", "properties": b"pr"}),
        ("commitlog", message.BatchItem, sizes | {"body_size": -1, "body": b"", "properties": b"pr"}),
        ("commitlog", message.BatchItem, sizes | {"body": b"body", "properties_size": -2, "properties": b""}),
    ]
    for name, layout, values in tries:
        raw = layout.build(values)
        agree(getattr(readers[name], _camel(type_name(layout)))(_stream(raw)), layout.parse(raw))


def test_items_of_real_batches_are_read_alike(readers: dict[str, Any]) -> None:
    batches = [raw for raw, numbers in raw_records(broker("main-5.3.3")) if numbers["sys_flag"] & SysFlag.INNER_BATCH]
    assert batches
    for raw in batches:
        body = message.Message.parse(raw).body
        stream = _stream(body)
        while not stream.is_eof():
            start = stream.pos()
            item = readers["commitlog"].BatchItem(stream)
            agree(item, message.BatchItem.parse(body[start:]))
            assert stream.pos() - start == item.total_size


def _items(root: Path, copy: Path, family: str) -> list[tuple[bytes, bytes]]:
    """Return what a copy of a database holds in a column family."""
    from rocksdict import AccessType, Options, Rdict

    shutil.copytree(root, copy)
    options = Options(raw_mode=True)
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(copy), options)}
    access = AccessType.read_only(error_if_log_file_exist=False)
    with closing(Rdict(str(copy), options=options, column_families=families, access_type=access)) as database:
        items: Any = database.get_column_family(family).items()
        return list(items)


@needs_rocksdict
@pytest.mark.parametrize("name", ROCKSDB)
def test_queues_in_rocksdb_are_read_alike(name: str, readers: dict[str, Any], tmp_path: Path) -> None:
    """Keys and values of a real broker's database, against the units that our own reader finds in it."""
    types, found = readers["rocksdb"], {}
    for key, value in _items(oracle.store("broker", name) / "consumequeue", tmp_path / "copy", "default"):
        stream = _stream(key)
        head = types.KeyHead(stream)
        topic = stream.read_bytes(head.topic_size).decode()
        tail, unit = types.UnitKeyTail(stream), types.UnitValue(_stream(value))
        assert stream.is_eof()
        assert {head.separator, tail.separator, tail.queue_separator} == {rocksdb.SEPARATOR}
        found[topic, tail.queue_id, tail.queue_offset] = (unit.physical_offset, unit.size, unit.tags_code)
    ours = {
        (row["topic"], row["queue_id"], row["queue_offset"]): (row["physical_offset"], row["size"], row["tags_code"])
        for row in rows_of_broker(TABLES["queue_units"], name)
    }
    assert found and found == ours


@needs_rocksdict
def test_timer_messages_in_rocksdb_are_read_alike(readers: dict[str, Any], tmp_path: Path) -> None:
    types, found = readers["rocksdb"], set()
    for key, value in _items(oracle.store("broker", "rocksopt-5.5.0") / "rocksdbstore", tmp_path / "copy", "timer"):
        if key not in rocksdb.TIMER_KEYS:
            stream = _stream(key)
            head, entry = types.TimerKeyHead(stream), types.TimerValue(_stream(value))
            unique = stream.read_bytes_full().decode()
            found.add((head.deliver_timestamp, unique, entry.physical_offset, entry.record_size))
    ours = {
        (milliseconds(row["deliver_timestamp"]), row["msg_id"], row["physical_offset"], row["size"])
        for row in rows_of_broker(TABLES["rocksdb_entries"], "rocksopt-5.5.0")
    }
    assert found and found == ours


def test_ids_that_clients_were_given_are_read_alike(readers: dict[str, Any]) -> None:
    types, kinds = readers["message_id"], set()
    for sent in oracle.truth("broker", "main-5.3.3")["sent"]:
        if sent.get("offset_msg_id"):
            raw = bytes.fromhex(sent["offset_msg_id"])
            kind = types.OffsetIdV4 if len(raw) == messageid.OffsetIdV4.sizeof() else types.OffsetIdV6
            (read, *_) = message_id.decode(sent["offset_msg_id"])
            assert kind(_stream(raw)).physical_offset == read.physical_offset  # type: ignore[union-attr]
            assert kind(_stream(raw)).port == read.port  # type: ignore[union-attr]
            kinds.add(kind)
        for text in message_id.split_batch(sent.get("msg_id") or ""):
            raw = bytes.fromhex(text)
            own = next((read for read in message_id.decode(text) if isinstance(read, message_id.ClientId)), None)
            if own is not None:
                kind = types.ClientIdV4 if len(raw) == messageid.ClientIdV4.sizeof() else types.ClientIdV6
                found = kind(_stream(raw))
                for name in ("pid", "loader_hash", "time_in_month", "counter"):
                    assert getattr(found, name) == getattr(own, name)
                kinds.add(kind)
    assert kinds >= {types.OffsetIdV4, types.ClientIdV4}
