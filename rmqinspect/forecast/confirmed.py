"""How far the log is confirmed, where copies of it decide: duplicationEnable and controller mode.

    log    |rec|rec|rec|rec|rec|
                       ^ confirmOffset: only what lies before it is dispatched after an unclean exit

Without both, everything is confirmed. Behind the confirmed part the start reads the queue offsets of all records, and
fails at one of version 2, which it does not expect there.

Source: CommitLog#getConfirmOffset, #recoverAbnormally, ConsumeQueueStore#recoverOffsetTable, #compensateForHA,
AutoSwitchHAService#computeConfirmOffset; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Bools
from rmqinspect.commitlog.records import Records
from rmqinspect.forecast.outcome import Refusal
from rmqinspect.forecast.scan import Batch, LogScanner
from rmqinspect.forecast.settings import Settings
from rmqinspect.schemas import message
from rmqinspect.store.model import Segment


def confirmed_offset(rules: Rules, settings: Settings, checkpoint: Mapping[str, int]) -> int | Refusal | None:
    """Return confirmOffset as recovery begins; None where everything counts as confirmed."""
    if _has_controller(rules, settings):
        stored = checkpoint.get("confirm_phy_offset", 0)
        if settings.is_slave:
            return stored
        if rules.controller_master == "log_end":
            return None
        if stored <= 0:
            why = "in controller mode a master asks for the offsets of its copies, which it does not have yet"
            return Refusal("checkpoint", "controller_master", why, "start it with brokerRole=SLAVE")
        return stored
    if settings.duplication_enable:
        return checkpoint.get("confirm_phy_offset", 0) if rules.confirm_offset == "checkpoint" else -1
    return None


def are_confirmed(rules: Rules, records: Records, confirmed: int) -> Bools:
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
        places = batch.records.base + batch.records.starts
        odd = (batch.records.magic != message.MAGIC_V1) & (places < end)
        found.extend(places[np.flatnonzero(odd)[:1]].tolist())

    scanner.scan(rules, number, begin - segments[number].base, clean=True, take=look)
    if not found:
        return None
    why = f"the record at {found[0]} is of version 2, behind the confirmed part of the log: Unknown magicCode"
    return Refusal(segments[number].name, "ha_offsets", why, "start the broker without controller mode and duplication")


def _has_controller(rules: Rules, settings: Settings) -> bool:
    return settings.enable_controller_mode and rules.controller_master != "none"
