"""What a start does, by release: a table of `broker.rules`.

Two releases are of one era if their `Rules` are equal (`broker.eras`). What the units and entries of a store may hold
besides, since a broker keeps what an older one wrote: `broker.dispatch`.
"""

from rmqinspect.broker.rules import Rule, RuleSet


class Rules(RuleSet):
    """What a start of one release does, in the order in which it meets the rules."""

    size_names = Rule(
        "names in broker.conf of the lengths of segments and queue files",
        "MessageStoreConfig#setMapedFileSizeCommitLog, #setMappedFileSizeCommitLog",
        (("4.0.0", "maped"), ("4.5.2", "mapped")),
        {
            "maped": "mapedFileSizeCommitLog, mapedFileSizeConsumeQueue",
            "mapped": "mappedFileSizeCommitLog, mappedFileSizeConsumeQueue",
        },
    )
    log_paths = Rule(
        "storePathCommitLog with a comma in it, and readOnlyCommitLogStorePaths beside it",
        "CommitLog#CommitLog, MultiPathMappedFileQueue#load",
        (("4.0.0", "one"), ("4.9.2", "several")),
        {"one": "the whole text is the name of one folder", "several": "a list of folders, all of which are read"},
    )
    path_settings = Rule(
        "settings in broker.conf that name places of the store: all others have no effect",
        "MessageStoreConfig, its setters; MixAll#properties2Object",
        (("4.0.0", "log"), ("4.9.2", "read_only"), ("4.9.4", "ledger"), ("5.0.0", "epoch"), ("5.1.1", "identity")),
        {
            "log": "storePathRootDir, storePathCommitLog",
            "read_only": "readOnlyCommitLogStorePaths, too",
            "ledger": "storePathDLedgerCommitLog, too",
            "epoch": "storePathEpochFile, too",
            "identity": "storePathBrokerIdentity, too",
        },
    )
    light_queues = Rule(
        "with enableLmq consumer offsets are those of lmqConsumerOffset.json, not of consumerOffset.json",
        "BrokerController#BrokerController, LmqConsumerOffsetManager#configFilePath",
        (("4.0.0", False), ("4.9.3", True)),
    )
    rocksdb_config = Rule(
        "topics, groups and offsets with storeType=defaultRocksDB",
        "RocksDBConfigManager#load, RocksDBConsumerOffsetManager#merge",
        (("4.0.0", "absent"), ("5.2.0", "alone"), ("5.3.1", "merged")),
        {
            "absent": "in files: the setting is not known",
            "alone": "in databases below config/; the JSON files are not read",
            "merged": "in databases below config/; a JSON file with the greater counter in dataVersion is read besides",
        },
    )
    config_v2 = Rule(
        "with configManagerVersion=v2 topics, groups and offsets are in the database config/rdb alone",
        "BrokerController#BrokerController",
        (("4.0.0", False), ("5.3.2", True)),
    )
    single_rocksdb = Rule(
        "with useSingleRocksDBForAllConfigs topics, groups and offsets are in the database config/metadata",
        "RocksDBTopicConfigManager#rocksdbConfigFilePath",
        (("4.0.0", False), ("5.4.0", True)),
    )
    rocksdb_store = Rule(
        "timer messages, half messages and the index can be in the database rocksdbstore",
        "MessageStoreConfig#setTimerRocksDBEnable, #setTransRocksDBEnable, #setIndexRocksDBEnable",
        (("4.0.0", False), ("5.4.0", True)),
    )
    schedule_offsets = Rule(
        "when config/delayOffset.json is read; a broken one refuses the start",
        "DefaultMessageStore#load, BrokerController#initialize",
        (("4.0.0", "first"), ("4.9.2", "last"), ("5.0.0", "broker")),
        {
            "first": "before the log is loaded: nothing was changed yet",
            "last": "behind recovery: the log may be cut already",
            "broker": "by the broker, behind the store's load: the log may be cut already",
        },
    )
    config_files = Rule(
        "files of config/ that are read first of all, before the store is loaded; one without a readable copy refuses",
        "BrokerController#initialize, #initializeMetadata",
        (("4.0.0", "three"), ("4.1.0", "filters"), ("5.0.0", "orders")),
        {
            "three": "topics, consumerOffset, subscriptionGroup",
            "filters": "topics, consumerOffset, subscriptionGroup, consumerFilter",
            "orders": "topics, topicQueueMapping, consumerOffset, subscriptionGroup, consumerFilter, consumerOrderInfo",
        },
    )
    config_file = Rule(
        "a file of config/ that is empty or cannot be read as its JSON, before the .bak is read",
        "ConfigManager#load",
        (("4.0.0", "keep"), ("5.4.0", "delete")),
        {"keep": "it stays", "delete": "it is deleted"},
    )
    config_list = Rule(
        "a file of config/ that is an empty list, []",
        "RemotingSerializable#fromJson, fastjson 1 and 2",
        (("4.0.0", "read"), ("5.4.0", "refuse")),
        {"read": "read as if nothing was in it", "refuse": "cannot be read"},
    )
    timer = Rule(
        "with timerWheelEnable timercheck and timerwheel are opened before, timerlog and timermetrics loaded behind",
        "BrokerController#initializeMessageStore, #recoverAndInitService, TimerWheel, TimerMessageStore#load",
        (("4.0.0", False), ("5.0.0", True)),
    )
    wrong_length = Rule(
        "a mapped file whose length is not the configured one",
        "MappedFileQueue#load, #doLoad",
        (("4.0.0", "ignore"), ("4.5.0", "refuse"), ("4.9.2", "ignore"), ("4.9.3", "refuse")),
        {"ignore": "it and all behind it are ignored", "refuse": "the broker does not start"},
    )
    folder_entry = Rule(
        "a folder among mapped files",
        "MappedFileQueue#load, #doLoad",
        (("4.0.0", "as_file"), ("5.1.0", "skip")),
        {"as_file": "counts as a file of another length", "skip": "ignored"},
    )
    empty_last_file = Rule(
        "a file of 0 bytes that sorts last among mapped files",
        "MappedFileQueue#doLoad",
        (("4.0.0", "as_wrong"), ("5.1.3", "delete")),
        {"as_wrong": "counts as a file of another length", "delete": "it is deleted"},
    )
    queue_types = Rule(
        "a queue's folder against the type of its topic",
        "ConsumeQueueStore#queueTypeShouldBe",
        (("4.0.0", "none"), ("5.0.0", "compared")),
        {"none": "not compared", "compared": "another type refuses the start"},
    )
    compaction_logs = Rule(
        "compaction logs are loaded behind the queues, and can refuse the start (enableCompaction, on by default)",
        "DefaultMessageStore#load, CompactionStore#load",
        (("4.0.0", False), ("5.1.0", True)),
    )
    index_folder = Rule(
        "a folder among the index files whose name is a number",
        "IndexService#load, DefaultMessageStore#load",
        (("4.0.0", "stop"), ("5.1.0", "refuse")),
        {"stop": "it and all behind it are ignored", "refuse": "recovery runs, then the broker does not start"},
    )
    failed_start = Rule(
        "what follows a start that was refused while the store was loaded",
        "DefaultMessageStore#shutdown, BrokerStartup#createBrokerController",
        (("4.0.0", "exit"), ("5.4.0", "shutdown")),
        {"exit": "nothing", "shutdown": "a shutdown, which deletes abort if no segment was loaded, or with SYNC_FLUSH"},
    )
    abort_folder = Rule(
        "a folder in the place of abort, which counts as an unclean exit",
        "DefaultMessageStore#createTempFile, MixAll#string2File",
        (("4.0.0", "keep"), ("5.0.0", "refuse")),
        {"keep": "the broker starts", "refuse": "recovery runs, then the broker does not start"},
    )
    queue_end = Rule(
        "what maxPhysicOffset of a queue is",
        "ConsumeQueue#recover, #putMessagePositionInfo",
        (("4.0.0", "start"), ("4.5.0", "end")),
        {"start": "where the record of the newest unit begins", "end": "where the record of the newest unit ends"},
    )
    repeated_unit = Rule(
        "a record whose queue offset lies before the end of its queue, and not its physical offset",
        "ConsumeQueue#putMessagePositionInfo",
        (("4.0.0", "append"), ("4.2.0", "ignore")),
        {"append": "its unit is appended", "ignore": "it gets no unit"},
    )
    minimum = Rule(
        "how the minimum offset of a queue is found",
        "ConsumeQueue#correctMinOffset",
        (("4.0.0", "scan"), ("5.0.0", "search")),
        {
            "scan": "the first unit of the first file whose record is there; none: 0",
            "search": "by bisection of the first file; behind the last unit if its record is gone",
        },
    )
    empty_queue_file = Rule(
        "a last queue file without a unit, behind other files or not at 0, when the minimum offset is searched",
        "ConsumeQueue#correctMinOffset",
        (("4.0.0", "keep"), ("5.0.0", "refuse"), ("5.5.0", "keep")),
        {"keep": "nothing", "refuse": "an exception: the broker does not start"},
    )
    clean_without_log = Rule(
        "the queues, when there is no segment after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "keep"), ("4.5.0", "destroy")),
        {"keep": "they stay", "destroy": "all are deleted"},
    )
    deleted_offsets = Rule(
        "the consumer offsets of a topic that is deleted are deleted, too: elsewhere they do not prove its queues",
        "AdminBrokerProcessor#deleteTopic, ConsumerOffsetManager#cleanOffsetByTopic",
        (("4.0.0", False), ("5.0.0", True)),
    )
    kept_topics = Rule(
        "the broker's own topics whose queues stay, without topics.json naming them, where another topic is deleted",
        "DefaultMessageStore#cleanUnusedTopic",
        (("4.0.0", "schedule"), ("4.9.0", "op"), ("5.0.0", "system")),
        {
            "schedule": "SCHEDULE_TOPIC_XXXX",
            "op": "SCHEDULE_TOPIC_XXXX, RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "system": "all",
        },
    )
    multi_dispatch = Rule(
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
    )
    tag_keys = Rule(
        "the tags of a message are a key of the index",
        "IndexService#buildIndex",
        (("4.0.0", False), ("5.4.0", True)),
    )
    schedule_queues = Rule(
        "the store makes a queue in memory for each delay level behind recovery",
        "ScheduleMessageService#correctDelayOffset",
        (("4.0.0", False), ("4.9.2", True), ("5.0.0", False)),
    )
    v2_records = Rule(
        "records with the magic code of version 2",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.1.0", True)),
    )
    ipv6_hosts = Rule(
        "hosts of 20 bytes, by SYSFLAG",
        "CommitLog#checkMessageAndReturnSize, #isMappedFileMatchedRecover",
        (("4.0.0", False), ("4.6.0", True)),
    )
    size_fits = Rule(
        "TOTALSIZE is compared with the bytes left, blank records included",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.3.2", True)),
    )
    property_items = Rule(
        "how properties are parsed",
        "MessageDecoder#string2messageProperties",
        (("4.0.0", "split"), ("4.9.1", "scan")),
        {
            "split": "items are split at every separator, and count with two parts",
            "scan": "items are cut at their first separator",
        },
    )
    property_crc = Rule(
        "the property __CRC32#, with forceVerifyPropCRC",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", "none"), ("5.2.0", "not_zero"), ("5.3.2", "any")),
        {"none": "not known", "not_zero": "compared; 0 is refused", "any": "compared"},
    )
    duplication_info = Rule(
        "DUP_INFO is asked for with duplicationEnable",
        "CommitLog#checkMessageAndReturnSize",
        (("4.0.0", False), ("5.0.0", True)),
    )
    inner_batches = Rule(
        "INNER_NUM and INNER_BASE are read as numbers",
        "CommitLog#checkMessageAndReturnSize, #setBatchSizeIfNeeded",
        (("4.0.0", False), ("5.0.0", True)),
    )
    clean_start = Rule(
        "the segment where the scan starts after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "third"), ("5.3.2", "base"), ("5.4.0", "record")),
        {
            "third": "the third last",
            "base": "the last one that begins at or before the end of the queues",
            "record": "the last one whose whole first record is right and known to the queues (of 10)",
        },
    )
    unclean_start = Rule(
        "the segment where the scan starts after an unclean exit",
        "CommitLog#recoverAbnormally, #isMappedFileMatchedRecover",
        (("4.0.0", "head"), ("5.4.0", "record")),
        {
            "head": "the last one whose first record has a magic code and was known at the checkpoint",
            "record": "the last one whose whole first record is right and known at the checkpoint (of 10)",
        },
    )
    record_times = Rule(
        "what the first record of that segment is compared with after an unclean exit",
        "ConsumeQueueStore#isMappedFileMatchedRecover",
        (("4.0.0", "none"), ("5.4.0", "min_timestamp"), ("5.5.0", "logics_offset")),
        {
            "none": "nothing but its head",
            "min_timestamp": "3 s before the older one of physicMsgTimestamp and logicsMsgTimestamp",
            "logics_offset": "logicsPhysicalOffset, or logicsMsgTimestamp while that is 0",
        },
    )
    accelerated_start = Rule(
        "enableAcceleratedRecovery: starts that begin inside of a segment",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "none"), ("5.4.0", "rocksdb"), ("5.5.0", "unclean")),
        {"none": "none", "rocksdb": "those with RocksDB queues", "unclean": "those after an unclean exit"},
    )
    unclean_mismatch = Rule(
        "a record whose lengths do not add up, after an unclean exit",
        "CommitLog#recoverAbnormally",
        (("4.0.0", "data"), ("4.3.2", "stop")),
        {"data": "counts as a record without a topic", "stop": "ends the scan"},
    )
    offset_check = Rule(
        "checkCommitLogOffsetOnRecover exists",
        "CommitLog#recoverAbnormally",
        (("4.0.0", False), ("5.5.0", True)),
    )
    clean_dispatch = Rule(
        "records that the scan dispatches after a clean exit",
        "CommitLog#recoverNormally",
        (("4.0.0", "none"), ("5.3.2", "behind_queues")),
        {"none": "none", "behind_queues": "those that begin behind the end of the queues, not at it"},
    )
    dispatch_from = Rule(
        "what says where those records begin",
        "DefaultMessageStore#recover",
        (("4.0.0", "queues"), ("5.5.0", "all_stores")),
        {"queues": "the consume queues", "all_stores": "the consume queues, and the index and transactions in RocksDB"},
    )
    queue_cut = Rule(
        "when all queues are cut at the end of the scan",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "unclean_always"), ("4.3.2", "at_or_behind")),
        {
            "unclean_always": "after every unclean exit, and never after a clean one",
            "at_or_behind": "when they end at or behind it",
        },
    )
    queue_cut_end = Rule(
        "which end of the queues is compared with the end of the scan",
        "CommitLog#recoverNormally, #recoverAbnormally, ConsumeQueueStore#truncateDirty",
        (("4.0.0", "before_dispatch"), ("5.4.0", "after_dispatch")),
        {"before_dispatch": "that before the scan dispatched", "after_dispatch": "that after it"},
    )
    cut_first = Rule(
        "what is cut first",
        "CommitLog#recoverNormally, #recoverAbnormally",
        (("4.0.0", "log"), ("5.2.0", "queues")),
        {"log": "the log", "queues": "the queues"},
    )
    reput_from = Rule(
        "where dispatch goes on after recovery",
        "DefaultMessageStore#start",
        (("4.0.0", "log_end"), ("4.5.0", "queue_end"), ("5.0.0", "log_end")),
        {
            "log_end": "at the end of the log: nothing is left to do",
            "queue_end": "at the end of the queues, but not before the first segment",
        },
    )
    recheck = Rule(
        "recheckReputOffsetFromCq exists: dispatch goes on at the end of the queues",
        "DefaultMessageStore#doRecheckReputOffsetFromCq",
        (("4.0.0", False), ("5.0.0", True)),
    )
    schedule_tags = Rule(
        "the tags code of delayed messages that the scan dispatches",
        "ScheduleMessageService#load, DefaultMessageStore#load",
        (("4.0.0", "deliver_time"), ("4.9.2", "plain"), ("5.0.0", "deliver_time")),
        {"deliver_time": "when they are due", "plain": "the hash of their tags: the delay levels are not read yet"},
    )
    confirm_offset = Rule(
        "confirmOffset at the start of recovery",
        "DefaultMessageStore#load, CommitLog#getConfirmOffset",
        (("4.0.0", "none"), ("5.1.1", "checkpoint")),
        {"none": "-1: not stored", "checkpoint": "confirmPhyOffset of the checkpoint"},
    )
    confirmed_dispatch = Rule(
        "records dispatched after an unclean exit, with duplicationEnable (5.1.1+: and in controller mode)",
        "CommitLog#recoverAbnormally",
        (("4.0.0", "begin"), ("5.1.1", "end")),
        {"begin": "those that begin before confirmOffset", "end": "those that end at or before confirmOffset"},
    )
    controller_master = Rule(
        "how far a master takes its log for confirmed in controller mode",
        "CommitLog#getConfirmOffset",
        (("4.0.0", "none"), ("5.1.1", "computed"), ("5.2.0", "log_end")),
        {
            "none": "as without controller mode",
            "computed": "as the checkpoint says; without that it asks its copies, before it knows any: the start fails",
            "log_end": "all of it, unless allAckInSyncStateSet is on",
        },
    )
    ha_offsets = Rule(
        "when the records behind confirmOffset are read for their queue offsets: a V2 record there refuses the start",
        "ConsumeQueueStore#recoverOffsetTable, #compensateForHA",
        (("4.0.0", "none"), ("5.0.0", "duplication"), ("5.2.0", "controller")),
        {
            "none": "never",
            "duplication": "with duplicationEnable",
            "controller": "with duplicationEnable and in controller mode",
        },
    )
    slave_refusal = Rule(
        "a refused record that dispatch meets on a slave",
        "DefaultMessageStore.ReputMessageService#doReput",
        (("4.0.0", "retry"), ("4.5.0", "skip"), ("4.5.1", "retry")),
        {
            "retry": "dispatch stays there (4.5.1 to 4.9.8: the start does not end)",
            "skip": "as on a master: the rest of the segment gets no units",
        },
    )
    rocksdb_queues = Rule(
        "queues in RocksDB (storeType=defaultRocksDB): which of them a cut looks at",
        "RocksDBConsumeQueueOffsetTable#truncateDirty",
        (("4.0.0", "absent"), ("5.2.0", "topics"), ("5.3.2", "entries")),
        {
            "absent": "the setting is not known",
            "topics": "the write queues of the topics in topics.json; one that lies behind the end refuses the start",
            "entries": "all; one that lies behind the end altogether stays as it is",
        },
    )
    double_write = Rule(
        "which queues a start asks, with rocksdbCQDoubleWriteEnable",
        "DefaultMessageStore#enableRocksdbCQWrite, CombineConsumeQueueStore",
        (("4.0.0", "absent"), ("5.3.1", "files"), ("5.4.0", "both")),
        {
            "absent": "the setting is not known",
            "files": "those in files; those in RocksDB only follow",
            "both": "those in files and those in RocksDB, and it brings them to the same offsets",
        },
    )
    ledger_scan = Rule(
        "a DLedger log after an unclean exit: records that are scanned and dispatched, and how far the queues are cut",
        "DLedgerCommitLog#recover, #dledgerRecoverAbnormally",
        (("4.0.0", "absent"), ("4.5.0", "none"), ("5.2.0", "duplication"), ("5.3.0", "records")),
        {
            "absent": "DLedger is not known: the broker starts with an empty log",
            "none": "none: the queues are cut at the end of the entries",
            "duplication": "those with DUP_INFO; the queues are cut where they end, 48 bytes too early for each",
            "records": "all valid ones; the queues are cut where they end, 48 bytes too early for each",
        },
    )
