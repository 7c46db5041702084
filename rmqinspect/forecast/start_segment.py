"""Where the scan of the commit log begins at a start: the segment, and the position in it.

    segments     | 0 | 1 | 2 | 3 | 4 |
    third                  ^             after a clean exit: the third-last one
    base             ^                   the last one whose name is not above the end of the queues
    head, record             ^           the last one whose first record passes a test, asked from the end on

Source: CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover, StoreCheckpoint#getMinTimestamp,
ConsumeQueueStore#isMappedFileMatchedRecover, #getDispatchFromPhyOffset; RocketMQ 4.0.0 to 5.5.0.

How far the log is confirmed, where copies of it decide: duplicationEnable and controller mode.

    log    |rec|rec|rec|rec|rec|
                       ^ confirmOffset: only what lies before it is dispatched after an unclean exit

Without both, everything is confirmed. Behind the confirmed part the start reads the queue offsets of all records, and
fails at one of version 2, which it does not expect there.

Source: CommitLog#getConfirmOffset, #recoverAbnormally, ConsumeQueueStore#recoverOffsetTable, #compensateForHA,
AutoSwitchHAService#computeConfirmOffset; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Bools
from rmqinspect.codec.java import wrapped_int, wrapped_long
from rmqinspect.commitlog.records import Records
from rmqinspect.forecast.batch import Batch, Columns
from rmqinspect.forecast.check import REASONS
from rmqinspect.forecast.outcome import Decision, Refusal
from rmqinspect.forecast.scan import FirstRecord, LogScanner
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas import message
from rmqinspect.store.model import Segment

_ACCELERATED = "enableAcceleratedRecovery"
_TAKEN = "taken:"
_LATEST_TIME, _LATEST_OFFSET = "latest time of the first record", "its latest offset"  # names of inputs
_THIRD = 3
_DEFAULT_LIMIT = 10  # of segments that are tested; a limit that is not above 0 counts as this
_MARGIN = 3000  # ms that StoreCheckpoint#getMinTimestamp takes off


class Start(NamedTuple):
    """Where the scan begins, and how that was decided."""

    segment: int  # its index
    position: int  # in it, where records are read
    counted: int  # what the broker believes that position to be
    decision: Decision
    refusal: Refusal | None = None  # the start ends here
    unknown: str | None = None  # why it cannot be told


Test = Callable[[FirstRecord], str | None]
"""Says why the first record of a segment does not pass; None if it passes."""


class _Choice(Struct):
    """A segment, and what was found in those that were looked at."""

    index: int = 0
    looked_at: list[tuple[str, str | int]] = field(default_factory=list)  # name of a segment, what was found
    unreadable: str | None = None

    @property
    def was_found(self) -> bool:
        """Whether the segment was what was looked for; else it is the first one."""
        return bool(self.looked_at) and str(self.looked_at[-1][1]).startswith(_TAKEN)


def start_segment(
    scanner: LogScanner,
    rules: Rules,
    settings: Settings,
    checkpoint: Mapping[str, int],
    queues_end: int,
    beside: Sequence[int | None] = (),
    *,
    clean: bool,
) -> Start:
    """Return where the scan of a log with at least one segment begins.

    `queues_end`: the highest maxPhysicOffset of all queues once they are recovered, -1 without any; with queues in
    RocksDB the highest physical offset in them. `beside`: how far indexes and transactions in RocksDB are, where they
    are asked; None where they hold nothing.
    """
    how = rules.clean_start if clean else rules.unclean_start
    inputs: list[tuple[str, str | int]] = [("rule", how), ("end of the queues", queues_end)]
    if how == "third":
        choice = _Choice(max(len(scanner.segments) - _THIRD, 0))
    elif how == "base":
        choice = _by_base(scanner, queues_end)
    elif how == "head":
        test = _head_test(rules, settings, checkpoint, queues_end, inputs)
        choice = _by_test(scanner, rules, test, last=0, limit=None)
    else:
        limit = settings.commit_log_recover_max_num
        limit = limit if limit > 0 else _DEFAULT_LIMIT
        inputs.append(("commitLogRecoverMaxNum", limit))
        test = _in_all(_record_test(rules, settings, checkpoint, queues_end, inputs, clean=clean), beside)
        inputs += [("in RocksDB beside the queues", place if place is not None else "nothing") for place in beside]
        choice = _by_test(scanner, rules, test, last=1 if clean else 0, limit=limit)
    segment = scanner.segments[choice.index]
    place = _place(rules, settings, checkpoint, queues_end, segment, clean=clean)
    if isinstance(place, Refusal):
        text, position, counted, refusal = "the start ends before the scan", 0, 0, place
    else:
        (position, counted), refusal = place, None
        at = f" at {position}" if position else ""
        text = f"begins in {segment.name}{at}, {_words(scanner, choice, how, clean=clean)}"
    source = "CommitLog#recoverNormally" if clean else "CommitLog#recoverAbnormally"
    decision = Decision("start", text, (*inputs, *choice.looked_at), source)
    return Start(choice.index, position, counted, decision, refusal, choice.unreadable)


def _words(scanner: LogScanner, choice: _Choice, how: str, *, clean: bool) -> str:
    """Return why the scan begins in a segment."""
    rule = Rules.clean_start if clean else Rules.unclean_start
    if choice.was_found or (how == "third" and len(scanner.segments) >= _THIRD):
        return rule.means[how]
    if how == "third":
        return "the first segment: there are fewer than three"
    sought = "that begins before the end of the queues" if clean else "older than the checkpoint"
    return f"searched backwards for a segment {sought}; none found, so from the first"


# --- the segment --------------------------------------------------------------------------------


def _by_base(scanner: LogScanner, queues_end: int) -> _Choice:
    """Take the last segment whose base is not above the end of the queues; nothing is read."""
    choice = _Choice()
    for index in range(len(scanner.segments) - 1, 0, -1):
        segment = scanner.segments[index]
        if segment.base <= queues_end:
            choice.looked_at.append((segment.name, f"{_TAKEN} it begins at or before the end of the queues"))
            choice.index = index
            return choice
        choice.looked_at.append((segment.name, "it begins behind the end of the queues"))
    return choice


def _by_test(scanner: LogScanner, rules: Rules, test: Test, *, last: int, limit: int | None) -> _Choice:
    """Ask the segments from the end on down to `last`; take the first one that passes, or the one at the limit."""
    choice = _Choice()
    for count, index in enumerate(range(len(scanner.segments) - 1, last - 1, -1), start=1):
        name, first = scanner.segments[index].name, scanner.first_record(rules, index)
        if first.unreadable is not None:
            choice.unreadable = first.unreadable
        why_not = test(first)
        if why_not is None or count == limit:
            taken = "its first record passes" if why_not is None else f"{count} segments were looked at ({why_not})"
            choice.looked_at.append((name, f"{_TAKEN} {taken}"))
            choice.index = index
            return choice
        choice.looked_at.append((name, why_not))
    return choice


def _head_test(
    rules: Rules,
    settings: Settings,
    checkpoint: Mapping[str, int],
    queues_end: int,
    inputs: list[tuple[str, str | int]],
) -> Test:
    """Return the test of a segment's head, up to 5.3.3: its magic code, and its time, without any checksum."""
    magics = message.RECORD_MAGICS if rules.v2_records else (message.MAGIC_V1,)
    latest = minimum_time(checkpoint)
    if settings.has_safe_index:
        latest = min(latest, checkpoint.get("index_msg_timestamp", 0))
    inputs.append((_LATEST_TIME, latest))

    def why_not(first: FirstRecord) -> str | None:
        if first.magic not in magics:
            return "no magic code of a record at position 4"
        if settings.has_rocksdb_queues:
            return None if first.physical_offset <= queues_end else "its PHYSICALOFFSET is behind the end of the queues"
        if first.store_timestamp == 0:
            return "STORETIMESTAMP is 0"
        return None if first.store_timestamp <= latest else f"STORETIMESTAMP {first.store_timestamp} is later"

    return why_not


def _record_test(
    rules: Rules,
    settings: Settings,
    checkpoint: Mapping[str, int],
    queues_end: int,
    inputs: list[tuple[str, str | int]],
    *,
    clean: bool,
) -> Test:
    """Return the test of a segment's first record, 5.4.0 and later: it is valid, and dispatched already."""
    by_queues = clean or settings.has_rocksdb_queues
    if settings.has_safe_index:
        inputs.append(("latest time in the index", checkpoint.get("index_msg_timestamp", 0)))
    name, most = (_LATEST_OFFSET, queues_end) if by_queues else _latest(rules, checkpoint)
    inputs.append((name, most))

    def why_not(first: FirstRecord) -> str | None:
        if not first.check.success:
            return f"its first record is refused: {REASONS[first.check.reason or 'magic']}"
        if first.check.is_blank:
            return "it begins with a blank record"
        time, offset = first.store_timestamp, first.physical_offset
        if time == 0:
            return "STORETIMESTAMP is 0"
        if not by_queues:
            return why_later(time, offset, rules, settings, checkpoint)
        if (late := _why_not_indexed(time, settings, checkpoint)) is not None:
            return late
        return f"PHYSICALOFFSET {offset} is behind" if offset > queues_end else None

    return why_not


def why_later(time: int, offset: int, rules: Rules, settings: Settings, checkpoint: Mapping[str, int]) -> str | None:
    """Return why a record of that time and PHYSICALOFFSET is later than the checkpoint; None if it is not."""
    if (late := _why_not_indexed(time, settings, checkpoint)) is not None:
        return late
    name, most = _latest(rules, checkpoint)
    if name == _LATEST_OFFSET:
        return f"PHYSICALOFFSET {offset} is behind" if offset > most else None
    return f"STORETIMESTAMP {time} is later" if time > most else None


def _latest(rules: Rules, checkpoint: Mapping[str, int]) -> tuple[str, int]:
    """Return by what a checkpoint says how far the queues are, `_LATEST_OFFSET` or `_LATEST_TIME`, and the value."""
    if rules.record_times != "logics_offset":
        return _LATEST_TIME, minimum_time(checkpoint)
    noted = checkpoint.get("logics_physical_offset", 0)
    return (_LATEST_OFFSET, noted) if noted > 0 else (_LATEST_TIME, checkpoint.get("logics_msg_timestamp", 0))


def _why_not_indexed(time: int, settings: Settings, checkpoint: Mapping[str, int]) -> str | None:
    """Return why a record is later than the index, where messageIndexSafe asks for that."""
    is_late = settings.has_safe_index and time > checkpoint.get("index_msg_timestamp", 0)
    return f"STORETIMESTAMP {time} is later than the index" if is_late else None


def _in_all(test: Test, beside: Sequence[int | None]) -> Test:
    """Return a test that indexes and transactions in RocksDB have to pass, too.

    Source: IndexRocksDBStore#isMappedFileMatchedRecover, TransMessageRocksDBStore#isMappedFileMatchedRecover.
    """

    def why_not(first: FirstRecord) -> str | None:
        if (found := test(first)) is not None:
            return found
        if any(place is None or first.physical_offset > place for place in beside):
            return f"PHYSICALOFFSET {first.physical_offset} is behind the index or the transactions in RocksDB"
        return None

    return why_not


# --- the position in it -------------------------------------------------------------------------


def _place(
    rules: Rules,
    settings: Settings,
    checkpoint: Mapping[str, int],
    queues_end: int,
    segment: Segment,
    *,
    clean: bool,
) -> tuple[int, int] | Refusal:
    """Return the position where records are read, and what the broker counts it as: enableAcceleratedRecovery."""
    in_rocksdb, how = settings.has_rocksdb_queues, rules.accelerated_start
    applies = (how == "rocksdb" and in_rocksdb) or (how == "unclean" and not clean)
    if not settings.enable_accelerated_recovery or not applies:
        return 0, 0
    noted = checkpoint.get("logics_physical_offset", 0)
    if not in_rocksdb and noted <= 0 < checkpoint.get("physic_msg_timestamp", 0):
        why = f"{_ACCELERATED} is on, and the checkpoint does not say how far the queues are"
        return Refusal.till_off("checkpoint", "accelerated_start", why, _ACCELERATED)
    counted = (queues_end if in_rocksdb else noted) - segment.base
    if counted <= 0:
        # 5.4.0 counts from the negative place on after a clean exit, though it reads from the segment's start.
        return 0, counted if clean else 0
    position = wrapped_int(counted)
    if 0 <= position <= segment.size:
        return position, counted
    why = f"{_ACCELERATED} is on, and the queues end behind the segment, at {segment.base + counted}"
    return Refusal.till_off(segment.name, "accelerated_start", why, _ACCELERATED)


# --- settings and checkpoint --------------------------------------------------------------------


def minimum_time(checkpoint: Mapping[str, int]) -> int:
    """Return StoreCheckpoint#getMinTimestamp: 3 s before the older of two times, as a Java long."""
    older = min(checkpoint.get("physic_msg_timestamp", 0), checkpoint.get("logics_msg_timestamp", 0))
    return max(wrapped_long(older - _MARGIN), 0)


def confirmed_offset(rules: Rules, settings: Settings, checkpoint: Mapping[str, int]) -> int | Refusal | None:
    """Return confirmOffset as recovery begins; None where everything counts as confirmed."""
    if settings.enable_controller_mode and rules.controller_master != "none":
        stored = checkpoint.get("confirm_phy_offset", 0)
        if settings.is_slave:
            return stored
        if rules.controller_master == "log_end":
            return None
        if stored <= 0:
            why = "in controller mode a master asks for the offsets of its copies, which it does not have yet"
            remedy, line = "start it with brokerRole=SLAVE", ("brokerRole", "SLAVE")
            return Refusal("checkpoint", "controller_master", why, remedy, settings=(line,))
        return stored
    if settings.duplication_enable:
        return checkpoint.get("confirm_phy_offset", 0) if rules.confirm_offset == "checkpoint" else -1
    return None


def are_confirmed(rules: Rules, records: Records | Columns, confirmed: int) -> Bools:
    """Return which records are dispatched after an unclean exit."""
    begins = records.physical_offset
    result: Bools = (
        begins < confirmed if rules.confirmed_dispatch == "begin" else begins + records.total_size <= confirmed
    )
    return result


def offsets_refusal(
    rules: Rules,
    settings: Settings,
    scanner: LogScanner,
    segments: Sequence[Segment],
    begin: int,
    end: int,
) -> Refusal | None:
    """Return why the start fails where it reads the queue offsets behind the confirmed part of the log."""
    applies = settings.duplication_enable or (rules.ha_offsets == "controller" and settings.enable_controller_mode)
    begin = max(begin, segments[0].base if segments else 0)
    number = next((n for n, s in enumerate(segments) if s.base <= begin < s.end), None)
    if rules.ha_offsets == "none" or not applies or begin >= end or number is None:
        return None
    found: list[int] = []

    def look(batch: Batch) -> None:
        places = batch.whole.places
        odd = (batch.whole.magic != message.MAGIC_V1) & (places < end)
        found.extend(places[np.flatnonzero(odd)[:1]].tolist())

    scanner.scan(rules, number, begin - segments[number].base, clean=True, take=look)
    if not found:
        return None
    why = f"the record at {found[0]} is of version 2, behind the confirmed part of the log: Unknown magicCode"
    remedy = "start the broker without controller mode and duplication"
    lines = ("enableControllerMode", "false"), ("duplicationEnable", "false")
    return Refusal(segments[number].name, "ha_offsets", why, remedy, settings=lines)
