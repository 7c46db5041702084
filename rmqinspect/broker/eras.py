"""The rules of a start, as data: what each release does when it loads and recovers a store.

One row says one rule: its name, the class and method it was read from, and its value from each release on that changed
it. `rules_of_start` gives the values that hold in one release; the walk of `forecast/` asks for them by name and never
for a release. An era is a run of releases with the same rules.

    rule            4.0.0 ...... 4.5.0 ........ 5.3.2 .... 5.4.0 ....
    clean_start     third last segment          queue end  whole first record
    queue_end       start        end
"""

from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

from rmqinspect.broker.start_rules import RULES, Value
from rmqinspect.broker.version_estimate import RELEASES


@dataclass(frozen=True, slots=True)
class Rules:
    """What one release does at a start, by rule. `RULES` says what each value means."""

    # load
    schedule_offsets: Literal["first", "last", "broker"]
    config_files: Literal["three", "filters", "orders"]
    config_file: Literal["keep", "delete"]
    timer: bool
    wrong_length: Literal["ignore", "refuse"]
    folder_entry: Literal["as_file", "skip"]
    empty_last_file: Literal["as_wrong", "delete"]
    queue_types: Literal["none", "compared"]
    compaction_logs: bool
    index_folder: Literal["stop", "refuse"]
    failed_start: Literal["exit", "shutdown"]
    # queues
    queue_end: Literal["start", "end"]
    repeated_unit: Literal["append", "ignore"]
    minimum: Literal["scan", "search"]
    empty_queue_file: Literal["keep", "refuse"]
    clean_without_log: Literal["keep", "destroy"]
    multi_dispatch: Literal[
        "none", "all_or_refuse", "all", "no_retry", "no_retry_timer_schedule", "no_retry_system_schedule"
    ]
    tag_keys: bool
    schedule_queues: bool
    # check of a record
    v2_records: bool
    ipv6_hosts: bool
    size_fits: bool
    property_items: Literal["split", "scan"]
    property_crc: Literal["none", "not_zero", "any"]
    duplication_info: bool
    inner_batches: bool
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
    recheck: bool
    schedule_tags: Literal["deliver_time", "plain"]
    # copies of a log: duplicationEnable, enableControllerMode, a slave
    confirm_offset: Literal["none", "checkpoint"]
    confirmed_dispatch: Literal["begin", "end"]
    controller_master: Literal["none", "computed", "log_end"]
    ha_offsets: Literal["none", "duplication", "controller"]
    slave_refusal: Literal["retry", "skip"]
    rocksdb_queues: Literal["absent", "topics", "entries"]
    double_write: Literal["absent", "files", "both"]
    ledger_scan: Literal["absent", "none", "duplication", "records"]


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


def first_release(name: str, value: Value) -> str:
    """Return the first release in which a rule has a value that it has in some."""
    (values,) = (rule.values for rule in RULES if rule.name == name)
    return next(since for since, own in values if own == value)


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
