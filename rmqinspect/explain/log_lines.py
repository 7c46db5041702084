"""Lines of a broker's logs (store.log, storeerror.log, broker.log, a client's error) and what they mean.

A line is recognised by a phrase of its own, whatever stands around it: time, level, thread, numbers.
`seen` says in which releases it was found; the sources read were those of 4.0.0, 4.2.0, 4.3.0, 4.4.0,
4.5.2, 4.7.1, 4.9.2, 4.9.7, 5.0.0, 5.1.4, 5.2.0, 5.3.1, 5.3.3, 5.4.0 and 5.5.0 (module store), broker and
common of 4.2.0, 5.3.3, 5.5.0 and some between. What a broker does then: core 3.5, 7, 9, 11.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmqinspect.explain import values
from rmqinspect.explain.entry import Words
from rmqinspect.explain.flags import RUNNING_FLAGS
from rmqinspect.text import count
from rmqinspect.verify.codes import ALL, Eras

HARMLESS, DEPENDS, SERIOUS = "harmless", "harmless or not, as told below", "something is lost, wrong or stopped"


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a line: `name` as the line has it, a pattern where the line does not name it."""

    name: str
    meaning: str = ""
    words: Words | None = None
    pattern: str = ""  # one group; by default the name, then = or : and the value
    fills: str = ""  # `at`, `topic` or `queue` in the commands


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. `template` is the text of the sources with {} for its values."""

    template: str
    source: str  # class and method that log it
    seen: str  # releases
    alarm: str
    meaning: str
    phrases: tuple[str, ...] = ()  # any of them is enough; by default the template up to its first value
    values: tuple[Value, ...] = ()
    quirks: Eras = ()
    next: tuple[str, ...] = ("rmqinspect verify {store}",)  # {store}, {at}, {topic} and {queue} are filled in
    see: tuple[str, ...] = ()
    judge: Callable[[Mapping[str, int]], str] | None = None  # what its numbers, by name, say together


_VERIFY = "rmqinspect verify {store}"
_INFO = "rmqinspect info {store}"
_SHOW = "rmqinspect show {store} --at {at}"
_GAPS = "rmqinspect decode {store} --table gaps"
_SEGMENTS = "rmqinspect decode {store} --table segments"
_QUEUES = "rmqinspect decode {store} --table queues -t {topic}"
_QUEUE_UNITS = "rmqinspect decode {store} --table queue_units -t {topic} --queue {queue}"
_INDEX_FILES = "rmqinspect decode {store} --table index_files"
_CHECKPOINT = "rmqinspect decode {store} --table checkpoint"
_GROUPS = "rmqinspect decode {store} --table groups"
_TIMER = "rmqinspect decode {store} -t rmq_sys_wheel_timer"
_DELAYED = "rmqinspect decode {store} -t SCHEDULE_TOPIC_XXXX"


def _place_asked(numbers: Mapping[str, int]) -> str:
    asked, first, last = (numbers.get(name) for name in ("Request offset", "firstOffset", "lastOffset"))
    if asked is None or first is None or last is None:
        index = numbers.get("index")
        return "" if index is None else "before the first file" if index < 0 else "behind the last file"
    if asked == last:
        return "exactly at the end of the last file: harmless"
    return "before the first file: expired" if asked < first else "behind the last file: the end was lost, or cut"


def _units_cut(numbers: Mapping[str, int]) -> str:
    units, end = numbers.get("maxPhyOffsetOfConsumeQueue"), numbers.get("processOffset")
    if units is None or end is None:
        return ""
    return f"units for {count(units - end, 'byte')} of log were cut" if units > end else "equal: nothing was cut"


def _way_moved(numbers: Mapping[str, int]) -> str:
    asked, new = numbers.get("requestOffset"), numbers.get("newOffset")
    if asked is None or new is None:
        return ""
    if new > asked:
        return f"{count(new - asked, 'message')} of the queue passed over: expired before the group read them"
    return f"back by {asked - new}: the queue was longer when the group committed its offset, or the group was reset"


_TOPIC = Value("topic", pattern=r"topic\s*[:=]\s*([^\s,]+)", fills="topic")
_QUEUE = Value("queue", pattern=r"(?:QID|queueId)\s*[:=]\s*(\d+)", fills="queue")

LOG_LINES: tuple[LogLine, ...] = (
    # --- reading the log ---
    LogLine(
        "found a illegal magic code 0x{}",
        "CommitLog#checkMessageAndReturnSize",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "where the next record should begin, the four bytes of its magic are none. 0x0 at a start is the normal end of "
        "the log: the rest of a segment is zero. Any other value, or any value while the broker runs, is damage, or a "
        "reader that lost its place",
        values=(Value("magic", "", values.magic, r"code\W+(0x[0-9a-f]+)"),),
        quirks=(
            (
                ALL,
                "the line tells neither segment nor offset, and the number lacks its leading zeros: 0x66666 are the "
                "bytes 00 06 66 66",
            ),
            (
                "4.0.0 to 5.0.0",
                "0xdaa320ab is a sound record of 5.1.0 or later (V2, for long topics), unknown to these",
            ),
            (
                ALL,
                "thread ReputMessageService: on a slave the same line comes again and again, for it tries the place "
                "for ever; on a master the rest of the segment gets no queue unit",
            ),
        ),
        next=(_VERIFY, _GAPS),
        see=("CL-MAGIC", "MAGICCODE"),
    ),
    LogLine(
        "CRC check failed. bodyCRC={}, currentCRC={}",
        "CommitLog#checkMessageAndReturnSize",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "a start met a record whose body does not match its CRC: the log ends there, and all newer segments are "
        "deleted",
        ("CRC check failed",),
        (
            Value("bodyCRC", "computed now from the body, in spite of the name"),
            Value("currentCRC", "the one stored in the record, in spite of the name"),
        ),
        (
            (ALL, "the two values are printed under each other's name; the line tells no offset"),
            ("5.2.0 to 5.5.0", "does not come with forceVerifyPropCRC, which checks the whole record instead"),
        ),
        see=("CL-CRC-BODY", "BODYCRC"),
    ),
    LogLine(
        "CommitLog#checkAndDispatchMessage: failed to check message CRC, expected CRC={}, actual CRC={}",
        "CommitLog#checkMessageAndReturnSize",
        "5.2.0 to 5.5.0",
        SERIOUS,
        "with forceVerifyPropCRC: the whole-record CRC (__CRC32#) of a record does not match; the log ends there, and "
        "all newer segments are deleted",
        ("failed to check message CRC, expected",),
        (
            Value("expected CRC", "the record's BODYCRC, which is not what was compared"),
            Value("actual CRC", "computed from the record without its last 20 bytes"),
        ),
        (
            (
                "5.2.0 to 5.5.0",
                "the CRC that was expected, that of the property, is not printed; the method is named wrongly",
            ),
        ),
        see=("CL-CRC-RECORD", "__CRC32#"),
    ),
    LogLine(
        "CommitLog#checkAndDispatchMessage: failed to check message CRC, not found CRC in properties",
        "CommitLog#checkMessageAndReturnSize",
        "5.2.0 to 5.5.0",
        SERIOUS,
        "with forceVerifyPropCRC: a record has no property __CRC32#, and the log ends there. Every record from before "
        "enabledAppendPropCRC was switched on is such a one",
        ("not found CRC in properties",),
        quirks=(
            (
                "5.4.0 to 5.5.0",
                "sound records of some batches too: the property is glued to the last value and not found",
            ),
            ("5.5.0", "the line also has the record's topic, properties and bytes in hex"),
        ),
        see=("CL-CRC-RECORD", "__CRC32#"),
    ),
    LogLine(
        "[BUG]read total count not equals msg total size. totalSize={}, readTotalCount={}, bodyLen={}, topicLen={}, "
        "propertiesLength={}",
        "CommitLog#checkMessageAndReturnSize",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "the lengths inside a record do not add up to its total size",
        ("read total count not equals msg total size",),
        (
            Value("totalSize", "the size the record says it has", values.total_size),
            Value("readTotalCount", "the size that its lengths make", values.total_size),
            Value(
                "reputFromOffset", "where the record begins (dispatch, not a start)", values.physical_offset, fills="at"
            ),
        ),
        (
            (
                "4.0.0 to 4.3.1",
                "after an unclean stop the record counts as data and gets a unit in a queue of an empty "
                "topic; a clean start ends the log there",
            ),
            ("4.3.2 to 5.5.0", "a start ends the log there and deletes all newer segments"),
        ),
        see=("CL-LENGTH",),
    ),
    LogLine(
        "[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: {}",
        "DefaultMessageStore.ReputMessageService#doReput",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "a running master met bytes that are no record: it skips the rest of what it can read of this segment, which "
        "gets no queue unit and no index entry, never repaired",
        ("dispatch message to consume queue error",),
        (Value("COMMITLOG OFFSET", "the first byte that was not understood", values.physical_offset, fills="at"),),
        (("4.0.0 to 4.4.0", "begins with [BUG]the master dispatch message"),),
        (_SHOW, _VERIFY),
        ("CL-MAGIC", "CQ-MISSING"),
    ),
    LogLine(
        "checkMessageAndReturnSize failed, may can not dispatch",
        "CommitLog#checkMessageAndReturnSize",
        "5.3.3 to 5.5.0",
        SERIOUS,
        "reading a record ended in an exception, which stands behind the line: the bytes are no record; treated like a "
        "wrong magic",
        see=("CL-MAGIC", "CL-LENGTH"),
    ),
    LogLine(
        "DupInfo in properties check failed. dupInfo={}",
        "CommitLog#checkMessageAndReturnSize",
        "5.0.0 to 5.5.0",
        SERIOUS,
        "with duplicationEnable: a record has no property DUP_INFO of two parts, and the log ends there. Records from "
        "before the setting have none",
        ("DupInfo in properties check failed",),
        see=("DUP_INFO",),
    ),
    # --- recovery ---
    LogLine(
        "last shutdown {}",
        "DefaultMessageStore#load",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "normally: there was no abort file, the start trusts the queues. abnormally: there was one, part of the log is "
        "read and dispatched again, and index files newer than the checkpoint's index time are deleted",
        ("last shutdown normally", "last shutdown abnormally"),
        next=(_INFO,),
        see=("ST-ABORT",),
    ),
    LogLine(
        "store checkpoint file {} {}",
        "StoreCheckpoint",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "the checkpoint's values at the start; not exists: all are 0, and an unclean start reads the whole log (5.4.0 "
        "and later: ten segments)",
        ("store checkpoint file exists", "store checkpoint file not exists", "store checkpoint file"),
        (
            Value("physicMsgTimestamp", "", values.time, r"physicMsgTimestamp (\d+)"),
            Value("logicsMsgTimestamp", "", values.time, r"logicsMsgTimestamp (\d+)"),
            Value("indexMsgTimestamp", "", values.time, r"indexMsgTimestamp (\d+)"),
            Value("confirmPhyOffset", "", values.physical_offset, r"confirmPhyOffset (\d+)"),
            Value("logicsPhysicalOffset", "", values.physical_offset, r"logicsPhysicalOffset (\d+)"),
        ),
        next=(_CHECKPOINT,),
        see=("ST-CHECKPOINT", "physicMsgTimestamp"),
    ),
    LogLine(
        "find check timestamp, {} {}",
        "CommitLog#isMappedFileMatchedRecover",
        "4.0.0 to 5.3.3",
        HARMLESS,
        "the first record of a segment is not newer than the checkpoint: the start reads from this segment on, and "
        "nothing before it",
        ("find check timestamp", "find check. beginPhyOffset"),
        (Value("timestamp", "store time of that record", values.time, r"timestamp, (\d+)"),),
        next=(_SEGMENTS, _CHECKPOINT),
        see=("ST-CHECKPOINT",),
    ),
    LogLine(
        "recover from this mapped file {}",
        "CommitLog#recoverAbnormally",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "after an unclean stop: the segment from which on the log is read and dispatched again",
        ("recover from this mapped file", "recover from this maped file"),
        next=(_SEGMENTS,),
        see=("ST-CHECKPOINT", "CQ-BEHIND"),
    ),
    LogLine(
        "recover next physics file, {}",
        "CommitLog#recoverNormally, #recoverAbnormally",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "a segment was read to its end at the start; this is the next one",
        ("recover next physics file",),
        next=(_SEGMENTS,),
    ),
    LogLine(
        "recover physics file end, {} pos={}",
        "CommitLog#recoverNormally, #recoverAbnormally",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "the start stopped reading in this segment: the log ends in it, and newer segments are deleted. Normal when it "
        "is the last segment that holds records and the line before says illegal magic code 0x0; any other reason is "
        "the line before",
        ("recover physics file end",),
        (Value("pos", "", None, r"pos\s*=\s*(\d+)"),),
        (
            (
                "4.5.2 to 5.5.0",
                "pos is where the reader stood when it gave up, not where the log ends: 8 more than that where zeros "
                "follow (only after an unclean stop)",
            ),
        ),
        (_SEGMENTS, _GAPS),
        ("CL-MAGIC", "CL-CRC-BODY"),
    ),
    LogLine(
        "recover last 3 physics file over, last mapped file {}",
        "CommitLog#recoverNormally, #recoverAbnormally",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "the start read the last segment to its blank record and met no damage",
        ("recover last 3 physics file over", "recover physics file over"),
        quirks=(("5.3.2 to 5.5.0", "says 3, though a clean start no longer begins at the third-last segment"),),
        next=(_SEGMENTS,),
    ),
    LogLine(
        "found a half message at {}, it will be truncated.",
        "CommitLog#recoverNormally, #recoverAbnormally",
        "5.0.0 to 5.5.0",
        SERIOUS,
        "the lengths of the record at this offset do not add up: the log ends before it, and newer segments are "
        "deleted",
        ("found a half message at",),
        (Value("offset", "", values.physical_offset, r"message at (\d+)", fills="at"),),
        next=(_SHOW, _VERIFY),
        see=("CL-LENGTH", "CL-TORN-TAIL"),
    ),
    LogLine(
        "found illegal commitlog offset {} in {}, current pos={}, it will be truncated.",
        "CommitLog#recoverAbnormally",
        "5.5.0",
        SERIOUS,
        "with checkCommitLogOffsetOnRecover: a sound record names an offset outside of its segment; the log ends "
        "before it",
        ("found illegal commitlog offset",),
        (
            Value("own offset", "what the record names", values.physical_offset, r"commitlog offset (\d+)"),
            Value("pos", "where it lies", values.physical_offset, r"pos=(\d+)", fills="at"),
        ),
        next=(_SHOW, _VERIFY),
        see=("CL-OFFSET",),
    ),
    LogLine(
        "maxPhyOffsetOfConsumeQueue({}) >= processOffset({}), truncate dirty logic files",
        "CommitLog#recoverNormally, #recoverAbnormally",
        "4.4.0 to 5.5.0",
        DEPENDS,
        "the start compares where the newest queue unit ends with where the log ends. Equal numbers are normal and "
        "change nothing (4.5.0 and later print them at most clean starts); a larger first number means that units, and "
        "the messages they counted, are cut",
        ("truncate dirty logic files",),
        (
            Value(
                "maxPhyOffsetOfConsumeQueue",
                "up to here there were queue units",
                values.physical_offset,
                r"ConsumeQueue\((-?\d+)",
            ),
            Value(
                "processOffset",
                "here the log ends after the start",
                values.physical_offset,
                r"processOffset\((-?\d+)",
                fills="at",
            ),
        ),
        (
            (
                "4.3.2 to 4.4.0",
                "the first number is where the newest unit's record begins, so it comes only when units are cut",
            ),
        ),
        see=("CQ-BEYOND",),
        judge=_units_cut,
    ),
    LogLine(
        "The commitlog files are deleted, and delete the consume queue files",
        "CommitLog#recoverNormally, #recoverAbnormally",
        "4.5.2 to 5.5.0",
        SERIOUS,
        "the start found no segment and deleted all consume queues. Harmless in a new store only. It happens when the "
        "log's folder is not mounted or wrongly configured, and (5.1.3 and later) when its only file was empty",
        ("The commitlog files are deleted",),
        quirks=(
            ("4.0.0 to 4.4.0", "after an unclean stop the same is done without a line; after a clean one not at all"),
        ),
        next=(_INFO,),
        see=("CL-SIZE",),
    ),
    LogLine(
        "on recover, destroy a logic mapped file {}",
        "MappedFileQueue#deleteLastMappedFile",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "a start cut the consume queues and deleted a queue file whose first unit lies behind the log's end",
        next=("rmqinspect decode {store} --table queues",),
        see=("CQ-BEYOND",),
    ),
    LogLine(
        "recover last consume queue file over, last mapped file {}",
        "ConsumeQueue#recover",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "the units of a queue were read at the start: its last three files, up to the first unused unit. They were "
        "not compared with the log",
        ("recover last consume queue file over", "recover current consume queue", "recover next consume queue file"),
        next=("rmqinspect decode {store} --table queues",),
        see=("CQ-HOLE",),
    ),
    LogLine(
        "delete file[REF:{}] {} OK, W:{} M:{}, {}",
        "MappedFile#destroy",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "a file was deleted. While the broker runs: retention. At a start: a segment behind the place where the log "
        "was cut, a queue file behind it, or after an unclean stop an index file newer than the checkpoint's index "
        "time",
        ("delete file REF",),
        (Value("file", pattern=r"delete file\[REF:-?\d+\] (\S+)"),),
        next=(_SEGMENTS, _INDEX_FILES),
        see=("CL-STALE-TAIL", "CQ-BEYOND", "ST-ABORT"),
    ),
    LogLine(
        "confirmOffset {} is larger than {} {}, correct confirmOffset to {}",
        "CommitLog#recoverNormally, #recoverAbnormally",
        "5.1.4 to 5.5.0",
        DEPENDS,
        "controller mode or duplication: the confirm offset of the checkpoint lies outside of the log that the start "
        "found, and was moved into it. When it was larger, confirmed records are not in this log any more",
        ("correct confirmOffset to",),
        (Value("confirmOffset", "as it was", values.physical_offset, r"confirmOffset (-?\d+)"),),
        next=(_CHECKPOINT, _SEGMENTS),
        see=("confirmPhyOffset",),
    ),
    LogLine(
        "[SetReputOffset] maxPhysicalPosInLogicQueue={} clMinOffset={} clMaxOffset={} clConfirmedOffset={}",
        "DefaultMessageStore#start",
        "4.5.2 to 5.5.0",
        HARMLESS,
        "where dispatch to the queues goes on after a start (4.5.0 to 4.9.8, later with recheckReputOffsetFromCq)",
        ("SetReputOffset",),
        (
            Value("maxPhysicalPosInLogicQueue", "here the newest queue unit ends", values.physical_offset),
            Value("clMaxOffset", "here the log ends", values.physical_offset),
        ),
        next=(_VERIFY,),
        see=("CQ-MISSING",),
    ),
    LogLine(
        "[TooSmallCqOffset] maxPhysicalPosInLogicQueue={} clMinOffset={}",
        "DefaultMessageStore#start",
        "4.5.2 to 5.5.0",
        DEPENDS,
        "the queues end before the log begins: they were lost, or retention overtook them; dispatch goes on at the "
        "log's first segment. In a store whose queues should be there it tells of lost queues",
        ("TooSmallCqOffset",),
        (Value("clMinOffset", "here the log begins", values.physical_offset),),
        next=("rmqinspect decode {store} --table queues", _VERIFY),
        see=("CQ-MISSING",),
    ),
    LogLine(
        "Try to finish doing reput the messages fall behind during the starting, reputOffset={} maxOffset={} behind={}",
        "DefaultMessageStore#start",
        "4.5.2 to 5.5.0",
        HARMLESS,
        "the start waits until the queues have caught up with the log",
        ("Try to finish doing reput",),
        (Value("behind", "bytes of log that have no queue units yet"),),
        next=(_VERIFY,),
        see=("CQ-BEHIND",),
    ),
    LogLine(
        "load over, and the max phy offset = {}",
        "DefaultMessageStore#load",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "the start is done with loading and recovery; the number is where the log ends now. Compare it with the last "
        "one before: a smaller number means that the log was cut",
        ("load over, and the max phy offset", "recover end, and the max phy offset"),
        (Value("max phy offset", "", values.physical_offset, r"offset\s*=\s*(-?\d+)", fills="at"),),
        next=(_SEGMENTS, _VERIFY),
        see=("CL-STALE-TAIL",),
    ),
    # --- loading ---
    LogLine(
        "{} length not matched message store config value, please check it manually",
        "MappedFileQueue#load",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "a file in a folder of segments, queue files or timer logs has not the configured length: it was cut, padded "
        "or left empty, is a stranger, or the setting differs from the one that the store was written with. The file "
        "and its length stand before the phrase",
        ("length not matched message store config value",),
        (
            Value("file", pattern=r"(\S+)\s+\d+\s+length not matched"),
            Value("length", "of the file", pattern=r"(\d+)\s+length not matched"),
        ),
        (
            (
                "4.0.0 to 4.4.0, 4.9.2",
                "ends in ignore it: this and all files that sort behind it are ignored, and the "
                "broker starts without them",
            ),
            ("4.5.0 to 4.9.1, 4.9.3 to 5.5.0", "ends in please check it manually: the broker does not start"),
            ("5.1.3 to 5.5.0", "an empty file that sorts last is deleted instead"),
        ),
        (_INFO, "rmqinspect verify {store} --level quick"),
        ("CL-SIZE", "CL-NAME", "CQ-SIZE"),
    ),
    LogLine(
        "{} size is 0, auto delete. is_ok: {}",
        "MappedFileQueue#load",
        "5.1.4 to 5.5.0",
        DEPENDS,
        "an empty file that sorts last was deleted and the start goes on. Harmless when a crash left it; when it was "
        "the only segment, the log is empty now and all consume queues are deleted",
        ("size is 0, auto delete",),
        (Value("file", pattern=r"(\S+) size is 0"),),
        next=(_INFO,),
        see=("CL-SIZE", "CQ-SIZE"),
    ),
    LogLine(
        "load commit log Failed",
        "CommitLog#load",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "the broker does not start because of a file in the commitlog folder; the line before names it. Log, queues "
        "and index stay as they are",
        quirks=(("5.4.0 to 5.5.0", "the abort file may be deleted, so the next start counts as clean"),),
        next=(_INFO, "rmqinspect verify {store} --level quick"),
        see=("CL-SIZE", "CL-NAME"),
    ),
    LogLine(
        "load consume queue {} Failed",
        "ConsumeQueue#load",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "Failed: the broker does not start because of a file in this queue's folder, which the line before names. OK "
        "is the normal line of each queue",
        ("load consume queue",),
        (Value("queue", "topic and queue id", pattern=r"consume queue (\S+)"),),
        next=("rmqinspect verify {store} --level quick",),
        see=("CQ-SIZE",),
    ),
    LogLine(
        "load file {} error",
        "MappedFileQueue#load, IndexService#load",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "a file could not be mapped, or its name is no number; the exception behind the line says which. In the index "
        "folder a wrong name is passed over; elsewhere, and for a folder in the index folder from 5.1.0 on, the broker "
        "does not start",
        ("load file", "Failed to create file"),
        (Value("file", pattern=r"file \[?([^\s\]]+)"),),
        next=(_INFO,),
        see=("CL-NAME", "IX-SIZE"),
    ),
    LogLine(
        "load exception",
        "DefaultMessageStore#load",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "loading or recovery ended in the exception behind the line, and the broker does not start: "
        "NumberFormatException is a file name that is no number; correctMinOffset in the trace is a consume queue; "
        "OutOfMemoryError (up to 5.3.1) can be a record with a huge total size",
        next=(_VERIFY,),
        see=("CL-NAME", "CL-LENGTH"),
    ),
    LogLine(
        "MessageStoreState transition from {} to {} failed; Time in previous state={}, Total time={}",
        "DefaultMessageStore#load",
        "5.4.0 to 5.5.0",
        SERIOUS,
        "a step of the start failed: the first such line names it, those after it follow from it",
        ("MessageStoreState transition",),
        next=(_INFO, "rmqinspect verify {store} --level quick"),
        see=("CL-SIZE",),
    ),
    LogLine(
        "load {} failed, and try to load backup file",
        "ConfigManager#load",
        "4.2.0 to 5.5.0",
        DEPENDS,
        "a file in config cannot be decoded: the broker reads the .bak file, which is one saving older. When that "
        "fails too (a line load … Failed), it does not start",
        ("and try to load backup file",),
        (Value("file", pattern=r"load \[?([^\s\]]+)\]? failed"),),
        (("5.4.0 to 5.5.0", "the file that cannot be decoded is deleted at the start"),),
        (_INFO, _GROUPS),
        ("ST-CONFIG",),
    ),
    LogLine(
        "Lock failed,MQ already started",
        "DefaultMessageStore#start",
        "4.2.0 to 5.5.0",
        SERIOUS,
        "another broker runs on this store and holds the lock. This second one had loaded and recovered before it "
        "asked: it may have cut and deleted files under the running one",
        ("Lock failed", "MQ already started"),
        next=(_INFO,),
        see=("ST-RUNNING",),
    ),
    # --- stopping ---
    LogLine(
        "{} delete OK",
        "DefaultMessageStore#deleteFile",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "the abort file was deleted: an orderly stop, everything dispatched; the next start counts as clean",
        ("abort delete OK",),
        next=(_INFO,),
        see=("ST-ABORT",),
    ),
    LogLine(
        "delete pre allocated mapped file, {}",
        "AllocateMappedFileService#shutdown",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "an orderly stop deletes the segment that was made ahead of time and never used; after a kill it stays, all "
        "zero",
        ("delete pre allocated mapped file", "delete pre allocated maped file"),
        next=(_SEGMENTS,),
    ),
    LogLine(
        "the store may be wrong, so shutdown abnormally, and keep abort file.",
        "DefaultMessageStore#shutdown",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "the broker stopped in order, but records were not dispatched to the queues yet, or the store was not writable "
        "(disk full): the abort file stays, and the next start counts as unclean",
        ("keep abort file",),
        next=(_INFO,),
        see=("ST-ABORT", "CQ-BEHIND"),
    ),
    LogLine(
        "shutdown ReputMessageService, but CommitLog have not finish to be dispatched, CommitLog max offset={}, "
        "reputFromOffset={}",
        "DefaultMessageStore.ReputMessageService#shutdown",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "the broker stopped while the queues were behind the log: records from the second offset on have no unit yet. "
        "The next start, which counts as unclean, adds them",
        ("have not finish to be dispatched",),
        (
            Value("max offset", "here the log ends", values.physical_offset, r"(?:max\s+offset=|CL:\s*)(\d+)"),
            Value("reputFromOffset", "from here on there are no units", values.physical_offset, fills="at"),
        ),
        next=(_VERIFY, _SHOW),
        see=("CQ-BEHIND", "ST-ABORT"),
    ),
    # --- queues ---
    LogLine(
        "[BUG]logic queue order maybe wrong, expectLogicOffset: {} currentLogicOffset: {} Topic: {} QID: {} Diff: {}",
        "ConsumeQueue#putMessagePositionInfo",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "units are missing in this queue: the record belongs further behind, and its unit is appended at the queue's "
        "end all the same. This and all later units stand too early by the difference, and the line comes for each of "
        "them",
        ("logic queue order maybe wrong",),
        (
            Value("expectLogicOffset", "the place of the record's unit", values.queue_position),
            Value("currentLogicOffset", "where it was appended", values.queue_position),
            Value("Diff", "the shift", values.queue_position),
            _TOPIC,
            _QUEUE,
        ),
        ((ALL, "offsets are bytes of the queue; a unit has 20"),),
        (_VERIFY, _QUEUE_UNITS),
        ("CQ-SHIFT", "CQ-MISSING"),
    ),
    LogLine(
        "Build  consume queue repeatedly, expectLogicOffset: {} currentLogicOffset: {} Topic: {} QID: {} Diff: {}",
        "ConsumeQueue#putMessagePositionInfo",
        "4.2.0 to 5.5.0",
        DEPENDS,
        "the queue is longer already than this record's queue offset, so the record gets no unit. Normal while a start "
        "dispatches again what it had dispatched; elsewhere consumers miss the message: queue offsets were given out "
        "twice",
        ("Build consume queue repeatedly",),
        (
            Value("expectLogicOffset", "the place of the record's unit", values.queue_position),
            Value("currentLogicOffset", "the queue's end", values.queue_position),
            Value("Diff", "", values.queue_position),
            _TOPIC,
            _QUEUE,
        ),
        ((ALL, "offsets are bytes of the queue; a unit has 20"),),
        (_VERIFY, _QUEUE_UNITS),
        ("CL-QUEUE-OFFSET", "CQ-MISSING"),
    ),
    LogLine(
        "Maybe try to build consume queue repeatedly maxPhysicOffset={} phyOffset={}",
        "ConsumeQueue#putMessagePositionInfo",
        "4.5.2 to 5.5.0",
        HARMLESS,
        "a start dispatches a record again whose queue already has a later unit: it is left out. Normal after an "
        "unclean stop. It also leaves out a record whose unit is really missing: see the code",
        ("Maybe try to build consume queue repeatedly",),
        (
            Value("maxPhysicOffset", "the newest unit's record ends here", values.physical_offset),
            Value("phyOffset", "the record that was left out", values.physical_offset, fills="at"),
        ),
        ((ALL, "maxPhysicOffset 2147483647 comes from filler units, and hides all records before it"),),
        next=(_SHOW,),
        see=("CQ-MISSING", "0x7fffffff"),
    ),
    LogLine(
        "Build batch consume queue repeatedly, maxMsgPhyOffsetInCommitLog:{} offset:{} Topic: {} QID: {}",
        "BatchConsumeQueue#putBatchMessagePositionInfo",
        "5.0.0 to 5.5.0",
        HARMLESS,
        "a start dispatches a record again whose batch queue already has a later unit: it is left out",
        ("Build batch consume queue repeatedly",),
        (
            Value("offset", "the record that was left out", values.physical_offset, r"[^a-z]offset:(\d+)", fills="at"),
            _TOPIC,
            _QUEUE,
        ),
        next=(_QUEUE_UNITS,),
        see=("BQ-COUNT",),
    ),
    LogLine(
        "[BUG]put commit log position info to {}:{} {} failed, retry {} times",
        "ConsumeQueue#putMessagePositionInfoWrapper",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "a queue unit could not be written; it is tried 30 times, a second apart",
        ("put commit log position info to",),
        (
            Value(
                "record",
                "the one that should get the unit",
                values.physical_offset,
                r"info to \S+ (\d+) failed",
                fills="at",
            ),
        ),
        ((ALL, "the second try reports success though nothing was written, so the unit is missing in silence"),),
        (_SHOW, _VERIFY),
        ("CQ-MISSING",),
    ),
    LogLine(
        "[BUG]consume queue can not write, {} {}",
        "ConsumeQueue#putMessagePositionInfoWrapper",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "30 tries to write a queue unit failed: the broker marks the queues as broken and takes no more messages",
        ("consume queue can not write",),
        next=(_VERIFY,),
        see=("WRITE_LOGICS_QUEUE_ERROR", "CQ-MISSING"),
    ),
    LogLine(
        "fill pre blank space {} {} {}",
        "ConsumeQueue#putMessagePositionInfo",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "a queue begins with a queue offset that is not the first of its file: filler units are written before it. "
        "Normal after retention, on a new slave, and when a queue is built again",
        ("fill pre blank space",),
        next=("rmqinspect decode {store} --table queues",),
        see=("0x7fffffff",),
    ),
    LogLine(
        "maybe ConsumeQueue was created just now. topic={} queueId={} maxPhysicOffset={} minLogicOffset={}.",
        "DefaultMessageStore.CleanConsumeQueueService",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "the cleaning of expired queues left this one alone, because it has no unit yet",
        ("maybe ConsumeQueue was created just now",),
        (_TOPIC, _QUEUE),
        next=(_QUEUES,),
    ),
    LogLine(
        "[BUG]The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't match. pre file {}, cur "
        "file {}",
        "MappedFileQueue#checkSelf",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "a file is missing between these two. The broker only says so, every ten minutes; what lay in it is gone. In "
        "the commitlog folder those are messages, in a queue's folder units",
        ("queue's data is damaged", "adjacent mappedFile's offset don't match"),
        (
            Value("pre file", "the file before the hole", pattern=r"pre file (\S+?),?\s"),
            Value("cur file", "the file behind the hole", pattern=r"cur file (\S+)"),
        ),
        next=(_SEGMENTS, _VERIFY),
        see=("CL-HOLE",),
    ),
    LogLine(
        "Offset not matched. Request offset: {}, firstOffset: {}, lastOffset: {}, mappedFileSize: {}, mappedFiles "
        "count: {}",
        "MappedFileQueue#findMappedFileByOffset",
        "4.3.0 to 5.5.0",
        DEPENDS,
        "something asked for an offset that no file has. Request equal to lastOffset: a reader or the flush stands "
        "exactly at the end of a full last file, harmless. Smaller than firstOffset: what was asked for is expired, "
        "and a consumer or slave asks again and again. Larger than lastOffset: beyond the end, as after a lost tail",
        ("Offset not matched", "offset not matched, request Offset", "not matched. Request offset"),
        (
            Value("Request offset", "asked for", None, r"request offset: (-?\d+)"),
            Value("firstOffset", "the first file begins here"),
            Value("lastOffset", "the last file ends here: its base and its length"),
            Value("mappedFileSize", "of one file: by default 1073741824 for segments, 6000000 for queue files"),
            Value("index", "number of the file that was computed (4.2.0 and earlier)"),
        ),
        (
            (
                "4.0.0 to 4.2.0",
                "reads Offset for … not matched, with a file and an index; findMappedFileByOffset failure and an "
                "exception follow. Files are found by counting, so behind a missing file all are wrong",
            ),
            (ALL, "the offset is one of the log or one of a queue, in bytes: the size of the files tells which"),
        ),
        (_SEGMENTS, _GROUPS),
        ("CL-HOLE", "CQ-EXPIRED", "CQ-BEYOND"),
        _place_asked,
    ),
    LogLine(
        "findMappedFileByOffset failure.",
        "MappedFileQueue#findMappedFileByOffset",
        "4.0.0 to 4.2.0",
        DEPENDS,
        "belongs to the line before it, Offset for … not matched, and says no more",
        ("findMappedFileByOffset failure",),
        next=(_SEGMENTS,),
        see=("CL-HOLE",),
    ),
    LogLine(
        "selectMappedBuffer request pos invalid, request pos: {}, size: {}, fileFromOffset: {}",
        "MappedFile#selectMappedBuffer",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "something asked for bytes of a file behind its end: a queue unit or an index entry that points beyond the "
        "log's end, or a lookup by an offset that is no record's",
        ("selectMappedBuffer request pos invalid", "selectMapedBuffer request pos invalid"),
        (
            Value("request pos", "position in the file", pattern=r"request pos: (-?\d+)"),
            Value("size", "bytes asked for", pattern=r"size: (-?\d+)"),
            Value("fileFromOffset", "base of the file, its name", pattern=r"fileFromOffset: (\d+)"),
        ),
        (("4.0.0 to 5.5.0", "the physical offset is fileFromOffset + request pos, where the file is a segment"),),
        (_VERIFY,),
        ("CQ-BEYOND", "IX-BEYOND"),
    ),
    LogLine(
        "matched, but hold failed, request pos: {}, fileFromOffset: {}",
        "MappedFile#selectMappedBuffer",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "a file was asked for while it was being deleted by retention or at the shutdown",
        ("matched, but hold failed",),
        next=(_SEGMENTS,),
    ),
    LogLine(
        "The reputFromOffset={} is smaller than minPyOffset={}, this usually indicate that the dispatch behind too "
        "much and the commitlog has expired.",
        "DefaultMessageStore.ReputMessageService#doReput",
        "4.5.2 to 5.5.0",
        SERIOUS,
        "dispatch to the queues was so far behind that retention deleted segments before they were read: the messages "
        "between the two offsets never got queue units. At a start with lost queues it is normal",
        ("this usually indicate that the dispatch behind too much", "is smaller than minPyOffset"),
        (
            Value("reputFromOffset", "dispatched up to here", values.physical_offset),
            Value("minPyOffset", "the log begins here", values.physical_offset, fills="at"),
        ),
        next=(_VERIFY, _SEGMENTS),
        see=("CQ-MISSING", "CQ-EXPIRED"),
    ),
    LogLine(
        "Abort correction as previous min-offset points to {}, which is greater than {}",
        "ConsumeQueue#correctMinOffset",
        "5.0.0 to 5.5.0",
        HARMLESS,
        "the queue's minimum already points into the log and stays",
        ("Abort correction as previous min-offset",),
        next=("rmqinspect decode {store} --table queues",),
        see=("CQ-EXPIRED",),
    ),
    # --- consumers ---
    LogLine(
        "consumer request topic: {}, offset: {}, minOffset: {}, maxOffset: {}, but access logic queue failed.",
        "DefaultMessageStore#getMessage",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "a pull lies between the queue's minimum and maximum, but no queue file has it: a file of the queue is "
        "missing. The consumer is sent to the next file, and what lay between is skipped",
        ("but access logic queue failed",),
        (
            _TOPIC,
            Value("offset", "queue offset asked for", values.queue_offset, r"[^a-z]offset:? ?(\d+)"),
            Value("minOffset"),
            Value("maxOffset"),
        ),
        next=(_QUEUES, _VERIFY),
        see=("CQ-HOLE", "CQ-MISSING"),
    ),
    LogLine(
        "PULL_OFFSET_MOVED:correction offset. topic={}, groupId={}, requestOffset={}, newOffset={}, suggestBrokerId={}",
        "PullMessageProcessor",
        "4.2.0 to 5.5.0",
        DEPENDS,
        "a group asked for an offset that its queue does not have and is sent to another one. Newer: retention "
        "overtook the group, what lay between was never delivered to it. Older: the queue lost its end (or an offset "
        "was reset), and messages may be delivered twice",
        ("PULL_OFFSET_MOVED", "over flow badly, fix to", "fix the request offset"),
        (
            _TOPIC,
            Value("requestOffset", "the group's offset", None, r"(?:requestOffset=|request offset:? )(\d+)"),
            Value("newOffset", "where it is sent", None, r"(?:newOffset=|fix to | to )(\d+)"),
        ),
        (
            ("4.0.0 to 4.9.3", "behind the end of a queue that begins at 0 it is sent to 0: everything comes again"),
            (ALL, "none correction: the broker is a slave and leaves the group where it is"),
        ),
        (_GROUPS, _QUEUES),
        ("ST-GROUP-OFFSET", "ST-GROUP-LOST"),
        _way_moved,
    ),
    LogLine(
        "CODE: 208 DESC: query message by key finished, but no message.",
        "MQAdminImpl#queryMessage (client)",
        "4.2.0 to 5.5.0",
        DEPENDS,
        "a search by key or msg id found nothing: the index covers only what was indexed. Entries are missing after a "
        "crash (the newest index file is deleted), after retention, and while the log lies below the index's end after "
        "a cut; and the search asks for a time range. The message may be in the log all the same",
        (
            "CODE: 208",
            "query message by key finished, but no message",
            "query message by id finished, but no message",
            "can not find message, maybe time range not correct",
        ),
        next=("rmqinspect decode {store} -k KEY", "rmqinspect decode {store} --id MSG_ID", _INDEX_FILES),
        see=("IX-MISSING", "IX-BEYOND", "UNIQ_KEY"),
    ),
    LogLine(
        "can not find message by the offset, {}",
        "QueryMessageProcessor#viewMessageById",
        "4.2.0 to 5.5.0",
        DEPENDS,
        "no record could be read at the physical offset of an offset msg id: before the first segment (expired), "
        "behind the end (cut, or of another broker), or in a hole",
        ("can not find message by the offset",),
        (Value("offset", "", values.physical_offset, r"offset\W+(\d+)", fills="at"),),
        next=(_SHOW, _SEGMENTS),
        see=("CL-HOLE",),
    ),
    # --- index ---
    LogLine(
        "queryMessage exception",
        "DefaultMessageStore#queryMessage",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "a key search followed an index entry to a place without a record: the log was cut or its segment has expired, "
        "or the entry is damaged. The search goes on with the next entry",
        next=("rmqinspect decode {store} --table index_entries",),
        see=("IX-BEYOND", "IX-DANGLING"),
    ),
    LogLine(
        "Index file [{}] is full, trying to create another one",
        "IndexService#putKey",
        "4.0.0 to 5.5.0",
        HARMLESS,
        "an index file has all its entries; the next one is begun. Only now the file is forced to disk and the "
        "checkpoint's index time moves on",
        ("is full, trying to create another one", "Over index file capacity"),
        next=(_INDEX_FILES,),
        see=("indexMsgTimestamp",),
    ),
    LogLine(
        "build index error, stop building index",
        "IndexService#buildIndex",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "no index file can be had (disk full?): the records since then have no entries, and key searches miss them",
        ("build index error, stop building index", "putKey error commitlog", "Mark index file cannot build flag"),
        next=(_INDEX_FILES,),
        see=("IX-MISSING", "WRITE_INDEX_FILE_ERROR"),
    ),
    # --- disk ---
    LogLine(
        "physic disk maybe full soon {}, so mark disk full",
        "DefaultMessageStore.CleanCommitLogService#isSpaceToDelete",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "the disk is fuller than the warning level: the broker takes no more messages and deletes the oldest segments "
        "at once, also such as consumers have not read",
        ("so mark disk full", "disk maybe full soon", "disk space will be full soon"),
        quirks=(
            (ALL, "so reclaim space instead of so mark disk full: retention begins early, messages are still taken"),
        ),
        next=(_SEGMENTS, _GROUPS),
        see=("DISK_FULL", "ST-GROUP-LOST"),
    ),
    LogLine(
        "message store is not writeable, so putMessage is forbidden {}",
        "DefaultMessageStore#putMessage",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "the broker takes no messages; the number at the end has a bit for each reason",
        (
            "message store is not writ",
            "DefaultMessageStore is not writable",
            "not readable, so getMessage is forbidden",
        ),
        (Value("flags", "", RUNNING_FLAGS.words, r"forbidden (\d+)"),),
        next=(_INFO,),
        see=("flagBits",),
    ),
    LogLine(
        "create mapped file1 error, topic: {} clientAddr: {}",
        "CommitLog#putMessage",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "the next segment or the first one could not be made (disk full, permission): the message is refused",
        (
            "create mapped file1 error",
            "create mapped file2 error",
            "create maped file1 error",
            "create mapped file failed, server is busy",
        ),
        next=(_SEGMENTS,),
    ),
    # --- delay and timer ---
    LogLine(
        "schedule CQ offset invalid. offset={}, cqMinOffset={}, cqMaxOffset={}, queueId={}",
        "ScheduleMessageService",
        "4.0.0 to 5.5.0",
        DEPENDS,
        "a delay level's offset (delayOffset.json) lies outside of its queue. Below the minimum: delayed messages "
        "expired before they were delivered. Above the maximum: the queue lost its end, and what it held is gone",
        ("schedule CQ offset invalid", "correct delay offset"),
        (
            Value("offset", "of the level", None, r"invalid\. offset=(\d+)"),
            Value("cqMinOffset"),
            Value("cqMaxOffset"),
            Value("queueId", "level minus 1"),
        ),
        next=("rmqinspect decode {store} --table delay_offsets", _DELAYED),
        see=("SCHEDULE_TOPIC_XXXX", "CQ-BEYOND"),
    ),
    LogLine(
        "Timer currQueueOffset:{} is larger than maxOffsetInQueue:{}",
        "TimerMessageStore#recover, #enqueue",
        "5.0.0 to 5.5.0",
        DEPENDS,
        "the timer's place in rmq_sys_wheel_timer lies outside of that queue. Larger than the maximum: the queue or "
        "the log lost its end. Smaller than the minimum: timer messages expired before they were put into the wheel",
        ("Timer currQueueOffset",),
        (
            Value("currQueueOffset", "the timer's place", values.queue_offset),
            Value("maxOffsetInQueue"),
            Value("minOffsetInQueue"),
        ),
        next=(_TIMER,),
        see=("TM-BEYOND", "rmq_sys_wheel_timer"),
    ),
    LogLine(
        "Fail to read msg from commitLog offsetPy:{} sizePy:{}",
        "TimerMessageStore#getMessageByCommitOffset",
        "5.0.0 to 5.5.0",
        SERIOUS,
        "a timer unit, or a unit of rmq_sys_wheel_timer, points where no record can be read; after three such lines "
        "the message is given up",
        ("Fail to read msg from commitLog",),
        (Value("offsetPy", "where the unit points", values.physical_offset, fills="at"), Value("sizePy")),
        next=(_SHOW, _TIMER),
        see=("TM-BEYOND", "CQ-DANGLING"),
    ),
    LogLine(
        "dequeue time:{} but read nothing from timerLog",
        "TimerMessageStore#dequeue",
        "5.0.0 to 5.5.0",
        SERIOUS,
        "a slot of the wheel says that messages are due, but its chain in the timer log has none: they are not "
        "delivered",
        ("but read nothing from timerLog",),
        (Value("time", "when they were due", values.time, r"dequeue time:\s*(\d+)"),),
        next=(_TIMER,),
        see=("TM-CHAIN",),
    ),
    LogLine(
        "Timer recheck because of minFirst:{} processOffset:{}",
        "TimerMessageStore#recover",
        "5.0.0 to 5.5.0",
        DEPENDS,
        "the wheel points behind the end of the timer log, which was cut or damaged: the start enters the log's units "
        "into the wheel again",
        ("Timer recheck because of minFirst",),
        next=(_TIMER,),
        see=("TM-CHAIN",),
    ),
    # --- ext files ---
    LogLine(
        "[BUG] can't find consume queue extend file content! addr={}, offsetPy={}, sizePy={}, topic={}",
        "DefaultMessageStore#getMessage",
        "4.2.0 to 5.5.0",
        DEPENDS,
        "a queue unit's address leads to no ext unit: the broker cannot filter this message and leaves it to the "
        "client",
        (
            "can't find consume queue extend file content",
            "of consume queue extend not found",
            "Consume queue extend unit",
        ),
        (
            Value("addr", "", values.tags_code),
            Value("offsetPy", "the record", values.physical_offset, fills="at"),
            _TOPIC,
        ),
        next=(_SHOW, _QUEUES),
        see=("EX-ADDRESS",),
    ),
    # --- replicas ---
    LogLine(
        "master pushed offset not equal the max phy offset in slave, SLAVE: {} MASTER: {}",
        "HAClient#dispatchReadRequest",
        "4.0.0 to 5.5.0",
        SERIOUS,
        "the slave's log ends elsewhere than the master goes on: they are not the same log any more, and the slave "
        "drops the connection. After a start that cut one of the two, the larger one has records that the other lost",
        ("master pushed offset not equal the max phy offset in slave",),
        (
            Value("SLAVE", "its log ends here", values.physical_offset, r"SLAVE: (\d+)", fills="at"),
            Value("MASTER", "goes on here", values.physical_offset, r"MASTER: (\d+)"),
        ),
        next=("rmqinspect diff MASTER SLAVE", _SEGMENTS),
        see=("CL-STALE-TAIL",),
    ),
    LogLine(
        "slave[{}] request offset={} greater than local commitLog offset={}.",
        "HAConnection",
        "4.9.7",
        SERIOUS,
        "a slave's log is longer than its master's: the master lost its end",
        ("greater than local commitLog offset",),
        (
            Value("request offset", "the slave's log ends here", values.physical_offset, r"request offset=(\d+)"),
            Value("local", "the master's log ends here", values.physical_offset, r"commitLog offset=(\d+)", fills="at"),
        ),
        next=("rmqinspect diff MASTER SLAVE", _SEGMENTS),
        see=("CL-TORN-TAIL", "CQ-BEYOND"),
    ),
    LogLine(
        "[MONITOR]The processOffset is too small, you should check it manually before truncating the data from {}",
        "DLedgerMmapFileStore#recover",
        "DLedger 0.3.1.2",
        SERIOUS,
        "DLedger: more than a whole file would be lost by ending the log at the first entry that the start refuses; "
        "the process ends instead and leaves the files",
        ("processOffset is too small",),
        (Value("offset", "the first entry that was refused", values.physical_offset, r"data from (\d+)", fills="at"),),
        next=(_SHOW, _VERIFY),
        see=("DL-POSITION", "DL-TERM", "DL-INDEX"),
    ),
    LogLine(
        "Recover data file to the end of {}",
        "DLedgerMmapFileStore#recover",
        "DLedger 0.3.1.2",
        DEPENDS,
        "DLedger: the log ends in this file. Without an exception behind it normal; with DISK_ERROR (pos … != …, size "
        "… != …, index, term) an entry was refused, and what follows it is cut",
        ("Recover data file to the end of", "name=DISK_ERROR"),
        next=(_SEGMENTS, _VERIFY),
        see=("DL-POSITION", "DL-TERM"),
    ),
)
