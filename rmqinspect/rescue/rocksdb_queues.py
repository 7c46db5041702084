"""Consume queues under construction in RocksDB, as brokers with storeType=defaultRocksDB keep them.

    column family   key                                                   value
    default         topic, queue id, queue offset                         the unit, and its record's store time
    offset          topic, "max", queue id                                place and offset of the last message
                    topic, "min", queue id                                of the first one, where that is not 0
                    CHECKPOINT_TOPIC, "max", 0                            place behind the newest record

A batch of units is written at a time. Tables have a format, and no compression, that every release's library reads.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable, ConsumeQueueRocksDBStorage; RocketMQ 5.2.0 to 5.5.0.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from rmqinspect.codec.arrays import Ints, Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import NotInstalled, Refused
from rmqinspect.rescue.queue_files import Queue, QueueFiles
from rmqinspect.rocksdb.unpack import INSTALL
from rmqinspect.schemas import rocksdb as layouts
from rmqinspect.system.uri import shown

UNIT = dtype_of(layouts.UnitValue)
_FORMAT = 5  # of tables: RocksDB 6.6; the library of RocketMQ 5.2.0 reads up to 5
_OFFSETS = "offset"
_LEFT_BY_LIBRARY = ("rocksdict-config.json", "LOG")


class RocksdbQueues(QueueFiles):
    """All queues of a store, in one database."""

    unit = UNIT
    has_files = False

    def __init__(self, folder: str, lost: Mapping[Queue, Ints]) -> None:
        """Make a database in a folder.

        :raises Refused: it cannot be made.
        :raises NotInstalled: the library is not installed.
        """
        super().__init__(folder, UNIT.itemsize, lost)
        try:
            from rocksdict import Rdict
        except ImportError as error:
            raise NotInstalled(f"{shown(folder)}: writing queues into RocksDB needs: {INSTALL}") from error

        os.makedirs(folder, exist_ok=True)
        try:
            self._database: Any = Rdict(folder, options=_options())
            self._offsets: Any = self._database.create_column_family(_OFFSETS, _options())
        except Exception as error:  # the library raises no other
            raise Refused(f"{shown(folder)}: no database can be made: {error}") from error
        self._newest = -1  # physical offset behind the newest record with a unit

    def _begin(self, queue: Queue, offset: int) -> None:
        """Write nothing: a queue may begin anywhere."""

    def _write(self, queue: Queue, offset: int, units: Units) -> None:
        from rocksdict import WriteBatch

        keys, values = _keys(queue, offset, len(units)), units.tobytes()
        size = len(keys) // len(units)
        batch = WriteBatch(raw_mode=True)
        for number in range(len(units)):
            batch.put(
                keys[number * size : (number + 1) * size],
                values[number * UNIT.itemsize : (number + 1) * UNIT.itemsize],
            )
        self._ask(self._database.write, batch)
        self._newest = max(self._newest, int((units["physical_offset"] + units["size"]).max()))

    def _delete(self, queue: Queue) -> None:
        written = self.written[queue]
        first, end = _keys(queue, written.first, 1), _keys(queue, written.end, 1)
        self._ask(self._database.delete_range, first, end)

    def finish(self) -> None:
        """Write the copies behind the last records, and where the queues begin and end."""
        super().finish()
        for queue, written in self.written.items():
            last = int(self._last[queue]["physical_offset"][0])
            self._put_end(queue[0].encode(), b"max", queue[1], layouts.EndValue, last, written.end - 1)
            if written.first:
                raw = self._database.get(_keys(queue, written.first, 1))
                place = layouts.UnitValue.parse(raw).physical_offset
                self._put_end(queue[0].encode(), b"min", queue[1], layouts.EndValue, place, written.first)
        if self._newest >= 0:
            self._put_end(layouts.CHECKPOINT_TOPIC, b"max", 0, layouts.CheckpointValue, self._newest)
        for family in (self._database, self._offsets):
            self._ask(family.flush)
        self._offsets.close()
        self._database.close()
        for name in _LEFT_BY_LIBRARY:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))

    def _put_end(self, topic: bytes, which: bytes, queue_id: int, layout: Any, *values: int) -> None:
        tail = {
            "separator": layouts.SEPARATOR,
            "which": which,
            "which_separator": layouts.SEPARATOR,
            "queue_id": queue_id,
        }
        key = _head(topic) + topic + layouts.EndKeyTail.build(tail)
        names = (field.name for field in layout.subcons)
        value = layout.build(dict(zip(names, values, strict=True)))
        self._ask(self._offsets.put, key, value)

    def _ask(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:  # the library raises no other
            raise Refused(f"{shown(self.folder)}: cannot be written: {error}") from error


def _options() -> Any:
    from rocksdict import BlockBasedOptions, DBCompressionType, Options

    options, tables = Options(raw_mode=True), BlockBasedOptions()
    tables.set_format_version(_FORMAT)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(DBCompressionType.none())
    options.create_if_missing(True)
    return options


def _head(topic: bytes) -> bytes:
    head: bytes = layouts.KeyHead.build({"topic_size": len(topic), "separator": layouts.SEPARATOR})
    return head


def _keys(queue: Queue, offset: int, count: int) -> bytes:
    """Return the keys of consecutive units, one behind the other; all have the same size."""
    topic = queue[0].encode()
    tail = dtype_of(layouts.UnitKeyTail)
    front = np.frombuffer(_head(topic) + topic, np.uint8)
    tails = np.zeros(count, tail)
    tails["separator"] = tails["queue_separator"] = layouts.SEPARATOR
    tails["queue_id"], tails["queue_offset"] = queue[1], np.arange(offset, offset + count)
    keys = np.empty((count, len(front) + tail.itemsize), np.uint8)
    keys[:, : len(front)] = front
    keys[:, len(front) :] = tails.view(np.uint8).reshape(count, tail.itemsize)
    return keys.tobytes()
