"""The timer's files in a salvaged store, some of whose timer messages are lost.

A timer reads the message of a unit when it is due. Where it finds no record it tries three times, and goes on with the
next unit: one message that is lost is no reason to give up the wheel and its log. Without them a broker reads the
timer's topic from its beginning, and delivers again what it has delivered.

    unit leads to            the timer
    a record                 delivers it
    the inside of a bridge   finds no record, and goes on
    a bridge's first byte    takes the bridge for a message: the unit is moved on by a byte

Source: TimerMessageStore#recover, #reviseQueueOffset, #getMessageByCommitOffset, .TimerDequeueGetMessageService#run;
RocketMQ 5.0.0 to 5.5.0.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.errors import Unreadable
from rmqinspect.rescue.ranges import write_at
from rmqinspect.rescue.salvage_receipt import Timers
from rmqinspect.rescue.sources import Range, read_log
from rmqinspect.schemas.message import RECORD_MAGICS, Message
from rmqinspect.schemas.places import place_of
from rmqinspect.schemas.timer import UNIT_SIZE, TimerUnit
from rmqinspect.store.model import Store
from rmqinspect.system.output_file import as_refusal
from rmqinspect.tables.delays import DelayChoice, Delays
from rmqinspect.tables.request import Request
from rmqinspect.timer.log import timer_log_files, units_of

_PLACE_AT: int = place_of(TimerUnit, "physical_offset")
_PLACE_SIZE: int = TimerUnit.physical_offset.sizeof()
_MAGIC_AT: int = place_of(Message, "magic")
_MAGIC_SIZE: int = Message.magic.sizeof()


def lost_timer_units(store: Store, bridged: Sequence[Range]) -> dict[str, list[tuple[int, int]]]:
    """Return (position, physical offset) of the timer units that lead into bridges, by the path of their file.

    Files that cannot be read are left out: verify names them.
    """
    starts, ends = (np.array([one[at] for one in sorted(bridged)], np.int64) for at in (0, 1))
    found: dict[str, list[tuple[int, int]]] = {}
    for part in timer_log_files(store.files) if bridged else ():
        with suppress(Unreadable):
            for rows, units in units_of(part):
                places: Ints = units["physical_offset"].astype(np.int64)
                at = np.searchsorted(starts, places, "right") - 1
                inside = np.flatnonzero((at >= 0) & (places < ends[at]))
                positions = rows[inside] * UNIT_SIZE
                if len(inside):
                    found.setdefault(part.file.path, []).extend(
                        zip(positions.tolist(), places[inside].tolist(), strict=True)
                    )
    return found


def move_off_bridges(store: Store, bridged: Sequence[Range]) -> int:
    """Move the timer units of a new store that lead to the first byte of a bridge on by a byte; return how many.

    :raises Refused: a file cannot be written.
    """
    moved = 0
    for path, units in lost_timer_units(store, bridged).items():
        with as_refusal(path), open(path, "r+b") as out:
            for position, place in units:
                if _begins_record(store, place):
                    write_at(out, position + _PLACE_AT, (place + 1).to_bytes(_PLACE_SIZE, "big"))
                    moved += 1
    return moved


def _begins_record(store: Store, place: int) -> bool:
    magic = read_log(store, place + _MAGIC_AT, _MAGIC_SIZE)
    return int.from_bytes(magic, "big", signed=True) in RECORD_MAGICS


def timers_of(store: Store, bridged: Sequence[Range], moved: int | None = None) -> Timers | None:
    """Return what becomes of a store's timer files in a new one with these bridges; None where it has no timer log.

    `moved`: units that were moved off the first byte of a bridge; None: nothing is written.
    """
    if not store.of_kind("timer_log"):
        return None
    lost = sum(map(len, lost_timer_units(store, bridged).values()))
    return Timers(kept=True, why=None, lost=lost, moved=moved, again=None, again_pops=None)


def without_timers(timers: Timers, store: Store, why: str) -> Timers:
    """Return the same where the files of the store are left out."""
    again, pops = count_delivered(store)
    return Timers(kept=False, why=why, lost=timers.lost, moved=timers.moved, again=again, again_pops=pops)


def count_delivered(store: Store) -> tuple[int, int]:
    """Return how many timer messages a store's broker has delivered: of users' topics, and of its own.

    Those of its own are what pop consumers acknowledged. The log is read once, for the delivered copies.
    """
    delays = Delays(store, Request(), DelayChoice(states=frozenset(["delivered"])))
    own = users = 0
    for batch in delays.rows():
        for source, system in zip(batch.column("source").to_pylist(), batch.column("system").to_pylist(), strict=True):
            own += source == "timer" and system
            users += source == "timer" and not system
    return users, own
