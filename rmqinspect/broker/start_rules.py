"""What differs by release, as tables: one row says one rule, for all releases.

    RULES          what a start does, in the order in which it meets them; `broker.eras` makes eras of them
    PULL_RULES     what a consumer is answered that pulls (`broker.pull`)
    TIME_RULES     which queue offset is named for a time (`broker.offset_by_time`)
    DELAY_RULES    what the timer makes of orders to delete (`broker.delays`)

`values_of` gives the values that hold in one release. What the units and entries of a store may hold besides, since a
broker keeps what an older one wrote: `broker.dispatch`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rmqinspect.broker.version_estimate import RELEASES

Value = str | bool


class Rule(NamedTuple):
    """One rule: what it decides, where it was read, its values, each with the first release that has it, in words."""

    name: str
    decides: str
    source: str
    values: tuple[tuple[str, Value], ...]
    means: Mapping[Value, str] = {True: "yes", False: "no"}


RULES = (
    Rule(
        "size_names",
        "names in broker.conf of the lengths of segments and queue files",
        "MessageStoreConfig#setMapedFileSizeCommitLog, #setMappedFileSizeCommitLog",
        (("4.0.0", "maped"), ("4.5.2", "mapped")),
        {
            "maped": "mapedFileSizeCommitLog, mapedFileSizeConsumeQueue",
            "mapped": "mappedFileSizeCommitLog, mappedFileSizeConsumeQueue",
        },
    ),
    Rule(
        "schedule_offsets",
        "when config/delayOffset.json is read; a broken one refuses the start",
        "DefaultMessageStore#load, BrokerController#initialize",
        (("4.0.0", "first"), ("4.9.2", "last"), ("5.0.0", "broker")),
        {
            "first": "before the log is loaded: nothing was changed yet",
            "last": "behind recovery: the log may be cut already",
            "broker": "by the broker, behind the store's load: the log may be cut already",
        },
    ),
    Rule(
        "config_files",
        "files of config/ that are read first of all, before the store is loaded; one without a readable copy refuses",
        "BrokerController#initialize, #initializeMetadata",
        (("4.0.0", "three"), ("4.1.0", "filters"), ("5.0.0", "orders")),
        {
            "three": "topics, consumerOffset, subscriptionGroup",
            "filters": "topics, consumerOffset, subscriptionGroup, consumerFilter",
            "orders": "topics, topicQueueMapping, consumerOffset, subscriptionGroup, consumerFilter, consumerOrderInfo",
        },
    ),
    Rule(
        "config_file",
        "a file of config/ that is empty or cannot be read as its JSON, before the .bak is read",
        "ConfigManager#load",
        (("4.0.0", "keep"), ("5.4.0", "delete")),
        {"keep": "it stays", "delete": "it is deleted"},
    ),
    Rule(
        "config_list",
        "a file of config/ that is an empty list, []",
        "RemotingSerializable#fromJson, fastjson 1 and 2",
        (("4.0.0", "read"), ("5.4.0", "refuse")),
        {"read": "read as if nothing was in it", "refuse": "cannot be read"},
    ),
    Rule(
        "timer",
        "with timerWheelEnable timercheck and timerwheel are opened before, timerlog and timermetrics loaded behind",
        "BrokerController#initializeMessageStore, #recoverAndInitService, TimerWheel, TimerMessageStore#load",
        (("4.0.0", False), ("5.0.0", True)),
    ),
    Rule(
        "wrong_length",
        "a mapped file whose length is not the configured one",
        "MappedFileQueue#load, #doLoad",
        (("4.0.0", "ignore"), ("4.5.0", "refuse"), ("4.9.2", "ignore"), ("4.9.3", "refuse")),
        {"ignore": "it and all behind it are left aside", "refuse": "the broker does not start"},
    ),
    Rule(
        "folder_entry",
        "a folder among mapped files",
        "MappedFileQueue#load, #doLoad",
        (("4.0.0", "as_file"), ("5.1.0", "skip")),
        {"as_file": "counts as a file of another length", "skip": "left aside"},
    ),
    Rule(
        "empty_last_file",
        "a file of 0 bytes that sorts last among mapped files",
        "MappedFileQueue#doLoad",
        (("4.0.0", "as_wrong"), ("5.1.3", "delete")),
        {"as_wrong": "counts as a file of another length", "delete": "it is deleted"},
    ),
    Rule(
        "queue_types",
        "a queue's folder against the type of its topic",
        "ConsumeQueueStore#queueTypeShouldBe",
        (("4.0.0", "none"), ("5.0.0", "compared")),
        {"none": "not compared", "compared": "another type refuses the start"},
    ),
    Rule(
        "compaction_logs",
        "compaction logs are loaded behind the queues, and can refuse the start (enableCompaction, on by default)",
        "DefaultMessageStore#load, CompactionStore#load",
        (("4.0.0", False), ("5.1.0", True)),
    ),
    Rule(
        "index_folder",
        "a folder among the index files whose name is a number",
        "IndexService#load, DefaultMessageStore#load",
        (("4.0.0", "stop"), ("5.1.0", "refuse")),
        {"stop": "it and all behind it are left aside", "refuse": "recovery runs, then the broker does not start"},
    ),
    Rule(
        "failed_start",
        "what follows a start that was refused while the store was loaded",
        "DefaultMessageStore#shutdown, BrokerStartup#createBrokerController",
        (("4.0.0", "exit"), ("5.4.0", "shutdown")),
        {"exit": "nothing", "shutdown": "a shutdown, which deletes abort if no segment was loaded, or with SYNC_FLUSH"},
    ),
    Rule(
        "abort_folder",
        "a folder in the place of abort, which counts as an unclean exit",
        "DefaultMessageStore#createTempFile, MixAll#string2File",
        (("4.0.0", "keep"), ("5.0.0", "refuse")),
        {"keep": "the broker starts", "refuse": "recovery runs, then the broker does not start"},
    ),
    Rule(
        "queue_end",
        "what maxPhysicOffset of a queue is",
        "ConsumeQueue#recover, #putMessagePositionInfo",
        (("4.0.0", "start"), ("4.5.0", "end")),
        {"start": "where the record of the newest unit begins", "end": "where the record of the newest unit ends"},
    ),
    Rule(
        "repeated_unit",
        "a record whose queue offset lies before the end of its queue, and not its physical offset",
        "ConsumeQueue#putMessagePositionInfo",
        (("4.0.0", "append"), ("4.2.0", "ignore")),
        {"append": "its unit is appended", "ignore": "it gets no unit"},
    ),
    Rule(
        "minimum",
        "how the minimum offset of a queue is found",
        "ConsumeQueue#correctMinOffset",
        (("4.0.0", "scan"), ("5.0.0", "search")),
        {
            "scan": "the first unit of the first file whose record is there; none: 0",
            "search": "by bisection of the first file; behind the last unit if its record is gone",
        },
    ),
    Rule(
        "empty_queue_file",
        "a last queue file without a unit, behind other files or not at 0, when the minimum offset is searched",
        "ConsumeQueue#correctMinOffset",
        (("4.0.0", "keep"), ("5.0.0", "refuse"), ("5.5.0", "keep")),
        {"keep": "nothing", "refuse": "an exception: the broker does not start"},
    ),
    Rule(
        "clean_without_log",
        "the queues, when there is no segment after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "keep"), ("4.5.0", "destroy")),
        {"keep": "they stay", "destroy": "all are deleted"},
    ),
    Rule(
        "multi_dispatch",
        "topics whose records get units in further queues too (enableMultiDispatch)",
        "ConsumeQueue#checkMultiDispatchQueue, DefaultMessageStore#checkMultiDispatchQueue, MultiDispatchUtils",
        (
            ("4.0.0", "none"),
            ("4.9.3", "all_or_refuse"),
            ("4.9.4", "all"),
            ("5.1.1", "no_retry"),
            ("5.1.2", "no_retry_timer_schedule"),
            ("5.2.0", "no_retry_system_schedule"),
        ),
        {
            "none": "none",
            "all_or_refuse": "all; a record without properties that recovery dispatches refuses the start",
            "all": "all",
            "no_retry": "all but %RETRY%",
            "no_retry_timer_schedule": "not %RETRY%, rmq_sys_wheel_timer, SCHEDULE_TOPIC_XXXX; no names with /",
            "no_retry_system_schedule": "not %RETRY%, rmq_sys_, SCHEDULE_TOPIC_XXXX; no names with /",
        },
    ),
    Rule(
        "tag_keys",
        "the tags of a message are a key of the index",
        "IndexService#buildIndex",
        (("4.0.0", False), ("5.4.0", True)),
    ),
    Rule(
        "schedule_queues",
        "the store makes a queue in memory for each delay level behind recovery",
        "ScheduleMessageService#correctDelayOffset",
        (("4.0.0", False), ("4.9.2", True), ("5.0.0", False)),
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
        "CommitLog#checkMessageAndReturnSize, #isMappedFileMatchedRecover",
        (("4.0.0", False), ("4.6.0", True)),
    ),
    Rule(
        "size_fits",
        "TOTALSIZE is compared with the bytes left, blank records included",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.3.2", True)),
    ),
    Rule(
        "property_items",
        "how properties are parsed",
        "MessageDecoder#string2messageProperties",
        (("4.0.0", "split"), ("4.9.1", "scan")),
        {
            "split": "items are split at every separator, and count with two parts",
            "scan": "items are cut at their first separator",
        },
    ),
    Rule(
        "property_crc",
        "the property __CRC32#, with forceVerifyPropCRC",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", "none"), ("5.2.0", "not_zero"), ("5.3.2", "any")),
        {"none": "not known", "not_zero": "compared; 0 is refused", "any": "compared"},
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
        "CommitLog#checkMessageAndReturnSize, #setBatchSizeIfNeeded",
        (("4.0.0", False), ("5.0.0", True)),
    ),
    Rule(
        "clean_start",
        "the segment where the scan starts after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "third"), ("5.3.2", "base"), ("5.4.0", "record")),
        {
            "third": "the third last",
            "base": "the last one that begins at or before the end of the queues",
            "record": "the last one whose whole first record is right and known to the queues (of 10)",
        },
    ),
    Rule(
        "unclean_start",
        "the segment where the scan starts after an unclean exit",
        "CommitLog#recoverAbnormally, #isMappedFileMatchedRecover",
        (("4.0.0", "head"), ("5.4.0", "record")),
        {
            "head": "the last one whose first record has a magic code and was known at the checkpoint",
            "record": "the last one whose whole first record is right and known at the checkpoint (of 10)",
        },
    ),
    Rule(
        "record_times",
        "what the first record of that segment is compared with after an unclean exit",
        "ConsumeQueueStore#isMappedFileMatchedRecover",
        (("4.0.0", "none"), ("5.4.0", "min_timestamp"), ("5.5.0", "logics_offset")),
        {
            "none": "nothing but its head",
            "min_timestamp": "3 s before the older one of physicMsgTimestamp and logicsMsgTimestamp",
            "logics_offset": "logicsPhysicalOffset, or logicsMsgTimestamp while that is 0",
        },
    ),
    Rule(
        "accelerated_start",
        "enableAcceleratedRecovery: starts that begin inside of a segment",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "none"), ("5.4.0", "rocksdb"), ("5.5.0", "unclean")),
        {"none": "none", "rocksdb": "those with RocksDB queues", "unclean": "those after an unclean exit"},
    ),
    Rule(
        "unclean_mismatch",
        "a record whose lengths do not add up, after an unclean exit",
        "CommitLog#recoverAbnormally",
        (("4.0.0", "data"), ("4.3.2", "stop")),
        {"data": "counts as a record without a topic", "stop": "ends the scan"},
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
        {"none": "none", "behind_queues": "those that begin behind the end of the queues, not at it"},
    ),
    Rule(
        "dispatch_from",
        "what says where those records begin",
        "DefaultMessageStore#recover",
        (("4.0.0", "queues"), ("5.5.0", "all_stores")),
        {"queues": "the consume queues", "all_stores": "the consume queues, and the index and transactions in RocksDB"},
    ),
    Rule(
        "queue_cut",
        "when all queues are cut at the end of the scan",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "unclean_always"), ("4.3.2", "at_or_behind")),
        {
            "unclean_always": "after every unclean exit, and never after a clean one",
            "at_or_behind": "when they end at or behind it",
        },
    ),
    Rule(
        "queue_cut_end",
        "which end of the queues is compared with the end of the scan",
        "CommitLog#recoverNormally, #recoverAbnormally, ConsumeQueueStore#truncateDirty",
        (("4.0.0", "before_dispatch"), ("5.4.0", "after_dispatch")),
        {"before_dispatch": "that before the scan dispatched", "after_dispatch": "that after it"},
    ),
    Rule(
        "cut_first",
        "what is cut first",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "log"), ("5.2.0", "queues")),
        {"log": "the log", "queues": "the queues"},
    ),
    Rule(
        "reput_from",
        "where dispatch goes on after recovery",
        "DefaultMessageStore#start",
        (("4.0.0", "log_end"), ("4.5.0", "queue_end"), ("5.0.0", "log_end")),
        {
            "log_end": "at the end of the log: nothing is left to do",
            "queue_end": "at the end of the queues, but not before the first segment",
        },
    ),
    Rule(
        "recheck",
        "recheckReputOffsetFromCq exists: dispatch goes on at the end of the queues",
        "DefaultMessageStore#doRecheckReputOffsetFromCq",
        (("4.0.0", False), ("5.0.0", True)),
    ),
    Rule(
        "schedule_tags",
        "the tags code of delayed messages that the scan dispatches",
        "ScheduleMessageService#load, DefaultMessageStore#load",
        (("4.0.0", "deliver_time"), ("4.9.2", "plain"), ("5.0.0", "deliver_time")),
        {"deliver_time": "when they are due", "plain": "the hash of their tags: the delay levels are not read yet"},
    ),
    Rule(
        "confirm_offset",
        "confirmOffset at the start of recovery",
        "DefaultMessageStore#load, CommitLog#getConfirmOffset",
        (("4.0.0", "none"), ("5.1.1", "checkpoint")),
        {"none": "-1: not stored", "checkpoint": "confirmPhyOffset of the checkpoint"},
    ),
    Rule(
        "confirmed_dispatch",
        "records dispatched after an unclean exit, with duplicationEnable (5.1.1+: and in controller mode)",
        "CommitLog#recoverAbnormally",
        (("4.0.0", "begin"), ("5.1.1", "end")),
        {"begin": "those that begin before confirmOffset", "end": "those that end at or before confirmOffset"},
    ),
    Rule(
        "controller_master",
        "how far a master takes its log for confirmed in controller mode",
        "CommitLog#getConfirmOffset",
        (("4.0.0", "none"), ("5.1.1", "computed"), ("5.2.0", "log_end")),
        {
            "none": "as without controller mode",
            "computed": "as the checkpoint says; without that it asks its copies, before it knows any: the start fails",
            "log_end": "all of it, unless allAckInSyncStateSet is on",
        },
    ),
    Rule(
        "ha_offsets",
        "when the records behind confirmOffset are read for their queue offsets: a V2 record there refuses the start",
        "ConsumeQueueStore#recoverOffsetTable, #compensateForHA",
        (("4.0.0", "none"), ("5.0.0", "duplication"), ("5.2.0", "controller")),
        {
            "none": "never",
            "duplication": "with duplicationEnable",
            "controller": "with duplicationEnable and in controller mode",
        },
    ),
    Rule(
        "slave_refusal",
        "a refused record that dispatch meets on a slave",
        "DefaultMessageStore.ReputMessageService#doReput",
        (("4.0.0", "retry"), ("4.5.0", "skip"), ("4.5.1", "retry")),
        {
            "retry": "dispatch stays there (4.5.1 to 4.9.8: the start does not end)",
            "skip": "as on a master: the rest of the segment gets no units",
        },
    ),
    Rule(
        "rocksdb_queues",
        "queues in RocksDB (storeType=defaultRocksDB): which of them a cut looks at",
        "RocksDBConsumeQueueOffsetTable#truncateDirty",
        (("4.0.0", "absent"), ("5.2.0", "topics"), ("5.3.2", "entries")),
        {
            "absent": "the setting is not known",
            "topics": "the write queues of the topics in topics.json; one that lies behind the end refuses the start",
            "entries": "all; one that lies behind the end altogether stays as it is",
        },
    ),
    Rule(
        "double_write",
        "which queues a start asks, with rocksdbCQDoubleWriteEnable",
        "DefaultMessageStore#enableRocksdbCQWrite, CombineConsumeQueueStore",
        (("4.0.0", "absent"), ("5.3.1", "files"), ("5.4.0", "both")),
        {
            "absent": "the setting is not known",
            "files": "those in files; those in RocksDB only follow",
            "both": "those in files and those in RocksDB, and it brings them to the same offsets",
        },
    ),
    Rule(
        "ledger_scan",
        "a DLedger log after an unclean exit: records that are scanned and dispatched, and how far the queues are cut",
        "DLedgerCommitLog#recover, #dledgerRecoverAbnormally",
        (("4.0.0", "absent"), ("4.5.0", "none"), ("5.2.0", "duplication"), ("5.3.0", "records")),
        {
            "absent": "DLedger is not known: the broker starts with an empty log",
            "none": "none: the queues are cut at the end of the entries",
            "duplication": "those with DUP_INFO; the queues are cut where they end, 48 bytes too early for each",
            "records": "all valid ones; the queues are cut where they end, 48 bytes too early for each",
        },
    ),
)
"""All rules, in the order in which a start meets them."""

PULL_RULES = (
    Rule(
        "to_zero",
        "an offset far beyond the end of a queue whose minimum is 0 (OFFSET_OVERFLOW_BADLY) leads to 0",
        "DefaultMessageStore#getMessage",
        (("4.0.0", True), ("4.9.4", False)),
        {True: "yes", False: "no: to the maximum"},
    ),
    Rule(
        "scanned",
        "how many queue offsets are scanned, at least",
        "DefaultMessageStore#getMessage",
        (("4.0.0", "bytes"), ("5.0.0", "units + 1"), ("5.1.0", "bytes + 1"), ("5.3.3", "bytes")),
        {
            "bytes": "16,000 bytes of units, rounded up",
            "bytes + 1": "16,000 bytes of units, rounded down, and one more",
            "units + 1": "16,000 and one",
        },
    ),
    Rule(
        "passes_when_full",
        "units behind an unreadable record are passed over even if no more message would fit",
        "DefaultMessageStore#getMessage",
        (("4.0.0", True), ("5.0.0", False)),
    ),
    Rule(
        "reads_count",
        "of a queue in RocksDB no more units are read than messages are asked for",
        "RocksDBConsumeQueue#iterateFrom",
        (("4.0.0", True), ("5.5.0", False)),
    ),
    Rule(
        "one_less",
        "of more than one message asked for, one is not given",
        "DefaultMessageStore#isTheBatchFull",
        (("4.0.0", True), ("4.2.0", False)),
    ),
)

TIME_RULES = (
    Rule(
        "within",
        "the result is moved into [minimum, maximum], but not for RocksDB",
        "ConsumeQueue#getOffsetInQueueByTime",
        (("4.0.0", False), ("5.0.0", True)),
    ),
    Rule(
        "by_change",
        "files are chosen by the time of their last change",
        "MappedFileQueue#getConsumeQueueMappedFileByTime",
        (("4.0.0", True), ("5.1.1", False)),
    ),
    Rule(
        "boundary",
        "a boundary can be named",
        "ConsumeQueue#getOffsetInQueueByTime",
        (("4.0.0", False), ("5.1.4", True)),
        {True: "yes", False: "no: lower is meant"},
    ),
    Rule(
        "batch_boundary",
        "the boundary counts within a batch queue",
        "BatchConsumeQueue#getOffsetInQueueByTime",
        (("4.0.0", False), ("5.1.4", True)),
    ),
    Rule(
        "rocksdb",
        "how a queue in RocksDB is searched",
        "RocksDBConsumeQueueTable#binarySearchInCQByTime",
        (("4.0.0", "nearest"), ("5.3.0", "bounded"), ("5.3.2", "ends")),
        {
            "nearest": "for the nearest message",
            "bounded": "by the search alone",
            "ends": "times before and behind all messages first",
        },
    ),
)

DELAY_RULES = (
    Rule(
        "delete_key",
        "how TIMER_DEL_UNIQKEY names the message, without the setting appendTopicForTimerDeleteKey (5.4.0)",
        "TimerMessageStore#buildDeleteKey",
        (("4.0.0", "UNIQ_KEY"), ("5.3.2", "REAL_TOPIC+UNIQ_KEY"), ("5.4.0", "UNIQ_KEY")),
        {"UNIQ_KEY": "its UNIQ_KEY", "REAL_TOPIC+UNIQ_KEY": "its real topic, +, its UNIQ_KEY"},
    ),
)


def values_of(rules: Sequence[Rule], release: str) -> dict[str, Any]:
    """Return the values that rules have in a release, by name.

    :raises ValueError: no such release.
    """
    known = RELEASES.index(release)
    return {rule.name: [value for since, value in rule.values if RELEASES.index(since) <= known][-1] for rule in rules}


def first_release(name: str, value: Value) -> str:
    """Return the first release in which a rule of a start has a value that it has in some."""
    (values,) = (rule.values for rule in RULES if rule.name == name)
    return next(since for since, own in values if own == value)
