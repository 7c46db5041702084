"""The table `carved`: a row for each record found in images, with its place in the image and what it is.

The columns of `messages` mean the same, but for `physical_offset`: where the record stood in its log, as it says
itself. What a cut record does not tell is null; its body is what may be its body, up to the next record, and no more
than 64 KiB, unless it is whole.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from rmqinspect.codec.byte_ranges import take_ranges
from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.errors import NotAStore, Unreadable
from rmqinspect.loops.record_rows import WRONG_CRC
from rmqinspect.rescue.assemble import Assembly, assemble, without_hosts
from rmqinspect.rescue.carve import (
    ALL,
    BAD_BODY,
    DOUBTFUL,
    FRONT,
    KINDS,
    NESTED,
    OVERLAPPING,
    PARTIAL,
    UNCHECKED,
    WHOLE,
    Carver,
    Found,
)
from rmqinspect.rescue.claims import COPY, CROWDED, NO_PLACE, NOWHERE, RIVAL, Claims, image_and_position
from rmqinspect.store.model import IMAGE, Segment, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system import filesystem, uri
from rmqinspect.tables import messages
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import Table, batch_with, column, repeat
from rmqinspect.text import count, group_digits, name_text

_OWN = (
    column("image", pa.string(), "the image, as given"),
    column("position", pa.int64(), "where the record starts in the image, bytes"),
    column("within", pa.int64(), "position of the whole record in whose bytes it starts; null outside"),
    column("copy_of_image", pa.string(), "of a copy or a rival: the image of the record found first"),
    column("copy_of", pa.int64(), "and its position there"),
)
SCHEMA = pa.schema([*_OWN, *messages.SCHEMA])

BRIEF = ("position", *messages.BRIEF)

# Of several, the first one is the status; those of `messages` stand between `rival` and `carved`.
STATUSES = {
    "nested": "whole, and inside of another whole record: a message's body that holds a record; no message of its own",
    "overlapping": "whole, and begins inside of another whole record, but ends behind it",
    "unchecked": "lengths agree; the CRC was not checked: too many records claim the same bytes",
    "partial": "cut: the head is there, the rest is not, or not all of it",
    "doubtful": "lengths and body are right; topic or properties, which no CRC covers, may be cut: no record follows",
    "copy": "the same bytes, its own offset included, were found before: `copy_of`",
    "rival": "another record, of the same host, was found before for the same offset: `copy_of`",
    "carved": "whole: lengths agree, the body has its CRC",
}
_MOST_TOLD = 10  # ambiguities on stderr
SOUND = ("carved", "copy", "nested", "rival")

# Columns of `messages` that a head holds, in its two parts.
_FRONT_COLUMNS = ("physical_offset", "size", "version", "queue_id", "flag", "queue_offset", "sys_flag")
_HEAD_COLUMNS = (
    *("body_size", "transaction", "compression", "reconsume_times", "prepared_transaction_offset"),
    *("born_timestamp", "store_timestamp", "born_host", "born_port", "store_host", "store_port", "offset_msg_id"),
)


def open_images(paths: Sequence[str]) -> Store:
    """Return images as a store of files without names: regular files, or block devices.

    :raises NotAStore: a path does not exist, or is a folder.
    :raises Unreadable: it cannot be opened.
    """
    files = []
    for path in paths:
        real = uri.realpath(uri.local_path(path))
        shown = name_text(path)
        if filesystem.isdir(real):
            raise NotAStore(f"{shown}: a folder; give the files in it, or read it without --carve")
        try:
            filesystem.stat(real)
        except FileNotFoundError as error:
            raise NotAStore(f"{shown}: no such file") from error
        except OSError as error:
            raise Unreadable(f"{shown}: {error.strerror}") from error
        with open_file(Segment(real, shown, 0, IMAGE, 0)) as reader:
            files.append(Segment(real, shown, reader.size, IMAGE, 0))
    name = files[0].name if len(files) == 1 else f"{len(files)} images"
    return Store(
        name=name,
        paths=tuple(file.path for file in files),
        given=IMAGE,
        files=tuple(files),
        segments=(),
        segment_size=None,
        queue_files=(),
        index_files=(),
        checkpoint=None,
        config_files={},
        oddities=(),
        neighbours=False,
    )


class Images:
    """Images that are carved one after the other. After `found`, `assembly` puts together what counts."""

    def __init__(self, files: Sequence[Segment]) -> None:
        self.files = files
        self.claims = Claims(self.read)
        self.unchecked = 0
        self._open: dict[int, FileReader] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Images":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def found(self, request: Request) -> Iterator[tuple[int, Found, np.ndarray, np.ndarray]]:
        """Yield (number of the image, records, of each what `Claims.take` says) by image and position."""
        for number, file in enumerate(self.files):
            try:
                opened = self._opened(number)
            except Unreadable as error:
                request.tell_unread(error)
                continue
            reader = LenientReader(opened, file)
            carver, done = Carver(opened, reader), 0
            for found in carver.run():
                outcomes, others = np.full(len(found.kinds), NOWHERE), np.full(len(found.kinds), NO_PLACE)
                sound = found.kinds == WHOLE
                sound = np.flatnonzero(sound & (found.records.record_crcs != WRONG_CRC) if sound.any() else sound)
                if len(sound):
                    records = found.records if len(sound) == len(outcomes) else found.records.select(sound)
                    outcomes[sound], others[sound] = self.claims.take(number, records)
                yield number, found, outcomes, others
                for unread in reader.take_unread():
                    request.tell_unread(Unreadable(unread.message))
                if request.progress is not None:
                    request.progress(carver.position - done)
                done = carver.position
            self.unchecked += carver.unchecked
            for unread in reader.take_unread():
                request.tell_unread(Unreadable(unread.message))
            if request.progress is not None:
                request.progress(file.size - done)

    def assembly(self) -> Assembly:
        """Return the logs of the records that count."""
        return assemble(self.claims)

    def _opened(self, number: int) -> FileReader:
        if number not in self._open:
            self._open[number] = self._stack.enter_context(open_file(self.files[number]))
        return self._open[number]

    def read(self, number: int, position: int, size: int) -> bytes:
        """Return bytes of an image, fewer at its end; none where it cannot be read."""
        try:
            return self._opened(number).read(position, size)
        except Unreadable:
            return b""


def carved_rows(store: Store, request: Request, *, name_hosts: bool = True) -> Iterator[pa.RecordBatch]:
    """Yield the table; what the records make together is told last, with or without the hosts that stored them."""
    counts = np.zeros(len(KINDS), np.int64)
    outcomes_seen = np.zeros(NOWHERE + 1, np.int64)
    with Images([file for file in store.files if isinstance(file, Segment)]) as images:
        for number, found, outcomes, others in images.found(request):
            counts += np.bincount(found.kinds, minlength=len(KINDS))
            outcomes_seen += np.bincount(outcomes, minlength=len(outcomes_seen))
            for part, rows in _parts(found):
                yield from _batches(images, number, part, outcomes[rows], others[rows], request)
        if request.on_remark is not None:
            for line in summary(images, counts, outcomes_seen, name_hosts=name_hosts):
                request.on_remark(line)


def _parts(found: Found) -> Iterator[tuple[Found, np.ndarray]]:
    """Yield runs of rows that are given in the same way, and their indexes."""
    kind = np.where((found.given == ALL) & (found.kinds != PARTIAL), 0, 1)
    borders = np.flatnonzero(np.diff(kind)) + 1
    if not len(borders):
        yield found, np.arange(len(kind))
        return
    for rows in np.split(np.arange(len(kind)), borders):
        yield found.select(rows), rows


def _batches(
    images: Images, number: int, found: Found, outcomes: np.ndarray, others: np.ndarray, request: Request
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of records that are all given in full, or all not."""
    if found.given[0] != ALL or found.kinds[0] == PARTIAL:
        batches: Iterator[pa.RecordBatch] = iter([_heads(found, request)])
    else:
        batches = messages.message_batches(RecordRun(found.records, carved=False, stale=False), _without_hints(request))
    first = 0
    for batch in batches:
        rows = slice(first, first + batch.num_rows)
        first += batch.num_rows
        part = found if batch.num_rows == len(found.kinds) else found.select(rows)
        yield _with_own(batch, images, number, part, outcomes[rows], others[rows])


def _without_hints(request: Request) -> Request:
    """Return the request for all rows: which record is whose copy does not depend on the filters."""
    return replace(request, records_of=(), with_damaged=False)


def _with_own(
    batch: pa.RecordBatch, images: Images, number: int, found: Found, outcomes: np.ndarray, others: np.ndarray
) -> pa.RecordBatch:
    """Return rows of `messages` as rows of this table."""
    rows = batch.num_rows
    places = [image_and_position(place) for place in others.tolist()]
    none = others == NO_PLACE
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["image"] = repeat(images.files[number].name, rows)
    columns["position"] = pa.array(found.records.positions)
    columns["within"] = pa.array(found.within, mask=found.within < 0)
    if not none.all():
        names = [None if empty else images.files[image].name for (image, _), empty in zip(places, none, strict=True)]
        columns["copy_of_image"] = pa.array(names, pa.string())
        columns["copy_of"] = pa.array([position for _, position in places], pa.int64(), mask=none)
    columns["status"] = _statuses(batch.column("status"), found.kinds, outcomes)
    return batch_with(SCHEMA, columns, rows)


def _statuses(of_messages: pa.Array, kinds: np.ndarray, outcomes: np.ndarray) -> pa.Array:
    status = pc.if_else(pc.equal(of_messages, "ok"), "carved", of_messages)
    for name, which in (
        ("rival", (outcomes == RIVAL) | (outcomes == CROWDED)),
        ("copy", outcomes == COPY),
        ("doubtful", kinds == DOUBTFUL),
        ("body_crc", kinds == BAD_BODY),
        ("partial", kinds == PARTIAL),
        ("unchecked", kinds == UNCHECKED),
        ("overlapping", kinds == OVERLAPPING),
        ("nested", kinds == NESTED),
    ):
        if which.any():
            status = pc.if_else(pa.array(which), name, status)
    return status


def _heads(found: Found, request: Request) -> pa.RecordBatch:
    """Return rows of `messages` with what the heads say; and what may be the bodies of records that are cut."""
    records = found.records
    of_heads, _ = messages.head_columns(records, (request.columns or frozenset(SCHEMA.names)) | {*_FRONT_COLUMNS})
    has_head = pa.array(found.given != FRONT)
    columns = {name: of_heads[name] for name in _FRONT_COLUMNS}
    for name in set(_HEAD_COLUMNS) & set(of_heads):
        columns[name] = pc.if_else(has_head, of_heads[name], pa.scalar(None, of_heads[name].type))
    shown = (found.kinds == PARTIAL) & (found.given != FRONT)
    ends = np.where(found.given == ALL, records.body_ends, found.readable)
    starts = np.minimum(records.body_starts, ends)
    bodies = take_ranges(records.bytes, np.where(shown, starts, 0), np.where(shown, ends, 0))
    columns["body"] = pc.if_else(pa.array(shown), bodies, pa.scalar(None, pa.binary()))
    known = (found.kinds == PARTIAL) & (found.given == ALL)
    columns["body_crc_ok"] = pa.array(found.body_ok, mask=~known)
    columns["status"] = repeat("ok", len(records))
    return batch_with(messages.SCHEMA, columns, len(records))


def summary(images: Images, counts: np.ndarray, outcomes: np.ndarray, *, name_hosts: bool = True) -> Iterator[str]:
    """Yield lines about what was found, and what it makes together; logs without their hosts are numbered."""
    whole = int(counts[WHOLE])
    parts = [f"{group_digits(int(outcomes[COPY]))} of them copies"] if outcomes[COPY] else []
    for number, kind in zip(counts[1:].tolist(), KINDS[1:], strict=True):
        parts += [f"{group_digits(number)} {kind.replace('_', ' ')}"] if number else []
    yield f"{count(whole, 'whole record')}" + "".join(f"; {part}" for part in parts)
    assembly = images.assembly() if name_hosts else without_hosts(images.assembly())
    for log in assembly.logs:
        first, last = log.pieces[0].physical_offset, log.pieces[-1].end
        life = "" if log.life == 1 else ", an older tail"
        pieces = count(len(log.pieces), "piece")
        others = f" (and {', '.join(log.hosts[1:_MOST_TOLD])})" if len(log.hosts) > 1 else ""
        yield f"log of {log.name}{others}{life}: {count(log.size, 'byte')} of {first}..{last} in {pieces}"
    for one in assembly.ambiguities[:_MOST_TOLD]:
        yield f"ambiguous: {one.log} {one.start}..{one.end}: {one.detail}"
    if len(assembly.ambiguities) > _MOST_TOLD:
        yield f"ambiguous: {group_digits(len(assembly.ambiguities) - _MOST_TOLD)} more ranges"


CARVED_TABLE = Table("carved", SCHEMA, BRIEF, carved_rows, scans=(), sound=SOUND)
NAMELESS_TABLE = dataclasses.replace(CARVED_TABLE, rows=partial(carved_rows, name_hosts=False))
"""The same where hosts must not be told."""
