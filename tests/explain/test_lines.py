"""Lines that people asked about in public: what is said of each is what that line says, and nothing else.

The lines are of public threads, with addresses and names changed. Each has a headline, words that the answer has to
hold, and words that it must not hold, because they are true of another line of the same method only.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.explain.log import Log
from rmqinspect.explain.log_values import LOG_DESCRIBE
from rmqinspect.explain.lookup import DEPENDS, HARMLESS, SERIOUS, explain
from rmqinspect.explain.start_words import headline
from tests.support.command import Run, runner

# (line, beginning of the headline, alarm, words said, words not said)
Case = tuple[str, str, str, Sequence[str], Sequence[str]]

CASES: tuple[Case, ...] = (
    (
        "2020-03-18 16:38:06 WARN ScheduleMessageTimerThread - Offset not matched. Request offset: 509548460, "
        "firstOffset: 0, lastOffset: 6000000, mappedFileSize: 6000000, mappedFiles count: 1",
        "Offset not matched",
        DEPENDS,
        ["queue offset 25 477 423", "delay levels", "behind the last file"],
        ["with segments of 1 GiB"],
    ),
    (
        "2021-11-17 20:16:12 WARN PullMessageThread_21 - Pop initial offset, because store is no correct, "
        "pop-1@consumer@3, 5384577->null",
        "Pop initial offset",
        DEPENDS,
        ["pop-1@consumer@3", "5384577"],
        ["no need to truncate"],
    ),
    (
        "WARN PullMessageThread_21 - Pop initial offset, because store is no correct, t@g@0, 900->0",
        "Pop initial offset",
        DEPENDS,
        ["everything that the queue still has is delivered again"],
        [],
    ),
    (
        "2020-07-19 10:45:46 INFO PullMessageThread_11 - the request offset: 30266 over flow badly, broker max offset: "
        "30265, consumer: /consumer01",
        "the request offset: {} over flow badly",
        DEPENDS,
        ["1 beyond the end of the queue", "4.0.0 to 4.9.3"],
        ["below the minimum"],
    ),
    (
        "INFO PullMessageThread_11 - the request offset: 500 over flow badly, fix to 40, broker max offset: 40, "
        "consumer: /10.0.0.1",
        "the request offset: {} over flow badly",
        DEPENDS,
        ["460 beyond the end", "fix to 40"],
        [],
    ),
    (
        "2020-07-19 10:45:46 WARN PullMessageThread_11 - PULL_OFFSET_MOVED:correction offset. topic=example_topic, "
        "groupId=example_group_info, requestOffset=30266, newOffset=0, suggestBrokerId=0",
        "PULL_OFFSET_MOVED:correction",
        DEPENDS,
        ["everything that the queue still has is delivered again"],
        ["none correction"],
    ),
    (
        "the request offset: 14568 too small, broker min offset: 32831, consumer: /192.0.2.1",
        "the request offset too small",
        DEPENDS,
        ["18 263 messages missed"],
        ["beyond the end"],
    ),
    (
        "2026-01-08 10:09:25 INFO BrokerControllerScheduledThread1 - delete topic config OK, topic: TopicConfig "
        "[topicName=orders, readQueueNums=8, writeQueueNums=8, perm=RW-]",
        "delete topic config OK",
        DEPENDS,
        ["takes over the master's settings", "topic orders", "put back at once"],
        ["a command of an administrator"],
    ),
    (
        "INFO AdminBrokerThread_2 - delete topic config OK, topic: TopicConfig [topicName=orders, readQueueNums=8]",
        "delete topic config OK",
        DEPENDS,
        ["thread AdminBrokerThread_2; a command of an administrator"],
        ["takes over the master's settings"],
    ),
    (
        "2025-11-29 06:34:08 INFO BrokerControllerScheduledThread1 - delete subscription group OK, subscription "
        "group:SubscriptionGroupConfig [groupName=g1]",
        "delete subscription group OK",
        DEPENDS,
        ["group g1", "takes over the master's settings"],
        [],
    ),
    (
        "2025-08-17 19:54:37 ERROR WriteSocketService - Failed to find epochEntry with epoch 13 when build msg header",
        "Failed to find epochEntry",
        SERIOUS,
        ["epoch 13", "sends nothing to this slave"],
        ["epoch file could not be read"],
    ),
    (
        "2020-06-17 10:45:17 INFO AdminBrokerThread_8 - delete file[REF:0] /d/store/consumequeue/"
        "RMQ_SYS_TRANS_OP_HALF_TOPIC/0/00000000001062000000 OK, W:6000000 M:6000000, 8",
        "delete file[REF",
        DEPENDS,
        ["thread AdminBrokerThread_8; a command of an administrator"],
        ["On a running broker: retention"],
    ),
    (
        "INFO StoreScheduledThread1 - delete file[REF:0] /d/store/commitlog/00000000001073741824 OK, W:1 M:1, 8",
        "delete file[REF",
        DEPENDS,
        ["thread StoreScheduledThread1; retention"],
        [],
    ),
    (
        "2020-08-25 17:19:20 WARN TransactionalMessageCheckService - The miss op offset=1 in queue=MessageQueue "
        "[topic=RMQ_SYS_TRANS_OP_HALF_TOPIC, brokerName=b, queueId=0] is illegal, pullResult=PullResult "
        "[pullStatus=OFFSET_ILLEGAL, nextBeginOffset=1, minOffset=0, maxOffset=1, msgFoundList=0]",
        "The miss op offset",
        DEPENDS,
        ["op offset 1", "nextBeginOffset 1", "can be asked about again"],
        ["never asked about"],
    ),
    (
        "2020-08-25 17:19:20 INFO TransactionalMessageCheckService - Illegal offset, the miss offset=1 in=MessageQueue "
        "[topic=RMQ_SYS_TRANS_HALF_TOPIC, brokerName=b, queueId=0], continue check=0, pull result=PullResult "
        "[pullStatus=OFFSET_ILLEGAL, nextBeginOffset=1, minOffset=0, maxOffset=1, msgFoundList=0]",
        "Illegal offset, the miss offset",
        DEPENDS,
        ["RMQ_SYS_TRANS_HALF_TOPIC", "never asked about"],
        ["what was committed or rolled back"],
    ),
    (
        "2021-08-24 20:20:41 WARN EndTransactionThread_1 - The producer[192.0.2.1:54888] end transaction in sending "
        "message,  and it's pending status.RequestHeader: EndTransactionRequestHeader{producerGroup='g', "
        "tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=0} Remark: ",
        "The producer[{}] end transaction in sending message,  and it's pending",
        DEPENDS,
        ["neither commit nor rollback"],
        ["took its half message back"],
    ),
    (
        "WARN EndTransactionThread_1 - The producer[192.0.2.1:5] end transaction in sending message, rollback the "
        "message.RequestHeader: x Remark: ",
        "The producer[{}] end transaction in sending message, rollback",
        HARMLESS,
        ["took its half message back"],
        ["neither commit nor rollback"],
    ),
    (
        "WARN EndTransactionThread_1 - Check producer[192.0.2.1:5] transaction state, but it's pending status."
        "RequestHeader: x Remark: null",
        "Check producer[{}] transaction state, but",
        DEPENDS,
        ["asked again, by default 15 times"],
        ["It is ended"],
    ),
    (
        "2023-12-12 00:25:46 ERROR TimerEnqueueGetService - Unknown exception in enqueuing",
        "Unknown exception in enqueuing",
        SERIOUS,
        ["again and again", "late, not lost"],
        ["never delivered"],
    ),
    (
        "2025-12-23 05:08:37 ERROR TimerScheduledThread1 - [CheckAndReviseMetrics]Exception occurred when scanning "
        "TimerLog.",
        "[CheckAndReviseMetrics]",
        HARMLESS,
        ["no message is lost or late by it"],
        ["force data to disk"],
    ),
    (
        "2024-08-01 10:00:00 ERROR main - postLoad Failed. /disk2/rocketmq_store/config/topics",
        "postLoad Failed",
        SERIOUS,
        ["the broker does not start", "/disk2/rocketmq_store/config/topics"],
        [],
    ),
    (
        "org.rocksdb.RocksDBException: While lock file: /disk2/rocketmq_store/config/topics/LOCK: Resource temporarily "
        "unavailable",
        "org.rocksdb.RocksDBException: While lock file",
        SERIOUS,
        ["another process has this database open", "Never delete LOCK"],
        ["is damaged, or files"],
    ),
    (
        "org.rocksdb.RocksDBException: Corruption: block checksum mismatch",
        "org.rocksdb.RocksDBException: Corruption",
        SERIOUS,
        ["damaged", "rmqinspect rebuild STORE"],
        ["another process"],
    ),
    (
        "org.rocksdb.RocksDBException: While open a file for random read: /s/consumequeue_r/000012.sst: No "
        "such file or "
        "directory",
        "org.rocksdb.RocksDBException: … No such file",
        SERIOUS,
        ["missing"],
        ["another process"],
    ),
    (
        "2018-10-09 01:14:50 WARN ReputMessageService - [BUG]put commit log position info to T:304 "
        "265047020213 failed, "
        "retry 2 times",
        "[BUG]put commit log position info",
        SERIOUS,
        ["265 047 020 213"],
        [],
    ),
    (
        "2018-10-09 01:14:51 ERROR ReputMessageService - map file /d/store/consumequeue/T/304/00000000000040200000 "
        "Failed. ",
        "map file {} Failed.",
        SERIOUS,
        ["vm.max_map_count", "/d/store/consumequeue/T/304/00000000000040200000"],
        [],
    ),
    (
        "2021-02-07 17:11:00 ERROR DiskCheckScheduledThread1 - Error when measuring disk space usage, file doesn't "
        "exist on this path: /d/store/commitlog",
        "Error when measuring disk space usage",
        DEPENDS,
        ["folder /d/store/commitlog", "storePathCommitLog", "not mounted"],
        ["force data to disk"],
    ),
    (
        "18-05-31 11:04:56 INFO BrokerControllerScheduledThread1 - slave fall behind master, how much, "
        "-8245006252570743168 bytes",
        "Slave fall behind master",
        DEPENDS,
        ["beyond the end of the master's log"],
        ["the whole length of the log means that no slave is connected"],
    ),
    (
        "INFO BrokerControllerScheduledThread1 - CommitLog: slave fall behind master 4096bytes",
        "Slave fall behind master",
        DEPENDS,
        ["4 096 bytes", "5.0.0 to 5.5.0; logged only while a slave is connected"],
        ["below 0. The slave has"],
    ),
    (
        "ERROR HAClient - master pushed offset not equal the max phy offset in slave, SLAVE: 10674758888969 MASTER: "
        "10674758921737",
        "master pushed offset not equal",
        SERIOUS,
        ["10 674 758 888 969"],
        [],
    ),
    ("java.lang.RuntimeException: Lock failed,MQ already started", "Lock failed", SERIOUS, ["another broker"], []),
    (
        "MQClientException: CODE: 1  DESC: create mapped file failed, server is busy or broken. BROKER: "
        "192.0.2.1:10911",
        "CODE: 1 DESC: create mapped file failed",
        SERIOUS,
        ["refused and not stored", "5 s"],
        ["clientAddr"],
    ),
    (
        "CODE: 14  DESC: service not available now. It may be caused by one of the following reasons: the "
        "broker's disk "
        "is full [CL:  0.93 CQ:  0.89 INDEX:  0.90], messages are put to the slave, message store has been shut down, "
        "etc. BROKER: 192.0.2.1:10911",
        "CODE: 14 DESC: service not available now",
        DEPENDS,
        ["93 %, above", "this disk is full", "89 %, not above", "90 %, at diskSpaceWarningLevelRatio"],
        [],
    ),
    (
        "the broker's disk is full [CL: 0.31 CQ: 0.31 INDEX: 0.31], messages are put to the slave, message store has "
        "been shut down, etc.",
        "CODE: 14 DESC: service not available now",
        DEPENDS,
        ["31 %, not above", "this disk is not the reason"],
        ["this disk is full"],
    ),
    (
        "2022-03-28 08:54:08 INFO StoreScheduledThread1 - physic disk maybe full soon, so reclaim space, 0.82, "
        "storePathPhysic=/s/store/commitlog",
        "physic disk maybe full soon, so reclaim space",
        DEPENDS,
        ["82 %", "Messages are still taken", "only expired files are deleted"],
        ["takes no messages", "so mark disk full"],
    ),
    (
        "INFO StoreScheduledThread1 - consumeQueue disk maybe full soon, so reclaim space, 0.87",
        "physic disk maybe full soon, so reclaim space",
        DEPENDS,
        ["87 %", "that have not expired are deleted, too"],
        ["only expired files are deleted", "so mark disk full"],
    ),
    (
        "INFO StoreScheduledThread1 - commitLog disk maybe full soon, so reclaim space, -1.0",
        "physic disk maybe full soon, so reclaim space",
        DEPENDS,
        ["the folder is not there"],
        [],
    ),
    (
        "ERROR StoreScheduledThread1 - logics disk maybe full soon 0.93, so mark disk full",
        "physic disk maybe full soon {}, so mark disk full",
        SERIOUS,
        ["takes no messages", "93 %"],
        ["Messages are still taken"],
    ),
    (
        "ERROR DiskCheckScheduledThread1 - physic disk of commitLog maybe full soon, used 0.91, so mark disk full",
        "physic disk maybe full soon {}, so mark disk full",
        SERIOUS,
        ["takes no messages", "91 %"],
        [],
    ),
    (
        "2022-03-28 08:54:08 INFO StoreScheduledThread1 - begin to delete before 72 hours file. timeup: "
        "false spacefull: "
        "true manualDeleteFileSeveralTimes: 0 cleanAtOnce: false",
        "begin to delete before",
        DEPENDS,
        ["hours 72", "spacefull true", "cleanAtOnce false", "timeup false"],
        [],
    ),
    (
        "INFO StoreScheduledThread1 - begin to delete before 48 hours file. isTimeUp: true "
        "isUsageExceedsThreshold: false "
        "manualDeleteFileSeveralTimes: 0 cleanAtOnce: false deleteFileBatchMax: 10",
        "begin to delete before",
        DEPENDS,
        ["timeup true", "spacefull false"],
        [],
    ),
    (
        "disk space will be full soon, but delete file failed.",
        "disk space will be full soon, but delete file failed",
        DEPENDS,
        ["none is older than fileReservedTime", "Messages are taken until"],
        ["takes no messages", "so mark disk full"],
    ),
    (
        "2018-09-11 16:37:55.950 WARN ShutdownHook - shutdown ReputMessageService, but commitlog have not finish to be "
        "dispatched, CL: 80549937152 reputFromOffset: 80549937024",
        "shutdown ReputMessageService",
        DEPENDS,
        ["80 549 937 024"],
        [],
    ),
    (
        "2018-09-11 16:37:55.964 WARN ShutdownHook - the store may be wrong, so shutdown abnormally, and "
        "keep abort file.",
        "the store may be wrong",
        DEPENDS,
        ["the abort file stays"],
        [],
    ),
    (
        "selectMapedBuffer request pos invalid, request pos: 878, size: 877, fileFromOffset: 1299814809600, "
        "wrotePostion: 905",
        "selectMappedBuffer request pos invalid",
        DEPENDS,
        ["request pos 878"],
        [],
    ),
    (
        "2024-12-14 12:06:29 INFO QuorumAckChecker-D0 - [D0][CANDIDATE] term=2 ledgerBegin=137492590605 "
        "ledgerEnd=137494017099 committed=137494017083 watermarks={}",
        "[{}][{}] term={} ledgerBegin",
        DEPENDS,
        ["role CANDIDATE", "no majority has confirmed: 16"],
        [],
    ),
    (
        "2020-02-18 19:58:00 WARN AdminBrokerThread_6 - matched, but hold failed, request pos=0 "
        "fileFromOffset=2244120412160",
        "matched, but hold failed",
        HARMLESS,
        [],
        ["lost"],
    ),
    (
        "java.lang.NullPointerException: Cannot invoke "
        '"org.apache.rocketmq.store.MessageStore.getMessageStoreConfig()" '
        'because the return value of "org.apache.rocketmq.broker.BrokerController.getMessageStore()" is null',
        "java.lang.NullPointerException",
        SERIOUS,
        ["refused before it had made one", "load … Failed"],
        ["boot success"],
    ),
    (
        "at org.apache.rocketmq.broker.schedule.ScheduleMessageService.configFilePath(ScheduleMessageService.java:272)",
        "java.lang.NullPointerException",
        SERIOUS,
        ["refused before it had made one"],
        [],
    ),
    (
        "2021-10-29 15:51:14 WARN PopReviveService_0 - offset illegal. GetMessageStatus=OFFSET_OVERFLOW_ONE, "
        "topic=rmq_sys_REVIVE_LOG_cluster, groupId=CID_RMQ_SYS_REVIVE_GROUP, requestOffset=142766",
        "offset illegal. GetMessageStatus",
        DEPENDS,
        ["exactly at the end of the queue: harmless"],
        ["beyond the end of the queue: the queue lost its end"],
    ),
    (
        "WARN PopReviveService_0 - offset illegal. GetMessageStatus=OFFSET_OVERFLOW_BADLY, topic=rmq_sys_REVIVE_LOG_c, "
        "groupId=CID_RMQ_SYS_REVIVE_GROUP, requestOffset=9",
        "offset illegal. GetMessageStatus",
        DEPENDS,
        ["beyond the end of the queue: the queue lost its end"],
        ["exactly at the end of the queue: harmless"],
    ),
    (
        "java.lang.InternalError: a fault occurred in a recent unsafe memory access operation in compiled Java code",
        "java.lang.InternalError",
        SERIOUS,
        ["the disk is full under a file that is still sparse"],
        ["OutOfMemoryError"],
    ),
    (
        "SIGBUS (0x7) at pc=0x00007ff481c70304, pid=24249, tid=24426",
        "SIGBUS (0x7)",
        SERIOUS,
        ["the disk was full under a file that is still sparse", "acknowledged messages"],
        [],
    ),
    ("java.lang.OutOfMemoryError: Map failed", "Map failed", SERIOUS, ["vm.max_map_count"], ["huge total size"]),
    (
        "CODE: 208  DESC: query message by key finished, but no message.",
        "CODE: 208",
        DEPENDS,
        ["The message may be in the log"],
        [],
    ),
    (
        "CODE: 17  DESC: topic[xxx] not exist, apply first please!",
        "CODE: 17 DESC: topic[{}] not exist",
        DEPENDS,
        ["topic xxx", "the records of a topic that was deleted"],
        [],
    ),
    (
        "The topic[RMQ_SYS_TRACE_TOPIC] not matched route info",
        "The topic[{}] not matched route info",
        DEPENDS,
        ["traces are not switched on"],
        [],
    ),
    (
        "AdminBrokerProcessor getTimerCheckPoint: checkpoint is null",
        "AdminBrokerProcessor#getTimerCheckPoint",
        HARMLESS,
        ["timerWheelEnable is off"],
        [],
    ),
    (
        "2023-03-23 21:14:28 ERROR main - [D0][RAFT]Recover data file failed, code=414,name=DISK_ERROR,desc=] pos 0 != "
        "222296456325",
        "code=414,name=DISK_ERROR",
        SERIOUS,
        ["222 296 456 325", "zeros lie where"],
        ["Normal without an exception"],
    ),
    (
        "schedule CQ offset invalid. offset=25477423, cqMinOffset=0, queueId=3",
        "schedule CQ offset invalid",
        DEPENDS,
        ["nothing of the level is delivered until", "what waited beyond the new place is skipped"],
        ["gone before they were delivered together"],
    ),
    (
        "ERROR main - schedule CQ offset invalid. offset=52, cqMaxOffset=40, queueId=2",
        "schedule CQ offset invalid",
        DEPENDS,
        ["12 beyond the end of the queue"],
        [],
    ),
    (
        "ERROR main - correct delay offset [ delayLevel 3 ] from 52 to 40",
        "correct delay offset",
        DEPENDS,
        ["from 52", "to 40", "is not delivered"],
        [],
    ),
    (
        "system busy, start flow control for a while",
        "system busy",
        DEPENDS,
        ["nothing was stored"],
        ["TIMEOUT_CLEAN_QUEUE"],
    ),
    (
        "2016-11-02 12:24:29 WARN PullMessageThread_11 - PULL_OFFSET_MOVED:none correction. topic=T, groupId=CID, "
        "requestOffset=101254, suggestBrokerId=0",
        "PULL_OFFSET_MOVED:none correction",
        HARMLESS,
        ["is not corrected", "the broker is a slave"],
        ["is redirected"],
    ),
    (
        "2019-08-18 21:15:04.558 INFO main - Compute logical min offset: 11674546, topic: T, queueId: 7",
        "Compute logical min offset",
        HARMLESS,
        ["minimum 11674546"],
        ["lost"],
    ),
    (
        "2025-05-23 10:00:00 INFO main - recover current consume queue file over,  /d/store/consumequeue/T/0/"
        "00000000000000000000 0 0 0",
        "recover current consume queue",
        HARMLESS,
        ["first unused entry"],
        ["its last file is full"],
    ),
    (
        "INFO main - recover last consume queue file over, last mapped file /s/consumequeue/T/0/00000000000000000000",
        "recover last consume queue file over",
        HARMLESS,
        ["its last file is full"],
        ["first unused entry"],
    ),
    (
        "2018-10-16 14:14:58 INFO main - load /data/rocketmq/store/config/consumerOffset.json OK",
        "load {}.json OK",
        HARMLESS,
        ["a file of config"],
        ["a timer log"],
    ),
    (
        "2024-10-23 10:00:00 WARN main - /data2/store/commitlog/00000000001073741824 length not matched message store "
        "config value, please check it manually",
        "{} length not matched",
        SERIOUS,
        ["file /data2/store/commitlog/00000000001073741824"],
        ["length 00000000001073741824"],
    ),
    (
        "WARN main - /s/commitlog/00000000001073741824\t512 length not matched message store config value, ignore it",
        "{} length not matched",
        SERIOUS,
        ["file /s/commitlog/00000000001073741824", "length 512"],
        [],
    ),
    (
        "message store is not readable, so getMessage is forbidden 1",
        "message store is not readable",
        SERIOUS,
        ["no consumer gets a message"],
        ["takes no messages"],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=[case[0][-60:] for case in CASES])
def test_a_line_is_explained_by_what_it_says(case: Case) -> None:
    line, name, alarm, said, not_said = case
    (found,) = explain(line)
    text = " ".join([found.meaning, *("; ".join(filter(None, pair)) for pair in (*found.values, *found.eras))])
    text += " " + " ".join(found.next)
    assert found.name.startswith(name)
    assert found.where.startswith(alarm)
    assert [words for words in said if words not in text] == []
    assert [words for words in not_said if words in f"{found.name} {text}"] == []


@pytest.mark.parametrize(
    ("describe", "text", "words"),
    [
        ("bytes_behind", "0", "nothing"),
        ("thread", "broker-aAdminBrokerThread_3", "a command of an administrator, or of a tool"),
        ("thread", "SomethingElse_1", ""),
        ("get_status", "NO_SUCH_STATUS", ""),
    ],
)
def test_a_value_of_a_line_is_described(describe: str, text: str, words: str) -> None:
    assert LOG_DESCRIBE[describe](text) == words


def test_a_share_of_a_disk_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a share"):
        LOG_DESCRIBE["disk_used"]("1e309")


# --- a start that only broker.log tells of ---------------------------------------------------------

CONFIG = [
    f"2024-03-01 10:00:0{number} INFO main - load /data/store/config/{name}.json OK"
    for number, name in enumerate(("topics", "consumerOffset", "subscriptionGroup", "consumerFilter"))
]
STOPPED = (
    "2024-03-01 10:00:05 INFO main - Try to shutdown service thread:{}AllocateMappedFileService started:true "
    "lastThread:Thread[AllocateMappedFileService,5,main]"
)
BOOTED = "2024-03-01 10:00:09 INFO main - The broker[b, 10.0.0.1:10911] boot success. serializeType=JSON"


def starts(*rows: str) -> list[str]:
    """Return the headlines of the starts that these lines tell of."""
    log = Log()
    for row in rows:
        log.add(row)
    return [headline(start) for start in log.starts.found]


@pytest.mark.parametrize("container", ["", "broker-a"])
def test_a_start_that_goes_from_config_to_shutdown_was_refused(container: str) -> None:
    (told,) = starts(*CONFIG, STOPPED.format(container))
    assert told.startswith("the broker refused to start: the load of the store returned false")
    assert "store.log" in told


@pytest.mark.parametrize(
    "rows",
    [
        (*CONFIG, BOOTED, STOPPED.format("")),  # an orderly shutdown
        (*CONFIG, "INFO ShutdownHook - Shutdown hook was invoked, 1", STOPPED.format("")),  # before it had booted
        (STOPPED.format(""),),  # the log begins in the middle of a shutdown
        (*CONFIG, STOPPED.format("").replace("AllocateMappedFileService", "HAClient")),  # another part, at run time
        (*CONFIG[1:], STOPPED.format("")),  # files that are loaded at run time, too
        (*CONFIG, BOOTED),
    ],
    ids=["orderly", "hook", "middle", "other part", "other files", "started"],
)
def test_no_other_start_was_refused(rows: Sequence[str]) -> None:
    assert starts(*rows) == []


def test_a_refusal_that_store_log_tells_is_told_once() -> None:
    rows = ("INFO main - last shutdown normally", "INFO main - load commit log Failed")
    assert starts(*CONFIG, *rows, STOPPED.format("")) == [
        "the broker refused to start: INFO main - load commit log Failed"
    ]
    # Where a line of the store is there but none says why, the part that stops is the only sign.
    (told,) = starts(*CONFIG, rows[0], STOPPED.format(""))
    assert told.startswith("the broker refused to start: ")


# --- logs and names ---------------------------------------------------------------------------------

run = runner("explain")


@pytest.mark.parametrize("name", ["timer.log", "commit.log", "abort", "timerlog", "TAGS", "CL-MAGIC"])
def test_a_file_that_exists_is_read_whatever_its_name(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("2024-03-01 10:00:00 INFO main - load commit log Failed\n")
    status, out, _ = run(name)
    assert status == ExitStatus.DONE
    assert re.search(r"\nlog +" + re.escape(name) + ": 1 line", out)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("abort", b"4711", "created when the store starts"),  # of 5.x: the process id
        ("abort", b"", "created when the store starts"),
        ("checkpoint", bytes(4096), "how far the log, the queues and the index were flushed"),
        ("topics.json", b'{"topicConfigTable":{}}', "every topic with its queues"),
    ],
)
def test_a_file_of_the_store_that_one_is_in_is_a_name(
    name: str, content: bytes, words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert words in " ".join(run(name)[1].split())


def test_a_name_without_a_file_is_a_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "folder of the timer log" in " ".join(run("timer.log")[1].split())
