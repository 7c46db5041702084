"""The rules of a start, as data: what each release does when it loads and recovers a store.

One row says one rule: its name, the class and method it was read from, and its value from each release on that changed
it. `rules_of_start` gives the values that hold in one release; the walk of `forecast/` asks for them by name and never
for a release. An era is a run of releases with the same rules.

    rule            4.0.0 ...... 4.5.0 ........ 5.3.2 .... 5.4.0 ....
    clean_start     third last segment          queue end  whole first record
    queue_end       start        end
"""

from dataclasses import dataclass, fields
from functools import cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

from rmqinspect.broker.version_estimate import RELEASES


@dataclass(frozen=True, slots=True)
class Rules:
    """What one release does at a start, by rule."""

    # load
    wrong_length: Literal["ignore", "refuse"]
    folder_entry: Literal["as_file", "skip"]
    empty_last_file: Literal["as_wrong", "delete"]
    index_folder: Literal["stop", "refuse"]
    queue_types: Literal["none", "compared"]
    # queues
    queue_end: Literal["start", "end"]
    minimum: Literal["scan", "search"]
    clean_without_log: Literal["keep", "destroy"]
    # check of a record
    v2_records: bool
    ipv6_hosts: bool
    size_fits: bool
    property_crc: Literal["none", "not_zero", "any"]
    duplication_info: bool
    inner_batches: bool
    property_items: Literal["split", "scan"]
    # scan
    clean_start: Literal["third", "base", "record"]
    unclean_start: Literal["head", "record"]
    record_times: Literal["none", "min_timestamp", "logics_offset"]
    accelerated_start: Literal["none", "rocksdb", "unclean"]
    unclean_mismatch: Literal["data", "stop"]
    offset_check: bool
    # dispatch and cuts
    clean_dispatch: Literal["none", "behind_queues"]
    dispatch_from: Literal["queues", "all_stores"]
    queue_cut: Literal["unclean_always", "at_or_behind"]
    queue_cut_end: Literal["before_dispatch", "after_dispatch"]
    cut_first: Literal["log", "queues"]
    reput_from: Literal["log_end", "queue_end"]
    schedule_tags: Literal["deliver_time", "plain"]
    schedule_queues: bool


Value = str | bool


class Rule(NamedTuple):
    """One rule: what it decides, where it was read, and its values, each with the first release that has it."""

    name: str
    decides: str
    source: str
    values: tuple[tuple[str, Value], ...]


RULES = (
    Rule(
        "wrong_length",
        "a mapped file whose length is not the configured one",
        "MappedFileQueue#load, #doLoad",
        (("4.0.0", "ignore"), ("4.5.0", "refuse"), ("4.9.2", "ignore"), ("4.9.3", "refuse")),
    ),
    Rule(
        "folder_entry",
        "a folder among mapped files",
        "MappedFileQueue#load, #doLoad",
        (("4.0.0", "as_file"), ("5.1.0", "skip")),
    ),
    Rule(
        "empty_last_file",
        "a file of 0 bytes that sorts last among mapped files",
        "MappedFileQueue#doLoad",
        (("4.0.0", "as_wrong"), ("5.1.3", "delete")),
    ),
    Rule(
        "index_folder",
        "a folder among the index files whose name is a number",
        "IndexService#load",
        (("4.0.0", "stop"), ("5.1.0", "refuse")),
    ),
    Rule(
        "queue_types",
        "a queue's folder against the type of its topic",
        "ConsumeQueueStore#queueTypeShouldBe",
        (("4.0.0", "none"), ("5.0.0", "compared")),
    ),
    Rule(
        "queue_end",
        "what maxPhysicOffset of a queue is: start or end of the newest unit's record",
        "ConsumeQueue#recover, #putMessagePositionInfo",
        (("4.0.0", "start"), ("4.5.0", "end")),
    ),
    Rule(
        "minimum",
        "how the minimum offset of a queue is found",
        "ConsumeQueue#correctMinOffset",
        (("4.0.0", "scan"), ("5.0.0", "search")),
    ),
    Rule(
        "clean_without_log",
        "the queues, when there is no segment after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "keep"), ("4.5.0", "destroy")),
    ),
    Rule(
        "v2_records",
        "records with the magic code of version 2",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.1.0", True)),
    ),
    Rule(
        "ipv6_hosts",
        "hosts of 20 bytes, by SYSFLAG",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("4.6.0", True)),
    ),
    Rule(
        "size_fits",
        "TOTALSIZE is compared with the bytes left, blank records included",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.3.2", True)),
    ),
    Rule(
        "property_crc",
        "the property __CRC32#, with forceVerifyPropCRC",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", "none"), ("5.2.0", "not_zero"), ("5.3.2", "any")),
    ),
    Rule(
        "duplication_info",
        "DUP_INFO is asked for with duplicationEnable",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.0.0", True)),
    ),
    Rule(
        "inner_batches",
        "INNER_NUM and INNER_BASE are read as numbers",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.0.0", True)),
    ),
    Rule(
        "property_items",
        "how properties are parsed: items split into two parts, or cut at their first separator",
        "MessageDecoder#string2messageProperties",
        (("4.0.0", "split"), ("4.9.1", "scan")),
    ),
    Rule(
        "clean_start",
        "the segment where the scan starts after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "third"), ("5.3.2", "base"), ("5.4.0", "record")),
    ),
    Rule(
        "unclean_start",
        "the segment where the scan starts after an unclean exit",
        "CommitLog#recoverAbnormally, #isMappedFileMatchedRecover",
        (("4.0.0", "head"), ("5.4.0", "record")),
    ),
    Rule(
        "record_times",
        "what the first record of that segment is compared with after an unclean exit",
        "ConsumeQueueStore#isMappedFileMatchedRecover",
        (("4.0.0", "none"), ("5.4.0", "min_timestamp"), ("5.5.0", "logics_offset")),
    ),
    Rule(
        "accelerated_start",
        "enableAcceleratedRecovery: which starts begin inside of a segment, with RocksDB queues or after unclean exits",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "none"), ("5.4.0", "rocksdb"), ("5.5.0", "unclean")),
    ),
    Rule(
        "unclean_mismatch",
        "a record whose lengths do not add up, after an unclean exit",
        "CommitLog#recoverAbnormally",
        (("4.0.0", "data"), ("4.3.2", "stop")),
    ),
    Rule(
        "offset_check",
        "checkCommitLogOffsetOnRecover exists",
        "CommitLog#recoverAbnormally",
        (("4.0.0", False), ("5.5.0", True)),
    ),
    Rule(
        "clean_dispatch",
        "records that the scan dispatches after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "none"), ("5.3.2", "behind_queues")),
    ),
    Rule(
        "dispatch_from",
        "what says where those records begin",
        "DefaultMessageStore#recover",
        (("4.0.0", "queues"), ("5.5.0", "all_stores")),
    ),
    Rule(
        "queue_cut",
        "when all queues are cut at the end of the scan",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "unclean_always"), ("4.3.2", "at_or_behind")),
    ),
    Rule(
        "queue_cut_end",
        "which end of the queues is compared with the end of the scan",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "before_dispatch"), ("5.4.0", "after_dispatch")),
    ),
    Rule(
        "cut_first",
        "what is cut first, the log or the queues",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "log"), ("5.2.0", "queues")),
    ),
    Rule(
        "reput_from",
        "where dispatch goes on after recovery",
        "DefaultMessageStore#start",
        (("4.0.0", "log_end"), ("4.5.0", "queue_end"), ("5.0.0", "log_end")),
    ),
    Rule(
        "schedule_tags",
        "the tags code of delayed messages that the scan dispatches",
        "ScheduleMessageService#load",
        (("4.0.0", "deliver_time"), ("4.9.2", "plain"), ("5.0.0", "deliver_time")),
    ),
    Rule(
        "schedule_queues",
        "the store makes a queue in memory for each delay level behind recovery",
        "ScheduleMessageService#correctDelayOffset",
        (("4.0.0", False), ("4.9.2", True), ("5.0.0", False)),
    ),
)
"""All rules, in the order in which a start meets them."""


@cache
def rules_of_start(release: str) -> Rules:
    """Return the rules that hold in a release.

    :raises ValueError: no such release.
    """
    known = RELEASES.index(release)
    holds: dict[str, Any] = {}
    for rule in RULES:
        for since, value in rule.values:
            if RELEASES.index(since) <= known:
                holds[rule.name] = value
    return Rules(**holds)


class Era(NamedTuple):
    """A run of releases, both ends included, that start a store by the same rules."""

    first: str
    last: str

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


@cache
def eras() -> tuple[Era, ...]:
    """Return all eras in order."""
    runs = [list(run) for _, run in groupby(RELEASES, key=rules_of_start)]
    return tuple(Era(run[0], run[-1]) for run in runs)


NAMES = tuple(field.name for field in fields(Rules))
"""The names of all rules."""
