"""What a start makes of the timer's files: its log, and timercheck, which says how far they were read and flushed.

    timercheck    |... queue offset of the timer topic | flushed: position in the log |...
    timerlog      |unit|unit|unit|                 ^ flushed, behind the end: units are gone

Source: TimerMessageStore#load, #recover, TimerCheckpoint; RocketMQ 5.0.0 to 5.5.0.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from rmqinspect.broker.gone import TIMERCHECK, how_gone, start_without
from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.layout import parse
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.load import Folder, entry_of, load_folder
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas.timer import TimerCheck
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import group_digits

_SIZE = "mapped_file_size_timer_log"
_BASE = re.compile(r"\d{1,20}", re.ASCII)  # the name of a file


def load_timer_log(store: Store, rules: Rules, settings: Settings) -> Folder:
    """Return what a start makes of the files of the timer log; of none where it has no timer."""
    files = store.of_kind("timer_log") if rules.timer and settings.timer_wheel_enable else []
    entries, fits = [entry_of(file, store.unopened) for file in files], settings.fitting(_SIZE, rules)
    return load_folder(entries, settings.mapped_file_size_timer_log, rules, fits)


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
