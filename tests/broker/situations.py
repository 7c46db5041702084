"""Stores in situations that no recorded store is in, written by a real store class and named for what happened to them.

`made` gives the store of a situation, and the settings that it is to be started with. Each function says what RocketMQ
does there, and where that is written.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from rmqinspect.broker.version_estimate import RELEASES
from tests.broker import damages
from tests.broker.damages import (
    flip_bit,
    leave_abort,
    lose_power,
    records_of,
    set_checkpoint,
)
from tests.support.real_brokers import HARNESS, RealBrokers, Written

SIZES = {
    "mappedFileSizeCommitLog": "32768",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "61",
    "maxIndexNum": "160",
    "flushConsumeQueueThoroughInterval": "1000",
}
SPEC: Mapping[str, object] = {"count": 160, "settle_millis": 200}
PAUSED: Mapping[str, object] = {**SPEC, "pause_every": 80, "pause_millis": 1100}  # over some time
_BODY = 300  # bytes
EVEN: Mapping[str, object] = {
    "seed": 2,
    "count": 160,
    "kinds": {"normal": 1},
    "body_min": _BODY,
    "body_max": _BODY,
    "settle_millis": 200,
}

Make = Callable[[RealBrokers, str, Path, Mapping[str, str]], None]


class Situation(NamedTuple):
    """How a store came to be, and what the broker that starts it next has in broker.conf beside the sizes."""

    make: Make
    settings: Mapping[str, str]
    since: str = "4.9.7"  # the first release that can be in it


def make(name: str, brokers: RealBrokers, release: str, root: Path) -> None:
    """Write the store of a situation with a release."""
    SITUATIONS[name].make(brokers, release, root, {**SIZES, **SITUATIONS[name].settings})


def made(name: str, brokers: RealBrokers, release: str) -> tuple[Path, Mapping[str, str]]:
    """Return the store of a situation, made for the first question about it and kept, and its settings.

    No name has a comma: RocketMQ takes one in a path for two paths (MixAll.MULTI_PATH_SPLITTER).
    """
    sources = Path(__file__), Path(damages.__file__), *sorted(HARNESS.rglob("*.java"))
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqinspect" / "broker-situations"
    folder = cache / digest / release / name
    if not folder.is_dir():
        fresh = folder.with_name(f"{name}.{os.getpid()}")
        make(name, brokers, release, fresh / "store")
        with contextlib.suppress(OSError):  # another process was faster
            fresh.rename(folder)
    return folder / "store", {**SIZES, **SITUATIONS[name].settings}


def situations_of(release: str) -> list[str]:
    """Return the names of the situations that a store of a release can be in."""
    known = RELEASES.index(release)
    return [name for name, situation in SITUATIONS.items() if RELEASES.index(situation.since) <= known]


def restarted_twice(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """Killed, cut at a flipped bit by the next start, killed again: old records lie behind the end of the log.

    MappedFileQueue#truncateDirtyFiles sets positions and clears nothing. The next scan ends where the new records end:
    the bytes there are the middle of an old record. What lies behind was given up by the start before.
    """
    _write(brokers, release, root, settings, EVEN, end="halt")
    flip_bit(root, segment=_last_used(root), record=-12, byte=100, bit=0)
    _write(brokers, release, root, settings, EVEN, count=3, body_min=99, body_max=99, end="halt")


def accepted_again(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """As `restarted_twice`, but a new record ends exactly where an old one begins, so that old records are valid again.

    CommitLog#recoverAbnormally and #recoverNormally ask nothing of a record but what is in it.
    """
    written = _write(brokers, release, root, settings, EVEN, end="halt")
    segment = _last_used(root)
    start, end = records_of(sorted((root / "commitlog").iterdir())[segment].read_bytes())[-12]
    flip_bit(root, segment=segment, record=-12, byte=100, bit=0)
    # The second run begins with the message that the first run began with: its body makes it as long as the old record.
    body = _BODY + end - start - written.records[0].size
    (over,) = _write(brokers, release, root, settings, EVEN, count=1, body_min=body, body_max=body, end="halt").records
    assert over.size == end - start, "another message than in the first run"


def flushed_at_once(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """flushDiskType=SYNC_FLUSH, killed.

    CommitLog#getConfirmOffset is the flushed position from 5.3.2 on, which recovery sets to the end of the scan: the
    start is as any other.
    """
    _write(brokers, release, root, settings, SPEC, settle_millis=0, end="halt")


def from_a_pool(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """transientStorePoolEnable=true, killed right after the last put: what was not committed to the file is lost.

    MappedFile#getReadPosition is the committed position then, so the dispatcher is never ahead of the file.
    """
    _write(brokers, release, root, settings, SPEC, settle_millis=0, end="halt")


def of_a_slave(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """A slave that was killed behind its master: brokerRole=SLAVE, brokerId=1.

    Its log has the bytes of the master's (HAClient#dispatchReadRequest), its queues are its own. At the start a slave
    waits for ever at a record that dispatch refuses (ReputMessageService#doReput), where a master skips it.
    """
    _write(brokers, release, root, {**settings, "brokerRole": "ASYNC_MASTER", "brokerId": "0"}, SPEC, end="halt")
    set_checkpoint(root, "physic_msg_timestamp", "=0")


def in_controller_mode(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """enableControllerMode=true, killed with a confirm offset in the middle of the log, and an epoch file.

    CommitLog#getConfirmOffset of a slave is the checkpoint's: an unclean start dispatches records that end before it,
    and reput ends there. EpochFileCache reads the epoch file in start(), and only logs what is wrong with it.
    """
    written = _write(brokers, release, root, SIZES, SPEC, end="halt")
    confirmed = written.records[len(written.records) // 2]
    set_checkpoint(root, "confirm_phy_offset", f"={confirmed.physical_offset}")
    (root / "epochFileCheckpoint").write_text("1\n1\n1-0\n")


def long_topic_in_controller_mode(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """As before, with records of version 2: ConsumeQueueStore#compensateForHA throws at their magic code."""
    _write(brokers, release, root, SIZES, SPEC, kinds={"normal": 9, "long_topic": 1}, end="halt")


def power_lost(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """Half of the pages of the last second never reached the disk.

    The kernel writes pages of mapped files in any order, so valid records follow zeros, in the log and in the queues.
    """
    _write(brokers, release, root, settings, PAUSED, end="halt")
    lose_power(root, seconds=1, odds=50, seed=1)


def power_lost_everywhere(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """As before, with nearly all pages lost: the queues end long before the log."""
    _write(brokers, release, root, settings, PAUSED, end="halt")
    lose_power(root, seconds=1, odds=90, seed=2)


def disk_full_at_append(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """The next segment could not be made: the log ends in a blank record, with nothing behind it.

    CommitLog#asyncPutMessage answers CREATE_MAPPED_FILE_FAILED after the blank was written, and from then on
    AllocateMappedFileService makes no file. A folder with the name of the third segment stands for the full disk here.
    """
    following = root / "commitlog" / f"{2 * int(settings['mappedFileSizeCommitLog']):020}"
    _write(brokers, release, root, settings, SPEC, count=1, end="halt")
    following.mkdir()
    _write(brokers, release, root, settings, SPEC, end="halt")
    following.rmdir()


def disk_full_at_shutdown(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """Stopped in order while the disk was too full for writing: `abort` stays, though all is flushed and dispatched.

    DefaultMessageStore#shutdown removes it only when RunningFlags#isWriteable; CleanCommitLogService clears that flag.
    """
    _write(brokers, release, root, settings, SPEC)
    leave_abort(root, "" if release.startswith("4.") else "4711")


def recovered_concurrently(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """recoverConcurrently=true: ConsumeQueueStore#recoverConcurrently recovers queues in threads, with one result."""
    _write(brokers, release, root, settings, SPEC, end="halt")


def index_safe(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """messageIndexSafe=true, killed: the scan starts where the index was flushed, so that what is deleted comes again.

    CommitLog#isMappedFileMatchedRecover compares with StoreCheckpoint#getMinTimestampIndex; 5.4.0 with the time itself.
    """
    _write(brokers, release, root, settings, PAUSED, end="halt")


def dispatcher_behind(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """Killed with twenty puts that were not dispatched."""
    _write(brokers, release, root, settings, SPEC, stop_dispatch=20, end="halt")


def never_used(brokers: RealBrokers, release: str, root: Path, settings: Mapping[str, str]) -> None:
    """Started and stopped without a message: 5.4.0 removes `abort` of such a store, and there is no segment."""
    _write(brokers, release, root, settings, SPEC, count=0)


_SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}

SITUATIONS: Mapping[str, Situation] = {
    "restarted-twice": Situation(restarted_twice, {}),
    "old-records-accepted": Situation(accepted_again, {}),
    "sync-flush": Situation(flushed_at_once, {"flushDiskType": "SYNC_FLUSH"}),
    "transient-store-pool": Situation(from_a_pool, {"transientStorePoolEnable": "true"}),
    "slave": Situation(of_a_slave, _SLAVE),
    "controller-slave": Situation(in_controller_mode, {"enableControllerMode": "true", **_SLAVE}, "5.1.4"),
    "controller-master": Situation(in_controller_mode, {"enableControllerMode": "true"}, "5.1.4"),
    "controller-v2-records": Situation(
        long_topic_in_controller_mode, {"enableControllerMode": "true", **_SLAVE}, "5.1.4"
    ),
    "power-lost": Situation(power_lost, {}),
    "power-lost-everywhere": Situation(power_lost_everywhere, {}),
    "disk-full-at-append": Situation(disk_full_at_append, {}, "5.1.4"),
    "disk-full-at-shutdown": Situation(disk_full_at_shutdown, {}),
    "recover-concurrently": Situation(recovered_concurrently, {"recoverConcurrently": "true"}),
    "message-index-safe": Situation(index_safe, {"messageIndexSafe": "true"}),
    "dispatcher-behind": Situation(dispatcher_behind, {}),
    "never-used": Situation(never_used, {}),
}


def _write(
    brokers: RealBrokers,
    release: str,
    root: Path,
    settings: Mapping[str, str],
    spec: Mapping[str, object],
    **more: object,
) -> Written:
    return brokers.write_store(release, root, {**spec, **more}, settings)


def _last_used(root: Path) -> int:
    """Return the number of the last segment that has records: one that was made ahead may follow."""
    segments = sorted((root / "commitlog").iterdir())
    return max(number for number, path in enumerate(segments) if records_of(path.read_bytes()))
