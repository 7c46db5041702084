"""Which broker versions can have written a store: no file says so, the content shows it.

Idea: each clue, a trace that only some releases leave, allows some releases. The estimate is what all clues allow.

    lock                        4.2.0 ................................ 5.5.0
    no separator at the end            4.9.1 ... 5.1.4
    abort.bak                              5.0.0 ..................... 5.5.0
    estimate                               5.0.0 - 5.1.4

Invariants:
  - a strong clue rests on something that is there, and is believed;
  - a weak clue rests on something absent, which proves little for a store that was copied in part: it is dropped
    where it contradicts the others;
  - where strong clues contradict each other, several versions wrote in turn, and the last one is meant: only clues
    without an upper end count;
  - where another program wrote (`broker.version_evidence`), too: it has traces of several releases, and lacks others;
  - the clues shown are those without which the range would be wider.

Source: the history of the store's classes, RocketMQ 4.0.0 to 5.5.0.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from rmqinspect import choices
from rmqinspect.broker.version_evidence import Evidence, OtherWriter, gather
from rmqinspect.commitlog.tail import BROKER_NAMES, Sample, find_log_end, sample_edges
from rmqinspect.schemas.index import IndexSlot
from rmqinspect.store.log_paths import named_folders
from rmqinspect.store.model import Store
from rmqinspect.system import uri

RELEASES = choices.RELEASES
OLDEST, YOUNGEST = RELEASES[0], RELEASES[-1]
_MOST_NAMED = 5  # clues


class VersionEstimate(Struct, frozen=True):
    """The releases from `low` to `high`, both included, and the clues that show it."""

    low: str
    high: str
    clues: tuple[str, ...]
    contradiction: str = ""  # why the version that was named cannot be the only writer
    other: OtherWriter | None = None  # that wrote, too, or alone: then the releases are those with its formats

    @property
    def releases(self) -> tuple[str, ...]:
        """All releases of the range."""
        return RELEASES[RELEASES.index(self.low) : RELEASES.index(self.high) + 1]

    def __str__(self) -> str:
        if self.high == YOUNGEST:
            return f"{self.low} or later" if self.low != OLDEST else "any version"
        return self.low if self.low == self.high else f"{self.low} to {self.high}"


# --- the clues ----------------------------------------------------------------------------------


class Clue(NamedTuple):
    """A trace that only some releases leave."""

    text: str
    spans: tuple[tuple[str, str], ...]  # ranges of releases that leave it, both ends included
    applies: Callable[[Evidence], bool]
    strong: bool = True  # rests on something that is there


def _since(release: str) -> tuple[tuple[str, str], ...]:
    return ((release, YOUNGEST),)


def _until(release: str) -> tuple[tuple[str, str], ...]:
    return ((OLDEST, release),)


def _named(release: str, *names: str) -> Clue:
    return Clue(names[0], _since(release), lambda evidence: not evidence.names.isdisjoint(names))


def _topic(release: str, text: str, pattern: str) -> Clue:
    test = re.compile(pattern, re.DOTALL).fullmatch
    return Clue(f"topic {text}", _since(release), lambda evidence: any(map(test, evidence.topics)))


def _property(release: str, name: str) -> Clue:
    raw = name.encode()
    return Clue(f"property {name}", _since(release), lambda e: raw in e.first.names or raw in e.last.names)


def _field(release: str, name: str) -> Clue:
    def applies(evidence: Evidence) -> bool:
        # A value behind the log's end is damage, not a trace of a version.
        ends = [segment.end for segment in evidence.store.segments]
        return 0 < evidence.checkpoint.get(name, 0) <= max(ends, default=0)

    return Clue(f"checkpoint field {name}", _since(release), applies)


def _either(name: str) -> Callable[[Evidence], bool]:
    return lambda evidence: getattr(evidence.first, name) + getattr(evidence.last, name) > 0


def _mostly(one: int, other: int) -> bool:
    # Batches are encoded by clients: a few records may differ from the rest.
    return one > 0 and other * 20 <= one


def _counts_entries(evidence: Evidence) -> bool:
    """Whether an index header's slot count equals its entry count, although entries must share slots.

    n entries in m slots share none with a probability of about exp(-n² / 2m).
    """
    return any(
        used == entries and entries > 0 and entries**2 > 40 * (size // IndexSlot.sizeof())
        for used, entries, size in evidence.index_headers
    )


def _counts_slots(evidence: Evidence) -> bool:
    return any(0 < used < entries for used, entries, _ in evidence.index_headers)


def _tag_entries(evidence: Evidence) -> bool:
    having, lacking = evidence.tag_keys
    return having >= 3 and _mostly(having, lacking)


def _no_tag_entries(evidence: Evidence) -> bool:
    having, lacking = evidence.tag_keys
    return lacking >= 3 and _mostly(lacking, having)


def _has_log_in_folders(evidence: Evidence) -> bool:
    """Whether the log lies in several folders, or broker.conf names several. Source: MultiPathMappedFileQueue#load."""
    folders = {uri.dirname(file.path) for file in evidence.store.segments if file.kind == "segment"}
    return len(folders) > 1 or len(named_folders(evidence.store.settings)) > 1


_SEPARATED = "properties end with the separator"
_UNSEPARATED = "no separator at the end of properties"
_BATCH_PROPERTIES = (("4.8.0", "5.3.3"),)

CLUES: tuple[Clue, ...] = (
    # Records. Source: MessageExtEncoder, CommitLog, MessageDecoder.
    Clue("V2 records", _since("5.1.0"), _either("v2")),
    Clue("IPv6 hosts", _since("4.6.0"), _either("ipv6")),
    Clue("__CRC32#", _since("5.2.0"), _either("record_crc")),
    Clue(
        _SEPARATED,
        (*_until("4.9.0"), *_since("5.2.0")),
        lambda e: _mostly(e.last.separated, e.last.unseparated),
    ),
    Clue(_UNSEPARATED, (("4.9.1", "5.1.4"),), lambda e: _mostly(e.last.unseparated, e.last.separated)),
    Clue("batch properties appended", _BATCH_PROPERTIES, lambda e: e.last.repeated_names > 0),
    Clue(
        "CLUSTER in batches only",
        _BATCH_PROPERTIES,
        lambda e: e.last.batched_with_cluster > 3 and e.last.singles > 9 and not e.last.singles_with_cluster,
    ),
    *(_property(release, name) for name, release in BROKER_NAMES.items()),
    # System topics. Source: TopicValidator, MixAll.
    _topic("4.3.0", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_(OP_)?HALF_TOPIC"),
    _topic("4.9.3", "%LMQ%", "%LMQ%.+"),
    _topic("5.0.0", "rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
    _topic("5.0.0", "rmq_sys_REVIVE_LOG", "rmq_sys_REVIVE_LOG_.*"),
    _topic("5.2.0", "%RETRY%group+topic", r"%RETRY%[^+]+\+.+"),
    _topic("5.4.0", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC"),
    _topic("5.5.0", "of a lite topic", r"%LMQ%\$[^$]+\$.+"),
    # Files and folders. Source: StorePathConfigHelper, BrokerPathConfigHelper.
    Clue("a log in several folders", _since("4.9.2"), _has_log_in_folders),
    _named("4.1.0", "consumequeue_ext"),
    _named("4.2.0", "lock"),
    _named("4.9.3", "config/lmqConsumerOffset.json"),
    _named("5.0.0", "abort.bak"),
    _named("5.0.0", "batchconsumequeue"),
    _named("5.0.0", "timerwheel"),
    _named("5.0.0", "timerlog"),
    _named("5.0.0", "epochFileCheckpoint"),
    _named("5.0.0", "config/timermetrics", "config/timercheck", "config/consumerOrderInfo.json"),
    _named("5.0.0", "config/messageRequestMode.json", "config/topicQueueMapping.json"),
    _named("5.1.0", "compaction"),
    _named("5.1.1", "brokerIdentity"),
    _named("5.1.4", "config/topics", "config/consumerOffsets", "config/subscriptionGroups"),
    _named("5.2.0", "config/transactionMetrics"),
    _named("5.2.0", "consumequeue/CURRENT"),
    _named("5.3.0", "config/users", "config/acls"),
    _named("5.3.2", "kvStore"),
    _named("5.3.2", "config/rdb"),
    _named("5.4.0", "rocksdbstore"),
    _named("5.4.0", "config/metadata"),
    _named("5.5.0", "consumequeue_rocksdb"),
    Clue("attributes in topics.json", _since("5.0.0"), lambda e: e.attributes is True),
    Clue("a pid in abort", _since("5.0.0"), lambda e: e.abort is not None and e.abort.isdigit()),
    # Source: StoreCheckpoint.
    _field("5.0.0", "master_flushed_offset"),
    _field("5.1.1", "confirm_phy_offset"),
    _field("5.5.0", "logics_physical_offset"),
    # Source: IndexFile#putKey, IndexService#buildIndex.
    Clue("index headers count entries as slots", _until("4.7.0"), _counts_entries),
    Clue("index headers count slots", _since("4.7.1"), _counts_slots),
    Clue("tags in the index", _since("5.4.0"), _tag_entries),
    Clue("no tags in the index", _until("5.3.3"), _no_tag_entries),
    Clue("enableLmq in broker.conf", _since("4.9.3"), lambda e: "enableLmq" in e.store.settings, strong=False),
    # What is absent.
    Clue(
        "an empty abort, no abort.bak",
        _until("4.9.8"),
        lambda e: e.whole and e.abort == b"" and "abort.bak" not in e.names,
        strong=False,
    ),
    Clue("no abort.bak", _until("4.9.8"), lambda e: e.whole and "abort.bak" not in e.names, strong=False),
    Clue("no attributes in topics.json", _until("4.9.8"), lambda e: e.attributes is False, strong=False),
    Clue(
        "no rocksdbstore",
        _until("5.3.3"),
        lambda e: e.whole and "timerwheel" in e.names and "rocksdbstore" not in e.names,
        strong=False,
    ),
    Clue(
        "no transactionMetrics",
        _until("5.1.4"),
        lambda e: "config/timermetrics" in e.names and "config/transactionMetrics" not in e.names,
        strong=False,
    ),
    Clue(
        "no CLUSTER",
        _until("4.5.2"),
        lambda e: e.served and e.last.singles > 20 and not e.last.singles_with_cluster,
        strong=False,
    ),
    Clue(
        "no MSG_REGION",
        _until("4.9.8"),
        lambda e: e.last.singles_with_cluster > 9 and not e.last.singles_with_region,
        strong=False,
    ),
    Clue(
        "no batch properties appended",
        (*_until("4.7.1"), *_since("5.4.0")),
        lambda e: (
            e.last.singles_with_cluster > 9 and e.last.batched > 3 and not e.last.batched_with_cluster and not e.dledger
        ),
        strong=False,
    ),
    Clue("half messages in user topics", _until("4.2.0"), _either("halves_in_user_topics"), strong=False),
    Clue(
        "old bytes behind blank records",
        _until("4.9.0"),
        lambda e: e.first.stale_fillers > 1 and not e.first.zero_fillers,
        strong=False,
    ),
    Clue(
        "zeros behind blank records",
        _since("4.9.1"),
        lambda e: e.first.zero_fillers > 1 and not e.first.stale_fillers,
        strong=False,
    ),
)


def estimate(evidence: Evidence) -> VersionEstimate:
    """Return the releases that all clues allow, as the module describes."""
    believed = [clue for clue in CLUES if clue.strong and clue.applies(evidence)]
    notes: list[str] = []
    other = evidence.other
    if other is not None or not _allowed(believed):
        believed = [clue for clue in believed if clue.spans[-1][1] == YOUNGEST]
        notes = [] if other is not None else ["several versions wrote in turn, the last one is meant"]
    for clue in CLUES if other is None else ():
        if not clue.strong and clue.applies(evidence) and _allowed([*believed, clue]):
            believed.append(clue)
    allowed = _allowed(believed)
    return VersionEstimate(allowed[0], allowed[-1], (*_decisive(believed), *notes), other=other)


def _allowed(clues: list[Clue]) -> list[str]:
    ranges = [[(RELEASES.index(low), RELEASES.index(high)) for low, high in clue.spans] for clue in clues]
    return [
        release
        for number, release in enumerate(RELEASES)
        if all(any(low <= number <= high for low, high in spans) for spans in ranges)
    ]


def _decisive(clues: list[Clue]) -> Iterator[str]:
    """Yield the texts of the clues without which the range would be wider; of equal ones, the first."""
    kept = list(clues)
    for clue in reversed(clues):
        others = [other for other in kept if other is not clue]
        if _ends(others) == _ends(clues):
            kept = others
    return (clue.text for clue in kept)


def _ends(clues: list[Clue]) -> tuple[str, str]:
    allowed = _allowed(clues)
    return allowed[0], allowed[-1]


def estimate_version(store: Store, hints: Sequence[int], release: str | None) -> VersionEstimate:
    """Return the versions whose rules to apply: `release` if given, else an estimate from the store.

    `hints` are physical offsets of records that may be the log's last.
    """
    last = find_log_end(store, hints).sample
    return estimate_store(store, last) if release is None else named_version(release, _evidence(store, last))


def named_version(release: str, evidence: Evidence) -> VersionEstimate:
    """Return the version that a user named; where the store contradicts it, also those that the store shows.

    Then the rules of all of them apply, so that a wrong name makes no sound file look damaged.
    """
    clues = [clue.text for clue in CLUES if clue.strong and clue.applies(evidence) and release not in _allowed([clue])]
    if not clues:
        return VersionEstimate(release, release, ("as asked for",), other=evidence.other)
    shown = estimate(evidence)
    low, high = (choose((release, edge), key=RELEASES.index) for choose, edge in ((min, shown.low), (max, shown.high)))
    more = f" and {len(clues) - _MOST_NAMED} more" if clues[_MOST_NAMED:] else ""
    contradiction = f"{release} was asked for, but the store contradicts it: {', '.join(clues[:_MOST_NAMED])}{more}"
    return VersionEstimate(low, high, shown.clues, contradiction, evidence.other)


def estimate_store(store: Store, last: Sample) -> VersionEstimate:
    """Return the versions estimated from the store and the sample of its last records, which `find_log_end` takes."""
    return estimate(_evidence(store, last))


def _evidence(store: Store, last: Sample) -> Evidence:
    problems: list[str] = []
    first, last = sample_edges(store, last, problems)
    return gather(store, first, last, problems)
