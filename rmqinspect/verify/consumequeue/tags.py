"""The tags code of queue units against their records: CQ-TAG, EX-ADDRESS.

What a unit's tags code holds depends on its queue:

    any topic             hash of the record's tags
    the schedule topic    time of delivery: store time and the delay of the level
    with an ext queue     address of an ext unit, which holds one of the above

Source: ConsumeQueue#putMessagePositionInfo, #isExtAddr, ConsumeQueueExt#get.
"""

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.consumequeue.units import read_ext_tags
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.verify.consumequeue.in_step import SECOND
from rmqinspect.verify.consumequeue.match import Match
from rmqinspect.verify.findings import Finding, unread_finding
from rmqinspect.verify.pointers import PointerReport


def check_tags(match: Match, report: PointerReport, unread: list[Finding]) -> None:
    """Check the tags codes of the good hits."""
    good = np.flatnonzero(match.good)
    at, record = match.unit[good], match.record[good]
    tags, known = _plain_tags(match, at, report, unread)
    expected = match.records.tags_code[record]
    plain = tags == expected
    scheduled = (match.plan.queues.scheduled[match.units.file[at]] != 0) & ~match.extra[good] & known
    # A recovery may have given delayed messages the hash of their tags.
    by_recovery = plain & ("plain_schedule_tags" in match.plan.may_hold)
    scheduled &= match.records.delayed[record]
    _check_delays(match, report, np.flatnonzero(scheduled & ~by_recovery), at, tags, record)
    for number in report.each("CQ-TAG", np.flatnonzero(known & ~scheduled & ~plain)):
        report.add(
            "CQ-TAG",
            "the tags code is not the hash of the record's tags: consumers that filter by tag miss the message",
            int(at[number]),
            expected[number],
            tags[number],
        )


def _plain_tags(match: Match, at: Ints, report: PointerReport, unread: list[Finding]) -> tuple[Ints, Bools]:
    """Return (tags code, is it known) of each unit; where it is an ext address, that of the ext unit."""
    units = match.units
    tags, all_known = units.tags[at].copy(), np.ones(len(at), np.bool_)
    for file_number in np.unique(units.file[at[tags <= EXT_ADDRESS_MAX]]).tolist():
        file = match.plan.queue_files[file_number]
        exts = match.plan.ext_files.get((file.topic, file.queue_id), ())
        of_file = units.file[at] == file_number
        addresses = np.flatnonzero(of_file & (tags <= EXT_ADDRESS_MAX))
        # Without ext files, a few such numbers are damaged hashes; many say that the files are lost.
        good = np.count_nonzero(of_file) + int(match.step.units[file_number])
        if not exts and 2 * len(addresses) <= good:
            continue
        found, known = np.zeros(len(addresses), np.int64), np.zeros(len(addresses), np.bool_)
        if (file.topic, file.queue_id) in match.plan.hidden_ext:
            all_known[addresses] = False
            continue
        try:
            read_ext_tags(exts, tags[addresses], found, known)
        except Unreadable as error:
            unread.append(unread_finding(error))
            all_known[addresses] = False
            continue
        for number in report.each("EX-ADDRESS", np.flatnonzero(~known)):
            unit = int(at[addresses[number]])
            report.add("EX-ADDRESS", "the unit's ext address points to no ext unit", unit, None, units.tags[unit])
        tags[addresses], all_known[addresses] = found, known
    return tags, all_known


def _check_delays(match: Match, report: PointerReport, which: Ints, at: Ints, tags: Ints, record: Ints) -> None:
    """Check times of delivery.

    The table of delays is a setting, which is not in the store. A delay is whole seconds, and no single flipped
    bit of the time keeps it so.
    """
    stored = match.records.store_timestamp
    delays = tags[which] - stored[record[which]]
    for number in report.each("CQ-TAG", which[(delays <= 0) | (delays % SECOND != 0)]):
        report.add(
            "CQ-TAG",
            "the delivery time is not the store timestamp plus whole seconds of delay",
            int(at[number]),
            f"{stored[record[number]]} and seconds",
            tags[number],
        )
