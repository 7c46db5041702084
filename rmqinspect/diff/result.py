"""The result of comparing two stores, and its JSON document."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rmqinspect.diff.differences import Differences
from rmqinspect.diff.log_diff import LogDiff
from rmqinspect.diff.offset_content import OffsetContent
from rmqinspect.diff.records import OnlyIn
from rmqinspect.store.model import Store
from rmqinspect.version import tool_name

# A minor change adds fields at the end, a major one renames.
SCHEMA_VERSION = 1

Stores = tuple[Store, Store]

# Kinds of files that are not compared, and their names.
_IGNORED = {
    "index": "index files",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "lock": "lock",
    "rocksdb": "RocksDB files",
    "timer_log": "timer log",
    "timer_wheel": "timer wheel",
    "compaction_log": "compaction logs",
    "compaction_queue": "compaction queues",
    "dledger_index": "DLedger index",
    "other": "other files",
}


@dataclass(slots=True)
class DiffResult:
    """The differences of two stores, and the facts a screen or document shows around them."""

    stores: Stores
    differences: Differences
    compared: dict[str, str] = field(default_factory=dict)  # part → why it was not compared, "" if it was
    log: LogDiff | None = None
    at_first: tuple[OffsetContent, OffsetContent] | None = None  # at the first offset where the logs differ
    queues: int = 0  # in both
    same_queues: int = 0
    group_offsets: int = 0  # in both
    topics: int = 0
    notes: list[str] = field(default_factory=list)  # entries in one store only that are not compared
    unread: list[str] = field(default_factory=list)  # messages
    interrupted: str | None = None  # where

    @property
    def complete(self) -> bool:
        """Whether everything that should be compared was."""
        return not self.unread and self.interrupted is None

    @property
    def verdict(self) -> str:
        """SAME or DIFFERENT; INCOMPLETE comes first, and never with SAME, if not everything was compared."""
        different = any(self.differences.counts.values())
        if self.complete:
            return "DIFFERENT" if different else "SAME"
        return f"INCOMPLETE, {'DIFFERENT' if different else 'no difference so far'}"


def not_compared(result: DiffResult) -> list[str]:
    """Return everything that was not compared, with the reason unless it is never compared."""
    kinds = {file.kind for store in result.stores for file in store.files}
    reasons = [f"{part}: {why}" for part, why in result.compared.items() if why]
    behind = ["bytes behind the ends of the logs"] if result.log is not None else []
    lengths = ["lengths of queue files"] if not result.compared["queues"] else []
    return reasons + [words for kind, words in _IGNORED.items() if kind in kinds] + behind + lengths


def diff_document(result: DiffResult, names: Sequence[str]) -> dict[str, Any]:
    """Return the result as a document; `names` are the stores as given."""
    differences = result.differences
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool_name(),
        "complete": result.complete,
        "verdict": result.verdict,
        "different": differences.parts,
        "a": names[0],
        "b": names[1],
        "counts": differences.counts,
        "log": None if result.log is None else _log_document(result, result.log),
        "queues": {"in_both": result.queues, "same": result.same_queues},
        "groups": {"offsets_in_both": result.group_offsets},
        "topics": {"in_both": result.topics},
        "not_compared": not_compared(result),
        "notes": result.notes,
        "unread": result.unread,
        "interrupted": result.interrupted,
        "rows_left_out": differences.suppressed,
        "rows": [asdict(row) for row in differences.rows],
    }


def _log_document(result: DiffResult, log: LogDiff) -> dict[str, Any]:
    contents = [None, None] if result.at_first is None else [asdict(content) for content in result.at_first]
    return {
        "covered": {side: log.ranges(number) for number, side in enumerate(("a", "b"))},
        "end": {"a": log.ends[0], "b": log.ends[1]},
        "bytes_behind_the_first_end": log.tail,
        "compared": log.compared,
        "compared_bytes": log.compared_bytes,
        "first_difference": None
        if log.first is None
        else {"physical_offset": log.first, "a": contents[0], "b": contents[1]},
        "ranges": log.runs.count,
        "differing_bytes": log.runs.differing,
        "records_only_in": {side: _only_document(log.only[number]) for number, side in enumerate(("a", "b"))},
    }


def _only_document(only: OnlyIn) -> dict[str, Any]:
    return {
        "records": only.count,
        "bytes": only.size,
        "by_topic": only.by_topic,
        "elsewhere_in_the_other": only.elsewhere,
        "elsewhere_exact": only.elsewhere_exact,
    }
