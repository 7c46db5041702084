"""The receipt of a new store: what it was made of, what was written, what was left out, and what was proven.

It holds names of files and topics, offsets, sizes and times: no body, key, tag, property or host of a message.

`docs/rebuild.md` has a row for each field, which a test compares with this module.
"""

import json
from typing import Annotated, Any

from rmqinspect.document import Part, as_object, means

SCHEMA_VERSION = 1


class Brought(Part, frozen=True):
    """A file of the source that is in the new store."""

    file: Annotated[str, means("name relative to the new store")]
    size: Annotated[int, means("bytes")]
    how: Annotated[
        str,
        means(
            "`copied`; `reflinked`: a copy that shares its blocks until one of both is written to; `linked`: the "
            "source's own file by another name (`--link`); `edited`: with offsets set back (`--set-offsets`)"
        ),
    ]
    sha256: Annotated[str | None, means("SHA-256 of the source's file; null without `--hash`")] = None


class LeftOut(Part, frozen=True):
    """Something of the source that is not in the new store, and was not written anew either."""

    file: Annotated[str, means("name relative to the source")]
    why: Annotated[str, means("a sentence")]


class RebuiltQueue(Part, frozen=True):
    """A queue that is not as its records alone would make it."""

    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]
    first: Annotated[int, means("first queue offset")]
    end: Annotated[int, means("queue offset behind the last one")]
    copies: Annotated[
        int,
        means(
            "queue offsets without a record: each has a copy of a neighbour's unit, or, where no record of the queue "
            "is left, a unit that leads to none"
        ),
    ]
    left_out: Annotated[int, means("records without a unit: an earlier record has their queue offset")]
    restarts: Annotated[int, means("how often the offsets begin anew at 0 in the log")]


class Derived(Part, frozen=True):
    """What was written anew from the log."""

    records: Annotated[int, means("records of the log that were read")]
    queues: Annotated[int, means("queues")]
    units: Annotated[int, means("queue units, without filler and copies")]
    index_files: Annotated[int, means("index files")]
    index_entries: Annotated[int, means("entries in them")]
    checkpoint: Annotated[dict[str, int], means("a field of `checkpoint`: times in ms, offsets in bytes")]
    ledger_units: Annotated[int, means("units of a DLedger log's own index")]
    odd_queues: Annotated[list[RebuiltQueue], means("queues with copies, or with records that got no unit")]


class GroupOffset(Part, frozen=True):
    """An offset of a group, or of a delay level, beyond the end of its rebuilt queue."""

    file: Annotated[str, means("of `config/`")]
    group: Annotated[str, means("the group; of a delay level its number")]
    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]
    offset: Annotated[int, means("where the group goes on")]
    end: Annotated[int, means("queue offset that the next message gets: all before `offset` would not be delivered")]
    is_set: Annotated[bool, means("whether it is set to `end` in the new store (`--set-offsets`)")]


class Geometry(Part, frozen=True):
    """Sizes that no file says."""

    queue_file: Annotated[int, means("bytes of a queue file")]
    batch_queue_file: Annotated[int, means("bytes of a batch queue file")]
    ext_file: Annotated[int | None, means("bytes of an ext file; null: none are written")]
    index_slots: Annotated[int, means("slots of an index file")]
    index_entries: Annotated[int, means("entries that an index file has room for")]


RUN = "[who, where and with what](report.md#the-run)"


class Head(Part, frozen=True):
    """What every receipt begins with."""

    schema_version: Annotated[int, means("1")]
    tool: Annotated[str, means("name and version of this program")]
    command: Annotated[str, means("`rebuild` or `salvage`")]
    store: Annotated[str, means("path of the new store, as given")]
    started: Annotated[str, means("ISO 8601, UTC")]
    ended: Annotated[str, means("ISO 8601, UTC")]
    broker_version: Annotated[str, means("release for which the store was written, and whose start was worked out")]
    version_from: Annotated[str, means("what shows it: `given`, or the clues")]


class Receipt(Head, frozen=True):
    """The whole receipt of a rebuild."""

    source: Annotated[list[str], means("paths that were given")]
    dry_run: Annotated[bool, means("whether nothing was written")]
    only: Annotated[str | None, means("`queues` or `index`: what alone was written anew; null: all")]
    geometry: Annotated[Geometry, means("sizes of the new files")]
    assumed: Annotated[list[str], means("what these sizes rest on, sentences")]
    brought: Annotated[list[Brought], means("files of the source")]
    left_out: Annotated[list[LeftOut], means("what is not in the new store")]
    derived: Annotated[Derived, means("what was written anew")]
    offsets_beyond: Annotated[list[GroupOffset], means("offsets of groups beyond the ends of rebuilt queues")]
    unnamed_topics: Annotated[
        dict[str, int],
        means("topics with queues that `topics.json` does not name, and how many: no client sees them until it does"),
    ]
    notes: Annotated[list[str], means("what differs from what a broker would have written, sentences")]
    verdict: Annotated[str | None, means("of `verify --level deep` of the new store; null where nothing was written")]
    next_start: Annotated[
        str | None, means("of `forecast` of the new store, for `broker_version`; null where nothing was written")
    ]
    run: Annotated[dict[str, Any], means(RUN)]


def as_json(receipt: Head) -> bytes:
    """Return the receipt as the bytes of its file."""
    return (json.dumps(as_object(receipt), ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")
