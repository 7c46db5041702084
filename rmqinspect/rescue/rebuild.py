"""All derived files of a store from its log alone: queues, index, checkpoint, as a broker writes them.

Source: DefaultMessageStore.ReputMessageService#doReput and the dispatchers it calls.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, Geometry

QUEUES, INDEX = "queues", "index"

Queue = tuple[str, int]  # topic, queue id


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written, and how: what a store does not say is the broker's default."""

    release: str  # of RELEASES: the broker that is to serve the store
    what: frozenset[str] = frozenset((QUEUES, INDEX))  # the checkpoint is always written
    queue_file: int = 6_000_000  # bytes, of 20 each unit: mappedFileSizeConsumeQueue
    batch_file: int = 13_800_000  # bytes, of 46 each unit
    ext_file: int | None = None  # bytes: mappedFileSizeConsumeQueueExt; None: no ext files
    index: Geometry = DEFAULT_GEOMETRY  # maxHashSlotNum, maxIndexNum
    batch_topics: frozenset[str] = frozenset()  # of type BatchCQ
    delays: tuple[int, ...] = ()  # ms of each delay level, from level 1 on: messageDelayLevel
    in_rocksdb: str | None = None  # the folder of the database that holds the queues; None: files


@dataclass(slots=True)
class QueueWritten:
    """One queue: its offsets are [first, end), of which `copies` have the unit of a neighbour."""

    first: int
    end: int
    copies: int = 0  # offsets that no record of the log has
    repeated: int = 0  # records at an offset that an earlier record has: they get no unit, as a broker gives none


@dataclass(slots=True)
class Rebuilt:
    """What was written."""

    queues: dict[Queue, QueueWritten] = field(default_factory=dict)
    units: int = 0
    index_files: int = 0
    entries: int = 0
    notes: list[str] = field(default_factory=list)  # what is not as a broker would have written it, for people


def rebuild_derived(
    folder: str,
    plan: Plan,
    *,
    lost: Mapping[Queue, Ints] = {},
    jobs: int = 1,
    progress: Callable[[int], None] = lambda size: None,
) -> Rebuilt:
    """Write consumequeue/, batchconsumequeue/, consumequeue_ext/, index/, checkpoint into a store under construction.

    `folder` is the root of that store (`NewStore.folder`): its log and its config are in place, sound and whole,
    where records are lost with fillers that no reader takes for messages; none of what is written exists yet.

    `lost` are queue offsets, int64, ascending, that a queue has to have although no record of the log has them. Each
    gets a copy of the unit of the next record in its queue, else of the one before; so do holes inside of a queue,
    without being named. A queue of which no record is left gets no files. A unit of zeros, or filler, never stands
    between units: a pull that meets it ends there, or passes over the messages that follow.

    `progress` gets bytes of log that were read.

    :raises Refused: a file exists, cannot be written, or the log has a hole of a size that no queue can have.
    :raises NotInstalled: the queues are to be in RocksDB, and the library is not installed.
    :raises Unreadable: the log cannot be read.
    """
    raise NotImplementedError(f"{folder}: {plan}, {lost}, {jobs}, {progress}, {np.int64}")
