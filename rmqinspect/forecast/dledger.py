"""Where a DLedger log ends after a start, and what happens to the queues then.

    dledger-GROUP/data     |entry|entry|blank|  |entry|entry|?????      the end, and the rest is cut, as in a plain log
                   index   a unit of 32 bytes for each entry
                   checkpoint   committedIndex

The library recovers its files by itself: from the third last one, or an older one if that does not begin with an entry
that the index knows. It looks at the heads of entries only. Then the broker cuts the queues. After an unclean exit,
from 5.2.0 on, it also scans the records, and cuts the queues at a place that leaves out the heads of the entries:
48 bytes too early for each entry of the last file. The log keeps those messages, and nothing serves them any more.

Source: DLedgerMmapFileStore#load, #recover (library dledger 0.1 to 0.3.2), DLedgerCommitLog#recover,
#dledgerRecoverNormally, #dledgerRecoverAbnormally, #isMmapFileMatchedRecover, #getMaxOffset; RocketMQ 4.5.0 to 5.5.0.

The entries of a DLedger file as its recovery follows them: heads and sizes, no checksum, not the records in them.

    |head|record..|head|record..|blank      |
     magic 1, size, index + 1, term not falling, position = its own

Source: DLedgerMmapFileStore#recover; library dledger 0.1 to 0.3.2.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from rmqinspect.broker.start_rules import Rules
from rmqinspect.forecast.check import HEAD_SIZE, record_head
from rmqinspect.forecast.outcome import Decision, Refusal, Rejected
from rmqinspect.forecast.scan import LogScanner
from rmqinspect.forecast.settings import Settings
from rmqinspect.forecast.start_segment import why_later
from rmqinspect.loops.record_rows import BAD_MAGIC, BAD_ORDER, BAD_PLACE, BAD_SIZE, BLANK, MORE, STOP, ZERO
from rmqinspect.loops.records import follow_dledger
from rmqinspect.schemas import message
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, ENTRY_MAGICS, EntryHead, EntryIndexUnit
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import Segment, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.text import count, group_digits

# mypy: disable-error-code="no-any-return"


HEAD: Final[int] = EntryHead.sizeof()
_WINDOW = 4 << 20
_MAGIC = place_of(EntryHead, "magic")
MAGIC: Final = ENTRY_MAGICS[0]  # the recovery refuses all others, those of later versions of the library, too
_REASONS = {
    ZERO: "zero",
    BAD_MAGIC: "entry_magic",
    BAD_SIZE: "entry_size",
    BAD_PLACE: "entry_place",
    BAD_ORDER: "entry_order",
}


class Entries(NamedTuple):
    """How far the entries of one file go."""

    end: int  # position behind the last good one
    is_blank: bool  # a blank stands there: they go on in the next file
    reason: str  # a code of `check.REASONS`, where nothing good stands
    last: tuple[int, int]  # index and term of the last one, -1 without any


def follow_entries(segment: Segment, last: tuple[int, int] = (-1, -1)) -> Entries:
    """Follow the entries of a file from its start; `last`: index and term of the entry before it.

    :raises Unreadable: the file cannot be opened, or the system refuses to read it.
    """
    state = np.array([*last, MORE], np.int64)
    position = 0
    with open_file(segment) as file:
        while True:
            raw = file.read(position, _WINDOW)
            if len(raw) < HEAD:
                # An entry needs its whole head; a blank needs only its magic.
                blank = raw[_MAGIC : _MAGIC + 4] == ENTRY_MAGIC_BLANK.to_bytes(4, "big", signed=True)
                state[STOP] = BLANK if blank else ZERO if not any(raw) else BAD_SIZE
                break
            base, left = segment.base + position, file.size - position
            position += follow_dledger(np.frombuffer(raw, np.uint8), len(raw), 0, base, left, state)
            if state[STOP] != MORE:
                break
    index, term, stop = state.tolist()
    return Entries(position, stop == BLANK, _REASONS.get(stop, ""), (index, term))


_RECOVERED_FILES = 3
_INDEX_FILE_SIZE = 5 * 1024 * 1024 * EntryIndexUnit.sizeof()  # DLedgerConfig#mappedFileSizeForEntryIndex
_COMMITTED = re.compile(rb"^committedIndex=(\d{1,18})\s*$", re.MULTILINE)
_LARGEST_CHECKPOINT = 4096  # bytes; two lines are in it
_SOURCE = "DLedgerMmapFileStore#recover"


class Ledger(NamedTuple):
    """A DLedger log after its recovery."""

    scan_start: int  # base of the file where it begins
    end: int  # behind the last entry that is kept
    committed: int | None  # behind the entry that the checkpoint names; None: it names none
    rejected: Rejected | None  # None: nothing but zeros follows
    refusal: Refusal | None
    decision: Decision


def ledger_files(store: Store) -> tuple[Segment, ...]:
    """Return the data files of a DLedger log in order; none for a plain log."""
    return tuple(segment for segment in store.segments if segment.lead)


def why_not_told(store: Store) -> str | None:
    """Return why nothing can be told about a store with a DLedger log; None if it can."""
    files = ledger_files(store)
    if len({file.name.rpartition("/")[0] for file in files}) > 1:
        return "data files of several DLedger groups: which one the broker takes is in its settings"
    if files and len(files) < len(store.segments):
        return "a plain log in front of a DLedger log"
    return None


def recover_ledger(store: Store, files: Sequence[Segment], settings: Settings) -> Ledger:
    """Return what the library makes of the files of a log, at least one.

    :raises Unreadable: the end depends on a file that cannot be read.
    """
    refusal = _refusal(store, files, settings)
    if refusal is not None:
        return Ledger(0, 0, None, None, refusal, Decision("load", refusal.why, (("file", refusal.file),), _SOURCE))
    first = _first_file(store, files)
    number, found = first, follow_entries(files[first])
    while found.is_blank and number + 1 < len(files):
        number += 1
        found = follow_entries(files[number], found.last)
    segment = files[number]
    # Behind a blank, the log goes on at the next file, though there is none.
    end = segment.end if found.is_blank else segment.base + found.end
    rejected = None
    if not found.is_blank and _data_follows(files[number:], found.end):
        rejected = Rejected(segment.base + found.end, found.reason, segment.name, found.end)
    if files[-1].base - end > files[-1].size:
        why = f"the log would end at {end}, more than a whole file in front of {files[-1].name}: the library exits"
        remedy = f"move the data files behind {segment.name} to a place outside of the store"
        refusal = Refusal(segment.name, "ledger_end", why, remedy)
    text = f"the entries go from {files[first].name} to {end}"
    inputs = (("files", len(files)), ("end", end), ("last index", found.last[0]))
    return Ledger(
        files[first].base,
        end,
        _committed(store, files, found),
        rejected,
        refusal,
        Decision("scan", text, inputs, _SOURCE),
    )


def cuts_queues(rules: Rules, checkpoint: Mapping[str, int], end: int, *, clean: bool) -> bool:
    """Whether a start may cut the queues at an end: after an unclean exit 5.5.0 asks the checkpoint where they end.

    It says 0 where an older release wrote it. Source: ConsumeQueueStore#getDispatchFromPhyOffset.
    """
    return clean or rules.record_times != "logics_offset" or checkpoint.get("logics_physical_offset", 0) >= end


def record_scan(
    store: Store,
    files: Sequence[Segment],
    rules: Rules,
    settings: Settings,
    checkpoint: Mapping[str, int],
    ledger: Ledger,
) -> tuple[LogScanner, int] | None:
    """Return what scans the records after an unclean exit, and the number of the file where it begins.

    None where no release of these rules scans them: the queues are then cut as after a clean exit. The scanner's end
    is where this start cuts the queues: it leaves out the heads of the entries of the last file.
    """
    if rules.ledger_scan in ("absent", "none"):
        return None
    if rules.ledger_scan == "duplication":
        settings = replace(settings, duplication_enable=True)
    kept = [segment for segment in files if segment.base <= ledger.end]
    return LogScanner(store, kept, settings), _first_record_file(kept, rules, settings, checkpoint)


# --- the library's recovery -----------------------------------------------------------------------------


def _refusal(store: Store, files: Sequence[Segment], settings: Settings) -> Refusal | None:
    """Return why the library does not load its files, or finds them out of order."""
    indexes = sorted(store.of_kind("dledger_index"), key=lambda file: file.name)
    for listing, size in ((files, settings.mapped_file_size_commit_log), (indexes, _INDEX_FILE_SIZE)):
        for file in listing:
            if file.size != size:
                why = f"{file.name} has {count(file.size, 'byte')}, not {group_digits(size)}: the library exits"
                return Refusal(
                    file.name, "ledger_length", why, f"copy {file.name}, then give it its full length", length=size
                )
        for before, after in pairwise(listing):
            if _base(after) - _base(before) != size:
                why = f"{after.name} does not follow {before.name}: the library does not recover a log with a gap"
                return Refusal(after.name, "ledger_order", why, "restore the files between them from another member")
    return None


def _base(file: StoreFile) -> int:
    return int(file.name.rpartition("/")[2])


def _first_file(store: Store, files: Sequence[Segment]) -> int:
    """Return the file from which entries are followed: the third last, or an older one that the index knows."""
    for number in range(max(len(files) - _RECOVERED_FILES, 0), -1, -1):
        with open_file(files[number]) as file:
            head = EntryHead.parse(file.read(0, HEAD).ljust(HEAD, b"\0"))
        unit = _index_unit(store, head.index)
        if (
            unit == (head.magic, head.position, head.size, head.index, head.term)
            and head.magic == MAGIC
            and head.size == head.body_size + HEAD > HEAD
            and head.position == files[number].base
        ):
            return number
    return 0


def _index_unit(store: Store, index: int) -> tuple[int, int, int, int, int] | None:
    """Return what the index says of an entry: magic, physical offset, size, index and term; None if it says nothing."""
    place = index * EntryIndexUnit.sizeof()
    for file in store.of_kind("dledger_index"):
        if 0 <= place - _base(file) < file.size:
            with open_file(file) as reader:
                raw = reader.read(place - _base(file), EntryIndexUnit.sizeof())
            if len(raw) < EntryIndexUnit.sizeof():
                return None
            unit = EntryIndexUnit.parse(raw)
            return unit.magic, unit.position, unit.size, unit.index, unit.term
    return None


def _committed(store: Store, files: Sequence[Segment], found: Entries) -> int | None:
    """Return the end of the entry that the checkpoint of the library names, at most that of the last one."""
    for file in store.of_kind("dledger_state"):
        if file.name.rpartition("/")[2] == "checkpoint":
            with open_file(file) as reader:
                match = _COMMITTED.search(reader.read(0, _LARGEST_CHECKPOINT))
            unit = _index_unit(store, min(int(match[1]), found.last[0])) if match else None
            if unit is not None:
                return unit[1] + unit[2]
    return None


def _data_follows(files: Sequence[Segment], position: int) -> bool:
    """Whether data follows the last entry in its file, or another file does."""
    with open_file(files[0]) as file:
        return len(files) > 1 or any(file.read(position, 1 << 16))


# --- the scan of the records after an unclean exit ------------------------------------------------------


def _first_record_file(
    files: Sequence[Segment], rules: Rules, settings: Settings, checkpoint: Mapping[str, int]
) -> int:
    """Return the newest file whose first record was known at the checkpoint; without one the first."""
    for number in range(len(files) - 1, -1, -1):
        with open_file(files[number]) as file:
            head = record_head(file.read(HEAD, HEAD_SIZE), ipv6_hosts=True)
        # Records of version 2 do not pass in any release.
        if head.magic != message.MAGIC_V1 or not head.store_timestamp:
            continue
        if why_later(head.store_timestamp, head.physical_offset, rules, settings, checkpoint) is None:
            return number
    return 0
