"""Which records of a run may pass the filters, by their bytes alone: columns are made of these only."""

from dataclasses import replace

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import take_ranges
from rmqinspect.codec.byte_search import containing
from rmqinspect.codec.layout import place_of
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.tables.columns import name_column
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.needles import Needles
from rmqinspect.tables.table import Request

_ADDRESS_V4, _ADDRESS_V6 = (place_of(host, "port") for host in (message.HostV4, message.HostV6))


def candidates(run: RecordRun, request: Request) -> RecordRun:
    """Return the records of a run that may pass all filters, and one of each topic that a filter has yet to see.

    With the damaged ones, if the request says so.
    """
    records = run.records
    passed, shown = np.ones(len(records), np.bool_), np.zeros(len(records), np.bool_)
    for selection in request.records_of:
        if selection.topics or not selection.system_topics:
            taken, unseen = _by_topic(records, selection)
            passed &= taken
            shown[unseen] = True
        for needles in selection.needles:
            left = np.flatnonzero(passed)
            passed[left] = _may_pass(records, left, needles, raw_body=request.raw_body)
    passed |= shown
    if request.with_damaged:
        passed |= ~records.body_crc_ok
    if passed.all():
        return run
    return replace(run, records=records.select(passed), carved=run.carved and bool(passed[0]))


def _by_topic(records: Records, selection: Selection) -> tuple[Bools, Ints]:
    """Return which records have a topic that passes, and the first record of each topic that was not seen."""
    names, _ = name_column(take_ranges(records.bytes, records.topic_starts, records.topic_ends))
    coded = names.dictionary_encode()
    topics, numbers = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    taken: Bools = np.array([selection.takes_topic(topic) for topic in topics], np.bool_)[numbers]
    first: Ints = np.zeros(0, np.int64)
    if unseen := selection.unseen_of(topics):
        first = np.unique(numbers, return_index=True)[1][[topic in unseen for topic in topics]]
    return taken, first


def _may_pass(records: Records, which: Ints, needles: Needles, *, raw_body: bool) -> Bools:
    """Return which of some records contain a needle in its part, or may pass without."""
    match needles.part:
        case "body":
            starts, ends = records.body_starts, records.body_ends
        case "properties":
            starts, ends = records.properties_starts, records.properties_ends
        case "born_host":
            starts = records.field("born_host")
            ends = starts + np.where(records.sys_flag & SysFlag.BORNHOST_V6, _ADDRESS_V6, _ADDRESS_V4)
    passed = containing(records.bytes, starts[which], ends[which], needles.texts)
    if needles.part == "body" and not raw_body:
        passed |= records.sys_flag[which] & SysFlag.COMPRESSED != 0
    if needles.places:
        passed |= np.isin(records.base + records.starts[which], needles.places)
    return passed
