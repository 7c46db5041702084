"""Every code that `verify` can report, in one table: `--list-checks`, `explain` and docs/findings.md print it.

Codes are stable; scripts depend on them. What a broker makes of a finding is told by version, from
RocketMQ's sources and from what real brokers did.
"""

from dataclasses import dataclass

# `quick` is part of `standard`, and `standard` of `deep`.
LEVELS = ("quick", "standard", "deep")

ALL = "all"
"""In the place of versions: 4.0.0 to 5.5.0."""

Eras = tuple[tuple[str, str], ...]
"""What brokers do, as (versions, effect); versions are `all`, or single ones and `A to B`, with commas."""


@dataclass(frozen=True, slots=True)
class Code:
    """One thing that can be found."""

    code: str
    severity: str  # error: lost, wrong, or a reader gets wrong answers; warning: suspicious; info
    level: str  # the lowest level that looks for it
    rule: str
    broker_effect: str  # what a start or a consumer makes of it, in short
    next: str  # a command; {store} and {at} are filled in
    cause: str  # how it comes about
    eras: Eras  # what a broker of each version does


_SHOW = "rmqinspect show {store} --at {at}"
_INFO = "rmqinspect info {store}"
_VERIFY = "rmqinspect verify {store}"
_GAPS = "rmqinspect decode {store} --table gaps"
_SEGMENTS = "rmqinspect decode {store} --table segments"
_QUEUES = "rmqinspect decode {store} --table queues"
_QUEUE_UNITS = "rmqinspect decode {store} --table queue_units"
_INDEX_FILES = "rmqinspect decode {store} --table index_files"
_INDEX_ENTRIES = "rmqinspect decode {store} --table index_entries"
_GROUPS = "rmqinspect decode {store} --table groups"
_TIMER = "rmqinspect decode {store} -t rmq_sys_wheel_timer"

# Which part of the log a start reads, and what it does at the first record that it refuses.
# CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover; MappedFileQueue#truncateDirtyFiles.
_CUT: Eras = (
    (
        "4.0.0 to 5.3.1",
        "a clean start reads the last three segments; one after an unclean stop begins at the newest segment whose "
        "first record is not newer than the checkpoint minus 3 s, or at the first segment. In there the log ends "
        "at this place, and all segments behind it are deleted",
    ),
    (
        "5.3.2 to 5.3.3",
        "the same, but a clean start begins at the segment in which the consume queues end",
    ),
    (
        "5.4.0 to 5.5.0",
        "a start begins at the newest segment whose first record is sound and known to the queues (clean) or not "
        "newer than the checkpoint (unclean), at most ten segments back; the same cut",
    ),
)
_SKIPPED_RUNNING: Eras = (
    (
        ALL,
        "while it runs, a master that meets it in dispatching skips the rest of what it can read of the segment: "
        "no queue unit and no index entry, never repaired; a slave tries the same place again and again",
    ),
)
# MappedFileQueue#load: the same rules for every folder of mapped files.
_WRONG_LENGTH: Eras = (
    ("4.0.0 to 4.4.0, 4.9.2", "loading stops at it: it and all that sort behind it are ignored, the start goes on"),
    ("4.5.0 to 4.9.1, 4.9.3 to 5.1.2", "the broker does not start"),
    ("5.1.3 to 5.5.0", "an empty file that sorts last is deleted; for any other the broker does not start"),
)
# IndexService#load.
_INDEX_AFTER_CRASH: Eras = (
    (
        ALL,
        "after an unclean stop, index files whose end time is newer than the checkpoint's index time are deleted at "
        "the start; the file that was in use is always one of them",
    ),
)
_NOT_COMPARED = (
    "recovery reads the units of the last three files of a queue and compares none with the log; a pull sends the "
    "bytes at that place as they are, and the client gets a wrong record or none"
)

CODES: tuple[Code, ...] = (
    Code(
        "CL-NAME",
        "error",
        "quick",
        "an entry of the commitlog folder that is no 20-digit base",
        "up to 4.4.0 and in 4.9.2 loading stops at it, and all that sorts behind is ignored; "
        "4.5.0 and later refuse to start, folders excepted from 5.1.0 on",
        _SEGMENTS,
        "somebody or something left it there: a copy, an archive, a desktop's .DS_Store, a folder; "
        "or a segment was renamed",
        (
            (
                "4.0.0 to 4.4.0, 4.9.2",
                "an entry of another length than a segment, a folder too, ends the loading there; it and all that "
                "sort behind are ignored: a name that sorts before the digits makes the log look empty",
            ),
            ("4.5.0 to 4.9.1, 4.9.3 to 5.0.0", "an entry of another length, a folder too: the broker does not start"),
            ("5.1.0 to 5.1.2", "folders are skipped; a file of another length: the broker does not start"),
            (
                "5.1.3 to 5.5.0",
                "folders are skipped, an empty file that sorts last is deleted whatever its name; any other file of "
                "another length: the broker does not start",
            ),
            (ALL, "a file as long as a segment whose name is no number: the start fails"),
        ),
    ),
    Code(
        "CL-SIZE",
        "error",
        "quick",
        "a segment whose length is not the store's segment size",
        "up to 4.4.0 and in 4.9.2 loading stops at it; other versions refuse to start, "
        "but 5.1.3 and later delete an empty last file",
        _SEGMENTS,
        "a copy that was cut or padded, a full disk or a kill while the file was made (then 0 bytes), or another "
        "mappedFileSizeCommitLog than the store was written with",
        (
            *_WRONG_LENGTH,
            (
                "5.1.3 to 5.5.0",
                "an empty file that is the only one is deleted too; the log is then empty and all consume queues "
                "are deleted",
            ),
        ),
    ),
    Code(
        "CL-HOLE",
        "error",
        "quick",
        "a segment is missing between two others",
        "not noticed at a start; the messages in it are gone",
        _SEGMENTS,
        "the file was deleted or lost: by hand, by a repair of the disk, or left out of a copy",
        (
            (
                "4.0.0 to 4.2.0",
                "the start goes on; segments are found by counting from the first, so behind the hole reads come "
                "from a wrong segment or fail",
            ),
            (
                "4.3.0 to 5.5.0",
                "the start goes on; a pull that comes to the hole skips all units up to the next segment",
            ),
            (
                ALL,
                "a line in storeerror.log every ten minutes ([BUG]The mappedFile queue's data is damaged) is all; "
                "a start reads on from the segment before the hole into the one behind it",
            ),
        ),
    ),
    Code(
        "CL-DUPLICATE",
        "error",
        "quick",
        "the same base in two paths",
        "both are loaded, and which one is read is chance",
        _SEGMENTS,
        "a segment was copied to another path of storePathCommitLog, or a path of an older copy was added",
        (
            ("4.0.0 to 4.9.1", "a commit log has one path: it cannot arise"),
            ("4.9.2 to 5.5.0", "both files are loaded, the list holds the base twice; only a line in the log tells"),
        ),
    ),
    Code(
        "CL-MAGIC",
        "error",
        "standard",
        "the chain of records reaches bytes that are neither record, blank record nor zero tail",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _GAPS,
        "a torn write or a disk error over a record's head, text or another file's bytes written over it, or a wrong "
        "length in the record before",
        (*_CUT, *_SKIPPED_RUNNING),
    ),
    Code(
        "CL-LENGTH",
        "error",
        "standard",
        "the lengths inside a record do not add up to its size, or a field runs past it",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _SHOW,
        "bits of a length changed (total size, body, topic, properties), or part of the record was never written",
        (
            (
                "4.0.0 to 4.3.1",
                "after an unclean stop, lengths that only do not add up count as data: the scan goes on where the "
                "fields end and makes a queue unit for an empty topic (files in consumequeue/0)",
            ),
            *_CUT,
            (
                "4.0.0 to 5.3.1",
                "a total size larger than the heap ends the start with an out-of-memory error",
            ),
            (
                ALL,
                "while it runs: a wrong total size costs this record; a wrong inner length makes dispatch lose its "
                "place and skip into the next segment",
            ),
        ),
    ),
    Code(
        "CL-OFFSET",
        "error",
        "standard",
        "a record's own physical offset is not its place: a stale or misplaced record",
        "not noticed at a start; consume queue and index get the wrong offset if it is dispatched again",
        _SHOW,
        "an older life of a reused file, a page of another segment written here, or a file put under a wrong name",
        (
            (
                ALL,
                "never compared with the place; when the record is dispatched, queue unit and index entry get the "
                "offset that it names",
            ),
            (
                "5.4.0 to 5.5.0",
                "of a segment's first record, the offset that it names decides whether a start begins there",
            ),
            (
                "5.5.0",
                "with checkCommitLogOffsetOnRecover (off by default), a start after an unclean stop ends the log "
                "before a record whose offset lies outside of its segment",
            ),
        ),
    ),
    Code(
        "CL-CRC-BODY",
        "error",
        "standard",
        "the body's CRC does not match",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _SHOW,
        "bits of the body changed on the disk or in memory (the finding says so when one flipped bit explains it), "
        "its pages had not all reached the disk at a power cut, or other bytes were written over it",
        (
            *_CUT,
            ("5.2.0 to 5.5.0", "with forceVerifyPropCRC (off by default) the body's CRC is not checked"),
            (
                ALL,
                "with checkCRCOnRecover=false, in segments that a start does not read, and in dispatching, nobody "
                "notices: consumers get the record, and their client checks the CRC",
            ),
        ),
    ),
    Code(
        "CL-CRC-RECORD",
        "error",
        "standard",
        "the whole-record CRC (property __CRC32#) does not match",
        "with forceVerifyPropCRC a start ends the log here; otherwise not noticed",
        _SHOW,
        "any byte of the record changed, also of head, topic and properties, which no other checksum covers; brokers "
        "with enabledAppendPropCRC (5.2.0 and later, off by default) write it",
        (
            ("4.0.0 to 5.1.4", "a property like any other: not looked at"),
            (
                "5.2.0 to 5.5.0",
                "with forceVerifyPropCRC (off by default) a start that reads the record ends the log here and deletes "
                "the segments behind it, as it does at records without the property",
            ),
            ("5.2.0 to 5.3.1", "then a right CRC that happens to be 0 is refused too"),
            (
                "5.4.0 to 5.5.0",
                "then sound records of some batches are refused too: behind properties that do not end in a "
                "separator, the property is glued to the last value and is not found",
            ),
        ),
    ),
    Code(
        "CL-BLANK-SIZE",
        "warning",
        "standard",
        "a blank record whose size is not the number of bytes left",
        "up to 5.3.1 not noticed; 5.3.2 and later end the log here when it is larger",
        _SHOW,
        "bits of the size changed, or the file was cut or padded; a blank record has no checksum",
        (
            ("4.0.0 to 5.3.1", "the size is not compared: reading goes on at the next segment"),
            (
                "5.3.2 to 5.5.0",
                "a size larger than the bytes left ends the log here, where a start reads it, and the segments behind "
                "are deleted; a smaller or negative one is accepted",
            ),
        ),
    ),
    Code(
        "CL-TORN-TAIL",
        "error",
        "standard",
        "the log ends in a record cut off or half zero",
        "a start ends the log before it, which is what a start is for",
        _SHOW,
        "the broker or the machine stopped before the last record had wholly reached the file: the common trace of a "
        "power cut",
        (
            (ALL, "a start ends the log before the record; nothing but this record is lost by it"),
            ("4.0.0 to 4.3.1", "a clean start leaves the queues alone, an unclean one cuts them at that end"),
            ("4.3.2 to 5.5.0", "queues that reach beyond that end are cut there"),
            (
                ALL,
                "a record that is zero only within its properties passes: without enabledAppendPropCRC and "
                "forceVerifyPropCRC no checksum covers them",
            ),
        ),
    ),
    Code(
        "CL-ZERO-INSIDE",
        "error",
        "standard",
        "zeros, then valid records again: pages were lost",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _GAPS,
        "the system writes pages in any order: after a power cut some are still zero while later ones are there; also "
        "lost sectors, or blocks left out of a copy",
        (
            *_CUT,
            (ALL, "the records behind the cut stay on disk until new ones are written over them"),
            *_SKIPPED_RUNNING,
        ),
    ),
    Code(
        "CL-STALE-TAIL",
        "warning",
        "standard",
        "valid records behind the log's end from an earlier life of the file",
        "a start may take them for the log again if the place where they begin is reached exactly",
        _SHOW,
        "an earlier start, or a slave that followed a new master, cut the log here: a cut moves the end and clears no "
        "byte",
        (
            (
                ALL,
                "not read, unless a new record ends exactly where an old one begins: then the next start takes the "
                "old records for the log again, with their old queue offsets",
            ),
            (
                "5.0.0 to 5.5.0",
                "controller mode: a slave that cut its log and stopped before it had written over the rest takes the "
                "old tail for valid at its next start",
            ),
        ),
    ),
    Code(
        "CL-QUEUE-OFFSET",
        "warning",
        "standard",
        "queue offsets of one queue repeat or skip, and no gap lies between",
        "consumers may see a message twice or miss one when the queue is built again",
        _SHOW,
        "the next offset of a queue is the length of its consume queue at a start: where units were lost, cut or "
        "deleted, offsets are given out again; where one was too many, they jump",
        (
            (
                ALL,
                "consumers read by the place in the queue and notice nothing; when units are made again, a record "
                "with a lower offset than the queue's length gets none, one with a higher offset is appended at the "
                "end and shifts all that follow",
            ),
        ),
    ),
    Code(
        "CL-TIME",
        "info",
        "standard",
        "store time runs backwards by more than a second",
        "searches by time may miss messages around it",
        _SHOW,
        "the broker's clock was set back, or another machine's clock took over with a new master",
        (
            (
                "4.0.0 to 4.9.8",
                "a search by time chooses the queue file by its modification time and halves it by store times: "
                "around the step it can answer wrongly",
            ),
            ("5.0.0 to 5.5.0", "the same, with files chosen by the store times of their units"),
            (ALL, "a key search limited to a time can end early at an entry from before the step"),
        ),
    ),
    Code(
        "CL-FIELD",
        "warning",
        "standard",
        "a field out of its domain: port, queue id, compression type, topic, properties",
        "not noticed at a start; clients may fail on the message",
        _SHOW,
        "bits of a field changed that no checksum covers, or a client of another make sent it so",
        (
            (
                ALL,
                "no start compares queue id, host, port, times, topic characters, unused flag bits or UTF-8 with "
                "anything; items of the properties that cannot be split are dropped",
            ),
            ("4.9.4 to 5.5.0", "compression types 4 to 7 make the Java client throw when it reads the message"),
        ),
    ),
    Code(
        "CQ-SIZE",
        "error",
        "quick",
        "a consume queue file whose length is not that of the queue's other files, or no multiple of its unit",
        "up to 4.4.0 and in 4.9.2 the queue's files from it on are ignored; other versions refuse to start, "
        "but 5.1.3 and later delete an empty last file",
        _QUEUES,
        "a copy that was cut or padded, a kill while the file was made (then 0 bytes), or another "
        "mappedFileSizeConsumeQueue than the store was written with",
        _WRONG_LENGTH,
    ),
    Code(
        "CQ-DANGLING",
        "error",
        "standard",
        "a queue unit that points where no record starts, inside the log's range",
        "not noticed at a start; a consumer that comes there gets a wrong record, or skips it",
        _QUEUE_UNITS,
        "bits of the unit changed, the log was cut and written anew while the queue kept its units, or queue and log "
        "are not of one store",
        ((ALL, _NOT_COMPARED),),
    ),
    Code(
        "CQ-BEYOND",
        "error",
        "standard",
        "a queue unit that points at or behind the log's end",
        "a start cuts the queue there; the messages it counted are not in the log",
        _QUEUE_UNITS,
        "the log lost its end while the queue had reached the disk (they are flushed independently), or an earlier "
        "start cut the log and left the queues",
        (
            (
                "4.0.0 to 4.3.1",
                "a clean start leaves the units: records written since get no unit until the log has grown past the "
                "newest one; a start after an unclean stop cuts all queues at the log's end",
            ),
            ("4.3.2 to 5.5.0", "a start cuts all queues at the log's end as soon as one reaches it"),
            (ALL, "a unit whose record begins before the log's end stays, though the record runs past it"),
        ),
    ),
    Code(
        "CQ-MISMATCH",
        "error",
        "standard",
        "the record that a queue unit points at is of another topic or queue, or has another size",
        "not noticed at a start; a consumer gets the wrong message, or fails to decode it",
        _SHOW,
        "bits of the unit or of the record's head changed, the log was cut and written anew below the queue, or a "
        "queue folder was copied or renamed",
        ((ALL, _NOT_COMPARED),),
    ),
    Code(
        "CQ-TAG",
        "warning",
        "standard",
        "a queue unit's tags code is not the hash of the record's TAGS (schedule topic: its time of delivery)",
        "not noticed at a start; a consumer that filters by tag misses the message, or the delay is wrong",
        _SHOW,
        "bits of the unit or of the properties changed",
        (
            (
                ALL,
                "the broker compares the low 32 bits with the hashes of the tags that a group asked for and leaves "
                "the message out where they differ",
            ),
            (
                ALL,
                "in SCHEDULE_TOPIC_XXXX it is the time of delivery in ms: a time that has passed, or lies further away "
                "than the level's delay, is delivered at once",
            ),
            (
                "4.9.2 to 4.9.8",
                "units that a recovery made for the schedule topic hold the hash of the tags instead of the time: "
                "known, and no finding",
            ),
        ),
    ),
    Code(
        "CQ-SHIFT",
        "error",
        "standard",
        "a unit's place in its queue is not the queue offset of its record",
        "not noticed at a start; consumer offsets, lag and lookups by queue offset are off by that much",
        _QUEUE_UNITS,
        "a unit before it was lost or one too many was made: the broker appends at the queue's end whatever the "
        "record's offset is, so all that follow are shifted too",
        (
            (
                ALL,
                "logged as [BUG]logic queue order maybe wrong for each message that is appended too early; pulls are "
                "served by the place in the queue",
            ),
            (
                ALL,
                "a crash right after a new queue file was made can leave one unit of zeros too many: the start that "
                "cuts the queues takes the first unit of a queue's last file without looking at it",
            ),
        ),
    ),
    Code(
        "CQ-MISSING",
        "error",
        "deep",
        "a record that is entitled to a queue unit has none: consumers will not get it",
        "an unclean start adds units for the part of the log it reads only; older ones stay missing",
        _SHOW,
        "dispatch met a damaged record and skipped the rest of the segment, the queue's last pages were lost in a "
        "power cut, an append failed and was reported as done when it was tried again, or queue files were deleted",
        (
            ("4.0.0 to 4.4.0, 5.0.0 to 5.3.1", "a clean start adds nothing"),
            ("4.5.0 to 4.9.8", "a clean start adds what lies behind the newest unit of all queues"),
            (
                "5.3.2 to 5.5.0",
                "a clean start adds the same except the first such record, as far as it reads that part of the log",
            ),
            (
                ALL,
                "a start after an unclean stop adds what is missing in the part of the log that it reads; a unit that "
                "is missing before a later one of its queue is never added",
            ),
        ),
    ),
    Code(
        "CQ-BEHIND",
        "info",
        "deep",
        "after an unclean stop: the newest records have no queue unit yet",
        "the next unclean start adds them",
        _QUEUES,
        "dispatch runs behind the log: at the kill these records had no unit yet, or its page had not reached the disk",
        (
            (ALL, "a start after an unclean stop dispatches every sound record of the part of the log that it reads"),
            (
                "5.0.0 to 5.4.0",
                "the checkpoint's queue time can be ahead of the queues on disk: after a power cut that part may begin "
                "too late for some of them",
            ),
            (
                "4.0.0 to 4.4.0, 5.0.0 to 5.3.1",
                "without the abort file the start counts as clean and adds none of them: then they are lost to "
                "consumers",
            ),
        ),
    ),
    Code(
        "CQ-ORDER",
        "error",
        "standard",
        "the physical offsets of a queue's units do not ascend",
        "not noticed at a start; searches by time and by physical offset in this queue go wrong",
        _QUEUE_UNITS,
        "bits of a unit changed, or units of an earlier life of the queue were kept",
        (
            (ALL, _NOT_COMPARED),
            ("4.0.0 to 4.9.8", "a search by time halves the queue's file and can go the wrong way"),
            (
                "5.0.0 to 5.5.0",
                "so does the search for the queue's minimum after retention, which halves the first file by physical "
                "offset",
            ),
        ),
    ),
    Code(
        "CQ-HOLE",
        "error",
        "standard",
        "an unused unit followed by used ones",
        "a start that reads this part of the queue ends the queue here and gives its offsets out again",
        _QUEUE_UNITS,
        "a page of the queue had not reached the disk at a power cut while later ones had, or was lost or cleared",
        (
            (
                ALL,
                "a start reads the last three files of each queue and ends the queue at its first unused unit; what "
                "follows is cut and its offsets are given out again. In older files the hole is not noticed",
            ),
            (
                ALL,
                "after an unclean stop, units for the part of the log that is read are appended at the cut, shifted "
                "where they do not continue it",
            ),
        ),
    ),
    Code(
        "CQ-ZERO-BEHIND",
        "info",
        "standard",
        "a unit with physical offset 0 that is no filler, while the log begins later: normal after retention",
        "4.x serves the start of the first segment that is left for it",
        _QUEUES,
        "the unit of the store's very first record, whose segment retention has deleted",
        (
            (
                "4.0.0 to 4.9.8",
                "answered as found (seen on 4.9.7): the broker reads at the start of the first segment that is left "
                "and sends a wrong or undecodable record",
            ),
            ("5.0.0 to 5.5.0", "the queue's minimum lies behind it; a pull is sent there"),
        ),
    ),
    Code(
        "CQ-EXPIRED",
        "info",
        "standard",
        "units of records before the log's first segment: normal after retention",
        "a pull for them is sent to the queue's minimum",
        _QUEUES,
        "retention deletes whole segments; a queue file goes when its last unit points before the first segment, the "
        "last file of a queue never",
        (
            (
                "4.0.0 to 4.9.8",
                "the minimum is the first unit of the first file that points into the log; a queue with none left has "
                "the minimum 0",
            ),
            ("5.0.0 to 5.5.0", "a queue with none left has its maximum as minimum and keeps counting"),
        ),
    ),
    Code(
        "IX-SIZE",
        "error",
        "quick",
        "an index file whose length does not fit its settings",
        "a shorter file is extended with zeros when it is mapped, the end of a longer one is not read",
        _INDEX_FILES,
        "a copy that was cut or padded, or other settings maxHashSlotNum and maxIndexNum than it was written with",
        (
            (
                ALL,
                "the length is not checked: the file is mapped with the configured size; with another number of slots "
                "all older files are misread, silently",
            ),
            *_INDEX_AFTER_CRASH,
        ),
    ),
    Code(
        "IX-HEADER",
        "error",
        "quick",
        "an index header that contradicts itself, or its entries",
        "key searches skip the file or walk wrong chains; an unclean start may delete or keep the wrong files",
        _INDEX_FILES,
        "a crash between the pages of header, slots and entries, which reach the disk at different times, or bits of "
        "the header changed",
        (
            (
                ALL,
                "not checked at a start: the two times choose the files that a search reads, the count bounds its "
                "chains, and records before the end offset get no entry",
            ),
            ("4.0.0 to 4.7.0", "hashSlotCount counts entries instead of used slots: known, and no finding"),
            *_INDEX_AFTER_CRASH,
        ),
    ),
    Code(
        "IX-CHAIN",
        "error",
        "deep",
        "a chain of index entries that loops, leaves the file's entries, or crosses into another slot",
        "a key search in this slot ends early, or never where several entries form a loop",
        _INDEX_ENTRIES,
        "after a crash the page of a slot was saved and the header was not: the next entry gets itself for "
        "predecessor; or bits of an entry changed",
        (
            (
                ALL,
                "a search ends at an entry that is its own predecessor or names one out of range: older entries of the "
                "slot are not found",
            ),
            (
                ALL,
                "a loop over several entries is not noticed: a search that finds no match in it goes round without end",
            ),
            *_INDEX_AFTER_CRASH,
        ),
    ),
    Code(
        "IX-DANGLING",
        "error",
        "deep",
        "an index entry that points where no record starts, inside the log's range",
        "a key search reads a wrong place, or finds nothing there",
        _INDEX_ENTRIES,
        "the log was cut and written anew while the index kept its entries, or bits of the entry changed",
        (
            (
                ALL,
                "a search takes the four bytes there for a size: it finds nothing (a line queryMessage exception) or a "
                "wrong record, which the client drops because it has not the key",
            ),
            *_INDEX_AFTER_CRASH,
        ),
    ),
    Code(
        "IX-BEYOND",
        "warning",
        "deep",
        "an index entry that points at or behind the log's end",
        "a start leaves it, and indexes no new record until the log has grown past it",
        _INDEX_ENTRIES,
        "the log lost its end or a start cut it; index files are never cut",
        (
            (
                ALL,
                "the entry stays; records below the file's end offset get no entry, so new ones are not found by key "
                "until the log has grown past it, and the old entries then point into other records",
            ),
            *_INDEX_AFTER_CRASH,
        ),
    ),
    Code(
        "IX-KEY",
        "error",
        "deep",
        "no key of the record that an index entry points at has the entry's hash",
        "a search for the record's key misses it, one for another key finds it",
        _SHOW,
        "the entry is of a record from before a cut of the log, or bits of the entry or of the properties changed",
        (
            (
                ALL,
                "a search compares hashes only and returns the record; the client drops what has not the key it asked "
                "for",
            ),
        ),
    ),
    Code(
        "IX-TIME",
        "warning",
        "deep",
        "an index entry's time does not fit its record's store time",
        "a key search limited to a time misses the record",
        _SHOW,
        "bits of the entry or of the header's begin time changed; a clock set back gives entries with the difference 0",
        (
            (
                ALL,
                "an entry's time is the begin time and whole seconds: outside of the asked range it is passed over, "
                "and one before the range ends the walk through the chain",
            ),
            (ALL, "the first entry of a file that follows a full one has a wrong difference: known, and no finding"),
        ),
    ),
    Code(
        "IX-MISSING",
        "warning",
        "deep",
        "a record with keys has no entry in the range that the index covers: a key search will miss it",
        "not noticed at a start; only a search through the log finds the message by key",
        _SHOW,
        "the index file in use was deleted after a crash, nothing was indexed while the log lay below the index's end, "
        "or dispatch skipped the record behind a damaged one",
        (
            *_INDEX_AFTER_CRASH,
            (
                ALL,
                "only records of the part of the log that such a start reads are indexed again; older ones never, "
                "unless messageIndexSafe (off by default) makes it begin early enough",
            ),
            ("5.4.0 to 5.5.0", "even then at most ten segments back"),
        ),
    ),
    Code(
        "ST-ABORT",
        "info",
        "quick",
        "the abort file is there: unclean stop, or the broker runs",
        "the next start counts as unclean: part of the log is dispatched again, newer index files are deleted",
        _INFO,
        "the broker was killed or the machine went down; or it runs; or it stopped in order while records were not "
        "dispatched or the store was not writable",
        (
            ("4.0.0 to 4.9.8", "the file is empty"),
            ("5.0.0 to 5.5.0", "the file holds the process id; abort.bak beside it says nothing"),
            (
                ALL,
                "the start reads the log from a segment that the checkpoint chooses and dispatches its records to "
                "queues and index again",
            ),
            *_INDEX_AFTER_CRASH,
            (
                "5.4.0 to 5.5.0",
                "a start that fails before a segment was loaded deletes the file: the next one counts as clean",
            ),
        ),
    ),
    Code(
        "ST-RUNNING",
        "warning",
        "quick",
        "another process holds the store's lock",
        "the files may change while they are read",
        _INFO,
        "a broker runs on this store",
        (
            ("4.0.0 to 4.1.0", "there is no lock: a running broker cannot be told from a crashed one"),
            (
                "4.2.0 to 5.5.0",
                "the lock is taken after loading and recovery: a second broker started on the store has already cut "
                "and deleted files when it fails with Lock failed,MQ already started",
            ),
        ),
    ),
    Code(
        "ST-UNCHECKED",
        "info",
        "quick",
        "a part of the store that was not checked",
        "nothing follows from it: what was not read was not judged",
        _INFO,
        "it is in a format that is not read here, or the level or the choice of checks left it out",
        ((ALL, "a broker reads these parts all the same, and may find in them what was not looked for here"),),
    ),
    Code(
        "ST-CHECKPOINT",
        "warning",
        "quick",
        "the checkpoint is unreadable, or newer than the newest record",
        "an unclean start chooses by it where to begin; a wrong one costs time or messages",
        "rmqinspect decode {store} --table checkpoint",
        "newer than the log: the log lost its end, or the file comes from elsewhere; unreadable: cut, or lost pages",
        (
            (
                "4.0.0 to 5.3.3",
                "a clean start does not read it; after an unclean stop the log is read from the newest segment whose "
                "first record is not newer than the lower of physicMsgTimestamp and logicsMsgTimestamp minus 3 s. "
                "Missing or 0: from the first segment",
            ),
            ("5.4.0", "the same, at most ten segments back"),
            (
                "5.5.0",
                "after an unclean stop logicsPhysicalOffset decides, or logicsMsgTimestamp where it is 0; at most ten "
                "segments back",
            ),
            ("4.0.0 to 4.5.2", "a slave never sets physicMsgTimestamp: each unclean start reads the whole log"),
            ("5.0.0 to 5.4.0", "logicsMsgTimestamp can be ahead of the queues on disk"),
        ),
    ),
    Code(
        "ST-IO",
        "error",
        "quick",
        "the system could not read something: it was skipped, the verdict is incomplete",
        "not known: brokers map the files, and what a read error there does was not tried",
        _VERIFY,
        "a failing disk, a file system that was unmounted or truncated under the reader, or a missing permission",
        ((ALL, "not known; copy what can be read to a sound disk before anything is started, and verify the copy"),),
    ),
    Code(
        "ST-GROUP-OFFSET",
        "warning",
        "deep",
        "a consumer offset behind the end of its queue",
        "a pull is sent to the queue's end (up to 4.9.3 to 0 where the queue begins at 0); once the queue has grown "
        "past the offset, what lies between is skipped",
        _GROUPS,
        "queue or log lost their end, or a start cut them, while the offsets, saved every 5 s, kept the old numbers; "
        "or consumerOffset.json is of another store",
        (
            (
                "4.0.0 to 4.9.3",
                "a pull is answered with the queue's end as next offset, or with 0 where the queue begins at 0: then "
                "everything is delivered again",
            ),
            ("4.9.4 to 5.5.0", "a pull is answered with the queue's end as next offset"),
            (ALL, "if the queue grows past the offset before the group pulls, what was stored between is skipped"),
        ),
    ),
    Code(
        "ST-GROUP-LOST",
        "info",
        "deep",
        "a consumer offset before the start of its queue: retention overtook the group",
        "the group goes on at the queue's start; what lay between was never delivered to it",
        _GROUPS,
        "the group was stopped or slower than retention (fileReservedTime, or the disk filled up)",
        ((ALL, "a pull is answered with the queue's minimum as next offset"),),
    ),
    Code(
        "ST-CONFIG",
        "error",
        "quick",
        "a configuration file that the broker cannot read",
        "the broker reads the .bak file instead, if there is one that it can decode",
        _INFO,
        "the machine went down, or the disk was full, while the file was being saved; or it was edited by hand",
        (
            (
                "4.0.0 to 5.0.0",
                "saved as X.tmp, then X is copied to X.bak and replaced, without a sync: a crash can leave no X, a "
                "power cut an empty X or one of zeros",
            ),
            ("5.1.0 to 5.3.3", "saved over X in place after X.bak, without a sync: a crash can leave X empty or cut"),
            (
                "5.4.0 to 5.5.0",
                "X is moved to X.bak, then written and synced: a crash can leave no X or a short one; a start deletes "
                "an X that is empty or cannot be decoded",
            ),
            (
                ALL,
                "a start reads X, or X.bak where X is missing, empty or cannot be decoded. Where X.bak cannot be "
                "decoded, it fails; where there is no X.bak, it goes on with an empty table",
            ),
        ),
    ),
    Code(
        "BQ-COUNT",
        "error",
        "standard",
        "a batch unit whose base and count do not lead to the next one, or are not its record's INNER_BASE, INNER_NUM",
        "not noticed at a start; offsets of the queue are given out twice or skipped",
        _QUEUE_UNITS,
        "bits of the unit changed, or a unit between was lost",
        (
            ("4.0.0 to 4.9.8", "there are no batch consume queues"),
            (
                "5.0.0 to 5.5.0",
                "a unit counts as valid when offset and base are not negative and size and count are above 0; "
                "neighbours are not compared",
            ),
        ),
    ),
    Code(
        "BQ-ORDER",
        "error",
        "standard",
        "the physical offsets or store times of a queue's batch units do not ascend",
        "not noticed at a start; searches by time and offset in this queue go wrong",
        _QUEUE_UNITS,
        "bits of a unit changed, or the broker's clock was set back (store times)",
        (
            ("4.0.0 to 4.9.8", "there are no batch consume queues"),
            (
                "5.0.0 to 5.5.0",
                "neighbours are not compared at a start; units are found by halving the files on base offset or time",
            ),
        ),
    ),
    Code(
        "EX-ADDRESS",
        "error",
        "standard",
        "a queue unit's ext address leads to no ext unit",
        "the consumer's filter sees no tags and no filter bits for the message",
        _QUEUE_UNITS,
        "ext files were deleted, cut or lost their last pages in a crash (they are flushed apart from the queue), or "
        "bits of the address changed",
        (
            ("4.0.0", "there are no ext files"),
            (
                "4.1.0 to 5.5.0",
                "logged as [BUG] can't find consume queue extend file content; the broker lets the message through "
                "its tag filter and leaves the tags to the client",
            ),
        ),
    ),
    Code(
        "EX-SIZE",
        "error",
        "standard",
        "an ext unit whose size does not fit its file",
        "a start that recovers the ext file ends it there",
        _QUEUE_UNITS,
        "bits of a size changed, or a page of the file was lost",
        (
            ("4.0.0", "there are no ext files"),
            (
                "4.1.0 to 5.5.0",
                "with ext files still enabled, a start reads all of them by their sizes; a size of 0 or less means "
                "the end of the file. Then they are cut to the highest address that the queue has",
            ),
        ),
    ),
    Code(
        "TM-CHAIN",
        "error",
        "deep",
        "the timer log: a previous position that is no unit, or a slot whose chain is broken",
        "timer messages behind the break are not delivered when their time comes",
        _TIMER,
        "wheel and timer log reached the disk at different times, bits changed, or the file timerwheel is of another "
        "time than the log (snapshots of 5.4.0 and later)",
        (
            ("4.0.0 to 4.9.8", "there are no timer messages"),
            (
                "5.0.0 to 5.5.0",
                "a start reads the timer log from its last flushed file on, enters the units into the wheel, and cuts "
                "the log at the first unit of a wrong size or magic",
            ),
            (
                "5.0.0 to 5.5.0",
                "when a slot's time comes its chain is followed from the newest unit back; what lies behind a break "
                "is not reached",
            ),
        ),
    ),
    Code(
        "TM-BEYOND",
        "warning",
        "deep",
        "a timer unit that points at or behind the log's end",
        "its message is gone; the broker logs it and goes on",
        _TIMER,
        "the log lost its end or a start cut it; the timer's files are not corrected then",
        (
            ("4.0.0 to 4.9.8", "there are no timer messages"),
            (
                "5.0.0 to 5.5.0",
                "tried three times when it is due (Fail to read msg from commitLog), then given up; once the log has "
                "grown past it, the unit points at other bytes",
            ),
        ),
    ),
    Code(
        "DL-INDEX",
        "error",
        "standard",
        "a DLedger index unit that is not its entry's: position, size, index or term",
        "a start rebuilds the index of the last files; older units mislead reads by index",
        _SEGMENTS,
        "the pages of data and index files reached the disk at different times, or bits changed",
        (
            ("4.0.0 to 4.4.0", "there is no DLedger"),
            (
                "4.5.0 to 5.5.0",
                "a start begins at the third-last data file, or before it at the next one whose first entry agrees "
                "with its index unit, and writes the index anew from the first unit that differs; units of older "
                "files stay",
            ),
        ),
    ),
    Code(
        "DL-TERM",
        "error",
        "standard",
        "the term of DLedger entries runs backwards, or their index skips",
        "a start that reads this part ends the log here",
        _SHOW,
        "behind the log's end: entries of an earlier life, which a follower cut when it followed a new leader; "
        "elsewhere bits changed",
        (
            ("4.0.0 to 4.4.0", "there is no DLedger"),
            (
                "4.5.0 to 5.5.0",
                "a start ends the log at the first entry whose index is not the one before plus 1 or whose term is "
                "lower; where more than a whole file would be lost by that, the process exits instead ([MONITOR]The "
                "processOffset is too small)",
            ),
        ),
    ),
    Code(
        "DL-POSITION",
        "error",
        "standard",
        "a DLedger entry's own position is not its place",
        "a start that reads this part ends the log here",
        _SHOW,
        "bits changed, or the file was put under a wrong name or written over",
        (
            ("4.0.0 to 4.4.0", "there is no DLedger"),
            (
                "4.5.0 to 5.5.0",
                "a start ends the log at the first such entry of the files that it reads (the last three), or exits "
                "where more than a whole file would be lost; record and CRC inside are not looked at",
            ),
        ),
    ),
)

BY_CODE = {code.code: code for code in CODES}


def levels_up_to(level: str) -> tuple[str, ...]:
    """Return the levels whose checks `level` includes."""
    return LEVELS[: LEVELS.index(level) + 1]
