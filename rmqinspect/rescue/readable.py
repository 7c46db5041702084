"""Which sound records the broker of a release cannot read: V2 records before 5.1.0, IPv6 hosts before 4.6.0.

Source: CommitLog#checkMessageAndReturnSize.
"""

from collections.abc import Iterator

import numpy as np

from rmqinspect.broker.start_rules import Rules
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.rescue.sources import Composite, Range
from rmqinspect.schemas import message


def can_read(rules: Rules, raw: bytes) -> bool:
    """Whether a release can read a record."""
    record = Records.of_one(raw, 0)
    v6 = int(message.SysFlag.BORNHOST_V6 | message.SysFlag.STOREHOSTADDRESS_V6)
    is_long, has_v6 = int(record.magic[0]) == message.MAGIC_V2, bool(int(record.sys_flag[0]) & v6)
    return (rules.v2_records or not is_long) and (rules.ipv6_hosts or not has_v6)


def take_unreadable(composite: Composite, rules: Rules) -> Iterator[Range]:
    """Take the sound records that a release cannot read out of the sound bytes, and yield where they are."""
    if rules.v2_records and rules.ipv6_hosts:
        return
    v6 = int(message.SysFlag.BORNHOST_V6 | message.SysFlag.STOREHOSTADDRESS_V6)
    for source in composite.sources:
        for split in plan_splits(source.store.segments, 1 << 30):
            for event in scan_split(split):
                if not isinstance(event, RecordRun) or event.stale:
                    continue
                records = event.records
                refused = np.zeros(len(records), np.bool_)
                if not rules.v2_records:
                    refused |= records.magic == message.MAGIC_V2
                if not rules.ipv6_hosts:
                    refused |= (records.sys_flag & v6) != 0
                for row in np.flatnonzero(refused).tolist():
                    start, end = (records.base + int(places[row]) for places in (records.starts, records.ends))
                    one = Range(start - split.segment.lead, end)
                    if composite.take_out(one):
                        yield one
