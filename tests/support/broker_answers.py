"""What a real store said when it was started, and what a forecast said differently.

A broker's answer is a document with the names of truth.json (`tests/data/README.md`): recorded for the stores of
the family crash, fresh from `tests/support/real_brokers.py`. `answer_of` reads both.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support import oracle

Document = Mapping[str, Any]

NEW = "(new)"
"""Name of an index file that the start itself made: really its wall clock, which does not repeat."""

# RocksDB turns its own files over at every start, whatever is in them.
_FOLDERS_OF_ROCKSDB = ("rocksdbstore/", "consumequeue_r/", "config/")


class QueueBounds(NamedTuple):
    """Queue offsets; the maximum is one behind the last."""

    minimum: int
    maximum: int


class IndexFile(NamedTuple):
    """Header of an index file as the store has it in memory."""

    name: str  # NEW where this start made it
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    slots: int
    entries: int


@dataclass(frozen=True, slots=True)
class State:
    """A store that was loaded, or that serves."""

    min_offset: int  # -1 without segments
    end_offset: int
    segments: tuple[tuple[int, int], ...]  # base, write position; two files may have one base: 0 and +0
    queues: Mapping[tuple[str, int], QueueBounds]
    index_files: tuple[IndexFile, ...]  # oldest first


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a start. Without a start nothing is known but why, and which files are gone."""

    starts: bool
    failure: str | None  # the step and what it said
    loaded: State | None
    serves: State | None
    files_before: Mapping[str, int]  # name -> length
    deleted_files: frozenset[str]
    added_files: frozenset[str]
    log: tuple[str, ...] = field(repr=False)


def recorded_answer(name: str) -> Answer:
    """Return the recorded answer of a case of the family crash."""
    return answer_of(oracle.truth("crash", name))


def answer_of(document: Document) -> Answer:
    """Read a document with the names of truth.json."""
    failure = _failure(document)
    before = {name: length for name, length in document.get("files_before", ()) if _counts(name)}
    loaded = serves = None
    if document.get("load_ok"):
        loaded = _state(document["after_load"], document["index_after_load"], before)
    if failure is None:
        serves = _state(document["after_dispatch"], document["index_after_dispatch"], before)
    changes = document.get("files_after_dispatch") or document.get("files_after_load") or {}
    return Answer(
        starts=failure is None,
        failure=failure,
        loaded=loaded,
        serves=serves,
        files_before=before,
        deleted_files=frozenset(filter(_counts, changes.get("removed", ()))) | _made_again(before, changes),
        added_files=frozenset(name for name, _ in changes.get("added", ()) if _counts(name)),
        log=tuple(document.get("log", ())),
    )


def differences(forecast: Document, answer: Answer) -> list[str]:
    """Return where a forecast document (`rmqinspect forecast -f json`) and a real start differ, a line for each.

    What a broker cannot be asked (losses, what was read from a backup) is not compared.
    """
    return [
        f"{name}: forecast {ours}, broker {theirs}" for name, ours, theirs in _pairs(forecast, answer) if ours != theirs
    ]


def _made_again(before: Mapping[str, int], changes: Document) -> frozenset[str]:
    """Return the queue files of 0 bytes that loading deleted, and dispatch made again."""
    changed = (name for name, _ in changes.get("changed", ()) if "consumequeue/" in name)
    return frozenset(name for name in changed if before.get(name) == 0)


def _pairs(forecast: Document, answer: Answer) -> Iterator[tuple[str, object, object]]:
    """Yield each comparable field, its value in the forecast, and the broker's."""
    yield "starts", forecast["starts"], answer.starts
    # After a start that was refused, 5.4.0 and later may delete it in shutdown(), which the answer does not wait for.
    late = frozenset() if answer.starts else {"abort"}
    yield "deleted_files", sorted(set(forecast["deleted_files"]) - late), sorted(answer.deleted_files)
    if not (forecast["starts"] and answer.serves):
        return
    serves = answer.serves
    yield "min_offset", forecast["min_offset"], serves.min_offset
    yield "end_offset", forecast["end_offset"], serves.end_offset
    yield "segments_after", forecast["segments_after"], [base for base, _ in serves.segments]
    # A file of 0 bytes is not a segment yet: loading deletes it, whatever its name.
    gone = [_base(name) for name in _below("commitlog/", answer.deleted_files) if answer.files_before[name]]
    yield "deleted_segments", forecast["deleted_segments"], [base for base in gone if base is not None]
    ours = {
        (row["topic"], row["queue_id"]): QueueBounds(row["min_offset_after"], row["max_offset_after"])
        for row in forecast["queues"]
    }
    # A queue that is empty from 0 may be there in the broker's memory alone, or not at all.
    nothing = QueueBounds(0, 0)
    for topic, queue_id in sorted(ours.keys() | serves.queues.keys()):
        key = topic, queue_id
        yield f"queue {topic}/{queue_id}", tuple(ours.get(key, nothing)), tuple(serves.queues.get(key, nothing))
    # By the files: before 5.0 a name that is no number keeps the store from loading them, and from deleting them.
    left = answer.files_before.keys() - answer.deleted_files
    kept = [name for name in _below("index/", left) if _base(name) is not None]
    yield "index_files_after", [f"index/{name}" for name in sorted(forecast["index_files_after"])], kept
    gone_index = _below("index/", answer.deleted_files)
    yield "deleted_index_files", [f"index/{name}" for name in sorted(forecast["deleted_index_files"])], gone_index
    if "new_index_files" in forecast:
        yield "new_index_files", forecast["new_index_files"], sum(file.name == NEW for file in serves.index_files)


def _below(folder: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(folder))


def _counts(name: str) -> bool:
    """Say whether a name is that of a file, not of an empty folder, and no file of RocksDB."""
    return not name.endswith("/") and not name.startswith(_FOLDERS_OF_ROCKSDB)


def _failure(document: Document) -> str | None:
    for step in ("construct", "load", "start"):
        end = document.get(step)
        if not end:
            return f"{step}: did not come so far"
        if not end["ok"]:
            return f"{step}: {_exception(end.get('exception')) or 'hangs'}"
        if end.get("returned") is False:
            return f"{step}: returned false"
    return None if document["dispatch"]["caught_up"] else f"dispatch: hangs; {document.get('deaths', [])}"


def _exception(reason: Document | None) -> str:
    return f"{reason['class']}: {reason['message']}" if reason else ""


def _state(state: Document, index_files: list[Document], before: Mapping[str, int]) -> State:
    return State(
        min_offset=state["min_phy"],
        end_offset=state["max_phy"],
        segments=tuple((base, position) for base, position, _ in state["commitlog_files"]),
        queues={
            (row["topic"], row["queue_id"]): QueueBounds(row["min_offset"], row["max_offset"])
            for row in state["queues"]
        },
        index_files=tuple(
            IndexFile(
                file["name"] if f"index/{file['name']}" in before else NEW,
                file["begin_timestamp"],
                file["end_timestamp"],
                file["begin_phy"],
                file["end_phy"],
                file["hash_slot_count"],
                file["index_count"],
            )
            for file in index_files
        ),
    )


def _base(name: str) -> int | None:
    """Return the number that a file's name is for Long#parseLong; None if it is none."""
    last = name.rpartition("/")[2]
    number = int(last) if re.fullmatch(r"[+-]?[0-9]+", last) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
