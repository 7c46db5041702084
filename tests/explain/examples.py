"""A line for each template of log_lines.toml."""

from rmqinspect.explain.lookup import LOG_LINES

# From the oracle's stores and from public reports; for lines with a pattern, one that it matches.
_GIVEN = {
    "found a illegal magic code 0x{}": "WARN ReputMessageService - found a illegal magic code 0x696e4d73",
    "CRC check failed. bodyCRC={}, "
    "currentCRC={}": "WARN Store CRC check failed. bodyCRC=949938881, currentCRC=600743239",
    "CommitLog#checkAndDispatchMessage: failed to check message CRC, expected CRC={}, actual CRC={}": (
        "WARN Store CommitLog#checkAndDispatchMessage: failed to check message CRC, expected CRC=92827359, actual "
        "CRC=1128276644"
    ),
    "CommitLog#checkAndDispatchMessage: failed to check message CRC, not found CRC in properties": (
        "WARN Store CommitLog#checkAndDispatchMessage: failed to check message CRC, not found CRC in properties"
    ),
    "[BUG]read total count not equals msg total size. totalSize={}, readTotalCount={}, bodyLen={}, topicLen={}, "
    "propertiesLength={}": (
        "ERROR Store [BUG]read total count not equals msg total size. totalSize=1542, readTotalCount=1485, "
        "bodyLen=1115, topicLen=190, propertiesLength=88"
    ),
    "[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: {}": (
        "ERROR Store [BUG]dispatch message to consume queue error, COMMITLOG OFFSET: 30769"
    ),
    "checkMessageAndReturnSize failed, may can not dispatch": (
        "ERROR Store checkMessageAndReturnSize failed, may can not dispatch"
    ),
    "DupInfo in properties check failed. dupInfo={}": "WARN Store DupInfo in properties check failed. dupInfo=null",
    "last shutdown {}": "INFO Store last shutdown abnormally, store path root dir: <root>",
    "store checkpoint file {} "
    "{}": "INFO Store store checkpoint file physicMsgTimestamp 1805250920000, 20270317023520000",
    "find check timestamp, {} "
    "{}": "2026-02-24 09:38:29 INFO main - find check timestamp, 1795250934004 20261121084854004",
    "recover from this mapped file "
    "{}": "INFO Store recover from this mapped file <root>/commitlog/00000000000000196608",
    "recover next physics file, {}": "INFO Store recover next physics file, <root>/commitlog/00000000000000131072",
    "recover physics file end, {} pos={}": (
        "INFO Store recover physics file end, <root>/commitlog/00000000000000196608 pos=21098"
    ),
    "recover last 3 physics file over, last mapped file {}": (
        "INFO Store recover last 3 physics file over, last mapped file <root>/commitlog/00000000000000131072"
    ),
    "found a half message at {}, it will be truncated.": "WARN found a half message at 225112, it will be truncated.",
    "found illegal commitlog offset {} in {}, current pos={}, it will be truncated.": (
        "WARN Store found illegal commitlog offset 8590151741 in <root>/commitlog/00000000000000196608, current "
        "pos=217149, it will be truncated."
    ),
    "maxPhyOffsetOfConsumeQueue({}) >= processOffset({}), truncate dirty logic files": (
        "WARN Store maxPhyOffsetOfConsumeQueue(217698) >= processOffset(97187), truncate dirty logic files"
    ),
    "The commitlog files are deleted, and delete the consume queue files": (
        "WARN Store The commitlog files are deleted, and delete the consume queue files"
    ),
    "on recover, destroy a logic mapped file {}": (
        "INFO Store on recover, destroy a logic mapped file <root>/consumequeue/orders/0/00000000000000000400"
    ),
    "recover last consume queue file over, last mapped file {}": (
        "INFO Store recover last consume queue file over, last mapped file "
        "<root>/consumequeue/TopicA/1/00000000000000000000"
    ),
    "delete file[REF:{}] {} OK, W:{} M:{}, {}": (
        "INFO StoreScheduledThread1 - delete file[REF:0] <root>/commitlog/00000000000000262144 OK, W:65536 M:65536, "
        "0,398091"
    ),
    "confirmOffset {} is larger than {} {}, correct confirmOffset to {}": (
        "ERROR Store confirmOffset 2306 is larger than processOffset 1153, correct confirmOffset to processOffset"
    ),
    "[SetReputOffset] maxPhysicalPosInLogicQueue={} clMinOffset={} clMaxOffset={} clConfirmedOffset={}": (
        "INFO Store [SetReputOffset] maxPhysicalPosInLogicQueue=88312 clMinOffset=0 clMaxOffset=88312 "
        "clConfirmedOffset=-1"
    ),
    "[TooSmallCqOffset] maxPhysicalPosInLogicQueue={} clMinOffset={}": (
        "WARN Store [TooSmallCqOffset] maxPhysicalPosInLogicQueue=131072 clMinOffset=131072"
    ),
    "Try to finish doing reput the messages fall behind during the starting, reputOffset={} maxOffset={} behind={}": (
        "INFO Store Try to finish doing reput the messages fall behind during the starting, reputOffset=195391 "
        "maxOffset=195391 behind=0"
    ),
    "load over, and the max phy offset = {}": "INFO Store load over, and the max phy offset = 217698",
    "{} length not matched message store config value, please check it manually": (
        "WARN Store <root>/commitlog/00000000000000065536\t69632 length not matched message store config value, please "
        "check it manually"
    ),
    "{} size is 0, auto delete. is_ok: {}": (
        "WARN Store <root>/commitlog/00000000000000327680 size is 0, auto delete. is_ok: true"
    ),
    "load commit log Failed": "INFO Store load commit log Failed",
    "load consume queue {} Failed": "INFO Store load consume queue TopicA-0 Failed",
    "load file {} error": "ERROR Store load file <root>/index/.DS_Store error",
    "load exception": "2026-02-24 09:38:29 ERROR main - load exception",
    "MessageStoreState transition from {} to {} failed; Time in previous state={}, Total time={}": (
        "WARN Store MessageStoreState transition from LOAD_BEGIN to LOAD_CONSUME_QUEUE_OK failed; Time in previous "
        "state=1ms, Total time=516ms"
    ),
    "load {} failed, and try to load backup file": (
        "ERROR main - load [/opt/store/config/topics.json] failed, and try to load backup file"
    ),
    "Lock failed,MQ already started": "java.lang.RuntimeException: Lock failed,MQ already started",
    "{} delete OK": "INFO Store <root>/abort delete OK",
    "delete pre allocated mapped file, {}": (
        "INFO Store delete pre allocated maped file, <root>/commitlog/00000000000000262144"
    ),
    "the store may be wrong, so shutdown abnormally, and keep abort file.": (
        "WARN Store the store may be wrong, so shutdown abnormally, and keep abort file."
    ),
    "shutdown ReputMessageService, but CommitLog have not finish to be dispatched, CommitLog max offset={}, "
    "reputFromOffset={}": (
        "WARN Store shutdown ReputMessageService, but CommitLog have not finish to be dispatched, CommitLog max "
        "offset=65536, reputFromOffset=0"
    ),
    "[BUG]logic queue order maybe wrong, expectLogicOffset: {} currentLogicOffset: {} Topic: {} QID: {} Diff: {}": (
        "WARN StoreError [BUG]logic queue order maybe wrong, expectLogicOffset: 180 currentLogicOffset: 120 Topic: "
        "TopicA QID: 1 Diff: 60"
    ),
    "Build  consume queue repeatedly, expectLogicOffset: {} currentLogicOffset: {} Topic: {} QID: {} Diff: {}": (
        "WARN main - Build  consume queue repeatedly, expectLogicOffset: 100 currentLogicOffset: 160 Topic: orders "
        "QID: 0 Diff: -60"
    ),
    "Maybe try to build consume queue repeatedly maxPhysicOffset={} phyOffset={}": (
        "WARN Store Maybe try to build consume queue repeatedly maxPhysicOffset=212358 phyOffset=196608"
    ),
    "Build batch consume queue repeatedly, maxMsgPhyOffsetInCommitLog:{} offset:{} Topic: {} QID: {}": (
        "WARN main - Build batch consume queue repeatedly, maxMsgPhyOffsetInCommitLog:10660 offset:9000 Topic: b QID: 0"
    ),
    "[BUG]put commit log position info to {}:{} {} failed, retry {} times": (
        "WARN ReputMessageService - [BUG]put commit log position info to orders:1 525 failed, retry 0 times"
    ),
    "[BUG]consume queue can not write, {} {}": "ERROR main - [BUG]consume queue can not write, orders 1",
    "fill pre blank space {} {} "
    "{}": "INFO main - fill pre blank space <root>/consumequeue/orders/0/00000000000000000400 420 20",
    "maybe ConsumeQueue was created just now. topic={} queueId={} maxPhysicOffset={} minLogicOffset={}.": (
        "WARN Store maybe ConsumeQueue was created just now. topic=orders queueId=1 maxPhysicOffset=-1 "
        "minLogicOffset=0."
    ),
    "[BUG]The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't match. pre file {}, cur file "
    "{}": (
        "ERROR StoreError [BUG]The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't match. "
        "pre file <root>/commitlog/00000000000000065536, cur file <root>/commitlog/00000000000000196608"
    ),
    "Offset not matched. Request offset: {}, firstOffset: {}, lastOffset: {}, mappedFileSize: {}, mappedFiles count: "
    "{}": (
        "2021-08-12 WARN FlushConsumeQueueService - Offset not matched. Request offset: 318000000, firstOffset: "
        "312000000, lastOffset: 318000000, mappedFileSize: 6000000, mappedFiles count: 1"
    ),
    "findMappedFileByOffset "
    "failure.": "2018-04-27 11:11:00 WARN PullMessageThread_21 - findMappedFileByOffset failure. ",
    "selectMappedBuffer request pos invalid, request pos: {}, size: {}, fileFromOffset: {}": (
        "WARN Store selectMappedBuffer request pos invalid, request pos: 31977, size: 4, fileFromOffset: 65536"
    ),
    "matched, but hold failed, request pos: {}, fileFromOffset: {}": (
        "WARN main - matched, but hold failed, request pos: 100, fileFromOffset: 65536"
    ),
    "The reputFromOffset={} is smaller than minPyOffset={}, this usually indicate that the dispatch behind too much "
    "and the commitlog has expired.": (
        "WARN ReputMessageService - The reputFromOffset=0 is smaller than minPyOffset=131072, this usually indicate "
        "that the dispatch behind too much and the commitlog has expired."
    ),
    "Abort correction as previous min-offset points to {}, which is greater than {}": (
        "INFO Store Abort correction as previous min-offset points to 11229, which is greater than 0"
    ),
    "consumer request topic: {}, offset: {}, minOffset: {}, maxOffset: {}, but access logic queue failed.": (
        "WARN main - consumer request topic: ordersoffset: 42 minOffset: 0 maxOffset: 90, but access logic queue "
        "failed."
    ),
    "PULL_OFFSET_MOVED:correction offset. topic={}, groupId={}, requestOffset={}, newOffset={}, suggestBrokerId={}": (
        "WARN main - PULL_OFFSET_MOVED:correction offset. topic=orders, groupId=CG, requestOffset=100, newOffset=250, "
        "suggestBrokerId=0"
    ),
    "CODE: 208 DESC: query message by key finished, but no message.": (
        "org.apache.rocketmq.client.exception.MQClientException: CODE: 208 DESC: query message by key finished, but no "
        "message."
    ),
    "can not find message by the offset, {}": "CODE: 1  DESC: can not find message by the offset, 230000",
    "queryMessage exception": "ERROR Store queryMessage exception",
    "Index file [{}] is full, trying to create another one": (
        "WARN Store Index file [<root>/index/20261121085515230] is full, trying to create another one"
    ),
    "build index error, stop building index": "ERROR Store build index error, stop building index",
    "physic disk maybe full soon {}, so mark disk full": (
        "ERROR main - physic disk maybe full soon 0.93, so mark disk full, storePathPhysic=<root>/commitlog"
    ),
    "message store is not writeable, so putMessage is forbidden {}": (
        "WARN main - message store is not writeable, so putMessage is forbidden 16"
    ),
    "create mapped file1 error, topic: {} clientAddr: {}": (
        "ERROR main - create mapped file1 error, topic: orders clientAddr: 127.0.0.1:41000"
    ),
    "schedule CQ offset invalid. offset={}, cqMinOffset={}, cqMaxOffset={}, queueId={}": (
        "ERROR main - schedule CQ offset invalid. offset=52, cqMinOffset=0, cqMaxOffset=40, queueId=2"
    ),
    "Timer currQueueOffset:{} is larger than maxOffsetInQueue:{}": (
        "WARN main - Timer currQueueOffset:32 is larger than maxOffsetInQueue:30"
    ),
    "Fail to read msg from commitLog offsetPy:{} sizePy:{}": (
        "WARN main - Fail to read msg from commitLog offsetPy:5965 sizePy:325"
    ),
    "dequeue time:{} but read nothing from timerLog": (
        "WARN main - dequeue time:1795210231000 but read nothing from timerLog"
    ),
    "Timer recheck because of minFirst:{} processOffset:{}": (
        "WARN main - Timer recheck because of minFirst:520 processOffset:1664"
    ),
    "[BUG] can't find consume queue extend file content! addr={}, offsetPy={}, sizePy={}, topic={}": (
        "ERROR main - [BUG] can't find consume queue extend file content!addr=-9223372036854775788, offsetPy=525, "
        "sizePy=200, topic=orders, group=CG"
    ),
    "master pushed offset not equal the max phy offset in slave, SLAVE: {} MASTER: {}": (
        "ERROR HAClient - master pushed offset not equal the max phy offset in slave, SLAVE: 217698 MASTER: 97187"
    ),
    "slave[{}] request offset={} greater than local commitLog offset={}.": (
        "WARN main - slave[/127.0.0.1:41000] request offset=217698 greater than local commitLog offset=97187. "
    ),
    "[MONITOR]The processOffset is too small, you should check it manually before truncating the data from {}": (
        "ERROR main - [MONITOR]The processOffset is too small, you should check it manually before truncating the data "
        "from 65536"
    ),
    "Recover data file to the end of "
    "{}": "INFO main - Recover data file to the end of <root>/dledger-n0/data/00000000000000000000 ",
    "load {} OK": "INFO main - load /data/store/commitlog/00000000000000000000 OK",
    "{} mkdir {}": "INFO main - /data/store/commitlog mkdir OK",
    "{} create OK": "INFO main - /data/store/abort create OK",
    "load {} Failed": "ERROR main - load /data/store/config/topics.json Failed",
    "newMasterEpoch {} < lastEpoch {}, fail to change to {}": (
        "WARN main - newMasterEpoch 1 < lastEpoch 2, fail to change to master"
    ),
    "slave[{}] request offset {}": "INFO ReadSocketService - slave[/10.0.0.7:41000] request offset 0",
    "begin to delete before {} hours file. timeup: {} spacefull: {} manualDeleteFileSeveralTimes: {} cleanAtOnce: {}": (
        "INFO StoreScheduledThread1 - begin to delete before 72 hours file. timeup: true spacefull: false "
        "manualDeleteFileSeveralTimes: 0 cleanAtOnce: false"
    ),
    "CorrectLogicOffsetService.needCorrect. {}": (
        "ERROR CorrectLogicOffsetService - CorrectLogicOffsetService.needCorrect. first file not available, trigger "
        "correct. topic:orders, queue:0, maxPhyOffset in queue:9, minPhyOffset in commit log:4, minOffset:1"
    ),
    "timer checkpoint file {} {}": "INFO main - timer checkpoint file lastReadTimeMs 1795210231000, 20261121",
    "Load batch consume queue {}-{} {} {}": "INFO main - Load batch consume queue orders-0 OK 1",
    "load rocksdb consume queue {}.": "INFO main - load rocksdb consume queue OK.",
    "load {}.json OK": "INFO main - load /data/store/config/topics.json OK",
    "Try to shutdown service thread:{} started:{} lastThread:{}": (
        "INFO main - Try to shutdown service thread:ReputMessageService started:true lastThread:null"
    ),
    'java.lang.NullPointerException: … the return value of "BrokerController.getMessageStore()" is null': (
        'because the return value of "org.apache.rocketmq.broker.BrokerController.getMessageStore()" is null'
    ),
    "org.rocksdb.RocksDBException: While lock file: {}/LOCK: Resource temporarily unavailable": (
        "org.rocksdb.RocksDBException: While lock file: /data/store/config/topics/LOCK: Resource temporarily "
        "unavailable"
    ),
    "org.rocksdb.RocksDBException: … No such file or directory": (
        "org.rocksdb.RocksDBException: While open a file: /data/store/kvStore/000012.sst: No such file or directory"
    ),
    "CODE: 14 DESC: service not available now. It may be caused by one of the following reasons: the broker's disk is "
    "full [CL: {} CQ: {} INDEX: {}], …": (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full [CL:  "
        "0.90 CQ:  0.90 INDEX:  0.90], messages are put to the slave"
    ),
    "CODE: 17 DESC: topic[{}] not exist, apply first please!": (
        "CODE: 17  DESC: topic[orders] not exist, apply first please!"
    ),
    "code=414,name=DISK_ERROR,desc={}": (
        "ERROR main - Recover failed, code=414,name=DISK_ERROR,desc=] pos 0 != 222296456325"
    ),
    "[{}][{}] term={} ledgerBegin={} ledgerEnd={} committed={} watermarks={}": (
        "INFO QuorumAckChecker-n0 - [n0][LEADER] term=2 ledgerBegin=0 ledgerEnd=9 committed=9 watermarks={}"
    ),
    "map file {} Failed.": (
        "ERROR ReputMessageService - map file /data/store/consumequeue/T/0/00000000000000000000 Failed. "
    ),
    "recover current consume queue over {} {} {} {}": (
        "INFO main - recover current consume queue over /data/store/consumequeue/T/0/00000000000000000000 0 0 0"
    ),
    "delete topic config OK, topic: {}": (
        "INFO AdminBrokerThread_1 - delete topic config OK, topic: TopicConfig [topicName=orders, readQueueNums=8]"
    ),
    "The producer[{}] end transaction in sending message,  and it's pending status. RequestHeader: {} Remark: {}": (
        "WARN EndTransactionThread_1 - The producer[10.0.0.7:5] end transaction in sending message,  and it's pending "
        "status.RequestHeader: EndTransactionRequestHeader{producerGroup='g', tranStateTableOffset=3, "
        "commitLogOffset=512} Remark: null"
    ),
    "The miss op offset={} in queue={} is illegal, pullResult={}": (
        "WARN main - The miss op offset=1 in queue=MessageQueue [queueId=0] is illegal, pullResult=PullResult "
        "[pullStatus=OFFSET_ILLEGAL, nextBeginOffset=1, minOffset=0, maxOffset=1, msgFoundList=0]"
    ),
    "Illegal offset, the miss offset={} in={}, continue check={}, pull result={}": (
        "INFO main - Illegal offset, the miss offset=1 in=MessageQueue [queueId=0], continue check=0, pull "
        "result=PullResult [pullStatus=OFFSET_ILLEGAL, nextBeginOffset=1, minOffset=0, maxOffset=1, msgFoundList=0]"
    ),
    "delete subscription group OK, subscription group:{}": (
        "INFO AdminBrokerThread_1 - delete subscription group OK, subscription group:SubscriptionGroupConfig "
        "[groupName=g1]"
    ),
    "the request offset: {} over flow badly, broker max offset: {}, consumer: {}": (
        "INFO main - the request offset: 500 over flow badly, fix to 40, broker max offset: 40, consumer: /10.0.0.1"
    ),
    "physic disk maybe full soon, so reclaim space, {}": (
        "INFO StoreScheduledThread1 - physic disk maybe full soon, so reclaim space, 0.82"
    ),
    "Error when measuring disk space usage, file doesn't exist on this path: {}": (
        "ERROR main - Error when measuring disk space usage, file doesn't exist on this path: /data/store/commitlog"
    ),
}

EXAMPLES = {line.template: _GIVEN.get(line.template) or line.template.replace("{}", "7") for line in LOG_LINES}
"""A line of a log by its template; where none is given, the template with 7 for each value."""
