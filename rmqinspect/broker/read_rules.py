"""What consumers are answered, by release: tables of `broker.rules` for pulls, their refusals, clients and times."""

from rmqinspect.broker.rules import Rule, RuleSet


class PullRules(RuleSet):
    """What a consumer is answered that pulls: `broker.pull`."""

    to_zero = Rule(
        "an offset far beyond the end of a queue whose minimum is 0 (OFFSET_OVERFLOW_BADLY) leads to 0",
        "DefaultMessageStore#getMessage",
        (("4.0.0", True), ("4.9.4", False)),
        {True: "yes", False: "no: to the maximum"},
    )
    scanned = Rule(
        "how many queue offsets are scanned, at least",
        "DefaultMessageStore#getMessage",
        (("4.0.0", "bytes"), ("5.0.0", "units + 1"), ("5.1.0", "bytes + 1"), ("5.3.3", "bytes")),
        {
            "bytes": "16,000 bytes of units, rounded up",
            "bytes + 1": "16,000 bytes of units, rounded down, and one more",
            "units + 1": "16,000 and one",
        },
    )
    passes_when_full = Rule(
        "units behind an unreadable record are passed over even if no more message would fit",
        "DefaultMessageStore#getMessage",
        (("4.0.0", True), ("5.0.0", False)),
    )
    reads_count = Rule(
        "of a queue in RocksDB no more units are read than messages are asked for",
        "RocksDBConsumeQueue#iterateFrom",
        (("4.0.0", True), ("5.5.0", False)),
    )
    one_less = Rule(
        "of more than one message asked for, one is not given",
        "DefaultMessageStore#isTheBatchFull",
        (("4.0.0", True), ("4.2.0", False)),
    )


class RefusalRules(RuleSet):
    """What a pull is refused with before a broker looks into the queue: `broker.refusals`."""

    illegal_queue = Rule(
        "the response code for a queue beyond readQueueNums",
        "PullMessageProcessor#processRequest",
        (("4.0.0", "SYSTEM_ERROR"), ("5.3.2", "INVALID_PARAMETER")),
        {"SYSTEM_ERROR": "SYSTEM_ERROR", "INVALID_PARAMETER": "INVALID_PARAMETER"},
    )
    group_forbidden = Rule(
        "a group may be forbidden to read a topic: forbiddenTable of subscriptionGroup.json",
        "PullMessageProcessor#processRequest, SubscriptionGroupManager#getForbidden",
        (("4.0.0", False), ("5.0.0", True)),
    )


class ClientRules(RuleSet):
    """How a client of the same release reads the bytes of a pull: `broker.client`."""

    magic = Rule(
        "what a record's magic code may be",
        "MessageDecoder#decode, MessageVersion#valueOfMagicCode",
        (("4.0.0", "any"), ("5.0.0", "v1"), ("5.1.0", "v1 or v2")),
        {"any": "it is not looked at", "v1": "that of version 1", "v1 or v2": "that of version 1 or 2"},
    )
    ipv6_hosts = Rule(
        "hosts of 20 bytes, by SYSFLAG",
        "MessageDecoder#decode",
        (("4.0.0", False), ("4.6.0", True)),
    )
    compressions = Rule(
        "a compressed body may be other than zlib, by SYSFLAG",
        "MessageDecoder#decode, CompressorFactory",
        (("4.0.0", False), ("4.9.4", True)),
    )


class TimeRules(RuleSet):
    """Which queue offset is named for a time: `broker.offset_by_time`."""

    within = Rule(
        "the result is moved into [minimum, maximum], but not for RocksDB",
        "ConsumeQueue#getOffsetInQueueByTime",
        (("4.0.0", False), ("5.0.0", True)),
    )
    by_change = Rule(
        "files are chosen by the time of their last change",
        "MappedFileQueue#getConsumeQueueMappedFileByTime",
        (("4.0.0", True), ("5.1.1", False)),
    )
    boundary = Rule(
        "a boundary can be named",
        "ConsumeQueue#getOffsetInQueueByTime",
        (("4.0.0", False), ("5.1.4", True)),
        {True: "yes", False: "no: lower is meant"},
    )
    batch_boundary = Rule(
        "the boundary counts within a batch queue",
        "BatchConsumeQueue#getOffsetInQueueByTime",
        (("4.0.0", False), ("5.1.4", True)),
    )
    rocksdb = Rule(
        "how a queue in RocksDB is searched",
        "RocksDBConsumeQueueTable#binarySearchInCQByTime",
        (("4.0.0", "nearest"), ("5.3.0", "bounded"), ("5.3.2", "ends")),
        {
            "nearest": "for the nearest message",
            "bounded": "by the search alone",
            "ends": "times before and behind all messages first",
        },
    )
