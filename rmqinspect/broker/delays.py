"""What became of a delayed message: rules over what is known of it, for many at a time.

A delayed message waits as a record in a topic of the broker. When it is due, the broker stores it again in its real
topic: the delivered copy. The record that waited stays until retention takes it.

    level     queue of SCHEDULE_TOPIC_XXXX | 0 | 1 | 2 | 3 |      delayOffset.json: 2, so 2 and 3 wait
    timer     slots of the wheel           | 10:00 | 10:01 |      timercheck: 10:01, so that slot and later ones wait
    RocksDB   keys by time                 | 10:00 | 10:01 |      timeline_checkpoint, the same

Source: ScheduleMessageService.DeliverDelayedMessageTimerTask#executeOnTimeUp, TimerMessageStore#dequeue, Timeline;
RocketMQ 4.0.0 to 5.5.0.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rmqinspect.broker.own_rules import DelayRules
from rmqinspect.choices import DELAY_STATES
from rmqinspect.codec.arrays import Bools, Ints, first_rule


class Facts(NamedTuple):
    """What is known of some delayed messages: columns of one length."""

    deletes: Bools  # it is the order to delete another one (TIMER_DEL_UNIQKEY)
    rolled: Bools  # a newer copy of it follows in the timer's topic
    delivered: Bools  # a copy of it in its real topic follows in the log
    cancelled: Bools  # another one orders to delete it
    waits: Bools  # the broker has it before it: in its queue, its wheel or its RocksDB
    due: Bools  # its time has come
    readable: Bools  # its record is in the log
    unreached: Bools  # its unit is in the timer log, but neither the wheel nor startup finds it
    copy_lost: Bools  # a copy, if there was one, may lie in what could not be read
    alike: Bools  # a record with its id follows in its real topic, of another sending or retry
    clock_ahead: Bools  # it waits, but the timer counts its time as over: the clock had run ahead
    level_ahead: Bools  # the offset of its level lies behind it and beyond the queue's end, or it was not due yet


STATES = DELAY_STATES
PENDING, OVERDUE, STUCK, DELIVERED, CANCELLED, ROLLED, LOST, DELETE_MARK, UNKNOWN = range(len(STATES))

REASONS = (
    "its record is gone: the broker passes it over",
    "no slot of the wheel leads to its unit, and startup does not put it in again",
    "the broker has passed it, and the log holds no delivered copy",
    "the broker has passed it; a copy may lie where the log is damaged or was not given",
    "a record with its id follows in its topic, but was sent or sent back at another time",
    "the timer's clock ran ahead of it: timercheck has to be set back",
    "its level's offset lies behind it: delayOffset.json has to be set back",
)
_GONE, _UNREACHED, _NO_COPY, _MAYBE, _ALIKE, _BY_CLOCK, _BY_LEVEL = range(len(REASONS))
NO_REASON = -1
MAY_HAVE_COPIES = (OVERDUE, STUCK, LOST, UNKNOWN)
"""States for which another copy is looked for, that says less of itself."""


def judge(facts: Facts) -> tuple[Ints, Ints]:
    """Return the number of each message's state in STATES, and of the reason in REASONS, NO_REASON without one.

    The first rule that applies decides. A copy proves the delivery whatever the offsets say: those are written later.
    """
    rules = (
        (facts.deletes, DELETE_MARK, NO_REASON),
        (facts.rolled, ROLLED, NO_REASON),
        (facts.delivered, DELIVERED, NO_REASON),
        (facts.cancelled, CANCELLED, NO_REASON),
        # Both services read the record when it is due and go on without it, 4.0.0 to 5.5.0.
        (facts.waits & ~facts.readable, LOST, _GONE),
        (facts.waits & facts.clock_ahead, STUCK, _BY_CLOCK),
        # Before it was due no copy can have been written, also where the log is damaged.
        (facts.level_ahead & facts.readable & (~facts.due | ~facts.copy_lost), STUCK, _BY_LEVEL),
        (facts.waits & ~facts.due, PENDING, NO_REASON),
        (facts.waits, OVERDUE, NO_REASON),
        (facts.alike, UNKNOWN, _ALIKE),
        (facts.unreached, LOST, _UNREACHED),
        (facts.copy_lost, UNKNOWN, _MAYBE),
        (np.ones(len(facts.waits), np.bool_), LOST, _NO_COPY),
    )
    applies = first_rule([condition for condition, _, _ in rules])
    states, reasons = (np.array([rule[part] for rule in rules], np.int64) for part in (1, 2))
    return states[applies], reasons[applies]


# --- the keys that order to delete ----------------------------------------------------------------

APPEND_TOPIC = "appendTopicForTimerDeleteKey"  # a setting, 5.4.0


class DeleteKeys(NamedTuple):
    """Which forms of TIMER_DEL_UNIQKEY a broker obeys. Both: its version is not known well enough."""

    plain: bool  # UNIQ_KEY
    with_topic: bool  # REAL_TOPIC, +, UNIQ_KEY


def delete_keys(releases: Sequence[str], settings: Mapping[str, str]) -> DeleteKeys:
    """Return the forms that brokers of some releases obey.

    The other form has no effect. Source: TimerMessageStore.TimerDequeueGetMessageService, #buildDeleteKey;
    MessageStoreConfig, 5.4.0.
    """
    if APPEND_TOPIC in settings:
        with_topic = settings[APPEND_TOPIC].strip().lower() == "true"
        return DeleteKeys(not with_topic, with_topic)
    forms = {DelayRules(release).delete_key for release in releases}
    return DeleteKeys("UNIQ_KEY" in forms, "REAL_TOPIC+UNIQ_KEY" in forms)


# --- delay levels ---------------------------------------------------------------------------------

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # ms
_UNKNOWN_LEVEL = 1000  # ms
_LEVEL = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


def level_delay(level: int, settings: Mapping[str, str]) -> int:
    """Return the delay of a level, ms. No file of a store has it: it is a setting, else the default.

    Source: MessageStoreConfig.messageDelayLevel, ScheduleMessageService#parseDelayLevel, #computeDeliverTimestamp.
    """
    delays = _delays(settings)
    return delays[level - 1] if 0 < level <= len(delays) else _UNKNOWN_LEVEL


def _delays(settings: Mapping[str, str]) -> list[int]:
    words = settings.get("messageDelayLevel", DEFAULT_LEVELS).split()
    found = [_LEVEL.fullmatch(word) for word in words]
    if not all(found):
        return _delays({})
    return [int(match[1]) * _UNITS[match[2]] for match in found if match]
