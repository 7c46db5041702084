"""What a start makes of the timer's files: its log, and timercheck, which says how far they were read and flushed.

    timercheck    |... queue offset of the timer topic | flushed: position in the log |...
    timerlog      |unit|unit|unit|                 ^ flushed, behind the end: units are gone
                  |unit|unit|00000|  |unit|        units up to the first place without one; files behind it are deleted

Source: TimerMessageStore#load, #recover, #recoverAndRevise, MappedFileQueue#truncateDirtyFiles, TimerCheckpoint;
RocketMQ 5.0.0 to 5.5.0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from rmqinspect.broker.gone import TIMERCHECK, how_gone, start_without
from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.layout import dtype_of, parse
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.load import Entry, Folder, entry_of, load_folder
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas.places import place_of
from rmqinspect.schemas.timer import BLANK_MAGIC, UNIT_MAGICS, UNIT_SIZE, TimerCheck, TimerUnit
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.text import group_digits

_SIZE = "mapped_file_size_timer_log"
_AT_ONCE = 1 << 15  # units
_UNIT, _MAGIC = dtype_of(TimerUnit), place_of(TimerUnit, "magic")
_BASE = re.compile(r"\d{1,20}", re.ASCII)  # the name of a file


def load_timer_log(store: Store, rules: Rules, settings: Settings) -> Folder:
    """Return what a start makes of the files of the timer log; of none where it has no timer."""
    files = store.of_kind("timer_log") if rules.timer and settings.timer_wheel_enable else []
    entries, fits = [entry_of(file, store.unopened) for file in files], settings.fitting(_SIZE, rules)
    found = load_folder(entries, settings.mapped_file_size_timer_log, rules, fits)
    if found.refusal is None and found.unknown is None and len(found.loaded) > 1:
        try:
            end = _recovered_end(store, found.loaded, settings.mapped_file_size_timer_log)
        except Unreadable as error:
            return found._replace(unknown=str(error))
        found.deleted.extend(entry for entry in found.loaded if int(entry.name) > end)
    return found


def _recovered_end(store: Store, entries: Sequence[Entry], size: int) -> int:
    """Return the position in the timer log where recovery ends: the first one without a unit, blanks passed over.

    It begins with the file that has the position one file before the one that was flushed last.
    """
    begin = max(0, _flushed(store) - size)
    first = max((at for at, entry in enumerate(entries) if int(entry.name) <= begin), default=0)
    end = 0
    for entry in entries[first:]:
        assert entry.file is not None, "what is loaded is a file"
        position, goes_on = _units_end(entry.file, size)
        end = int(entry.name) + position
        if not goes_on:
            break
    return end


def _units_end(file: StoreFile, size: int) -> tuple[int, bool]:
    """Return where the units of a file end, and whether recovery goes on with the next file."""
    with open_file(file) as reader:
        for at in range(0, size, _AT_ONCE * UNIT_SIZE):
            raw = reader.read(at, min(_AT_ONCE * UNIT_SIZE, size - at))
            units = np.frombuffer(raw, _UNIT, len(raw) // UNIT_SIZE)
            good = (units["magic"] >= 0) & (units["magic"] < len(UNIT_MAGICS)) & (units["size"] == UNIT_SIZE)
            if not good.all():
                row = int(np.argmin(good))
                return at + row * UNIT_SIZE, bool(units["magic"][row] == BLANK_MAGIC)
            if rest := raw[len(units) * UNIT_SIZE :]:
                magic = rest[_MAGIC : _MAGIC + 4]
                is_blank = len(magic) == 4 and int.from_bytes(magic, "big", signed=True) == BLANK_MAGIC
                return at + len(units) * UNIT_SIZE, is_blank
    return -(-size // UNIT_SIZE) * UNIT_SIZE, True


def timer_notes(store: Store, rules: Rules, settings: Settings, gone: Mapping[str, str]) -> Iterator[str]:
    """Yield what the timer lacks: its checkpoint, or the end of its log. `gone`: files that others prove."""
    if not (rules.timer and settings.timer_wheel_enable):
        return
    if proof := gone.get(TIMERCHECK):
        yield f"{TIMERCHECK} {how_gone(store, TIMERCHECK)} ({proof}): the broker starts {start_without(TIMERCHECK)}"
    elif (end := _end(store)) is not None and end < (flushed := _flushed(store)):
        yield (
            f"the timer log ends at {group_digits(end)} of {group_digits(flushed)}, where {TIMERCHECK} has it: timer "
            "messages whose units are gone, and that are not due yet, are not delivered"
        )


def _flushed(store: Store) -> int:
    """Return up to where the timer log was flushed, as timercheck says; 0 where it cannot be read."""
    file = store.config_files.get(TIMERCHECK)
    with suppress(Unreadable):
        if file is not None:
            with open_file(file) as reader:
                raw = reader.read(0, TimerCheck.sizeof()).ljust(TimerCheck.sizeof(), b"\0")
            return int(parse(TimerCheck, raw, lambda: TIMERCHECK).last_timer_log_flush_pos)
    return 0


def _end(store: Store) -> int | None:
    """Return where the last file of the timer log ends; None: not known."""
    files = [entry_of(file, store.unopened) for file in store.of_kind("timer_log")]
    if store.hides("timerlog") or any(one.unread for one in files):
        return None
    return max((int(one.name) + one.size for one in files if _BASE.fullmatch(one.name)), default=0)
