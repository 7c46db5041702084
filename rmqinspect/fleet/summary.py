"""A row for each of many stores: how it stopped, what is wrong, what its next start does, and what to do first.

A row is made of the document that the command prints of one store: that of `info`, of `forecast`, or the report of
`verify`. Its columns have the names that the tables `stores` and `next_starts` have.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from rmqinspect.document import Part, means
from rmqinspect.forecast.advice import Action
from rmqinspect.forecast.document import MISSED
from rmqinspect.forecast.outcome import COSTS, Forecast, Verdict
from rmqinspect.show.overview import Overview, how_stopped
from rmqinspect.show.stores import writer_of, writer_told
from rmqinspect.store.model import Store


class StoreRow(Part, frozen=True, kw_only=True):
    """A line of the screen of many stores."""

    store: Annotated[str, means("NAME of `NAME=STORE`, else as much of its path as tells it from the others")]
    size_bytes: Annotated[int | None, means("of all its files, holes included")] = None
    writer: Annotated[str | None, means("the releases that may have written it, or another program")] = None
    stopped: Annotated[str | None, means("`clean`, `unclean`, `running`, or `unknown`")] = None
    verdict: Annotated[str | None, means("that of `verify`")] = None
    next_start: Annotated[str | None, means("the verdict of `forecast`, the worst of all releases")] = None
    messages_lost: Annotated[int | None, means("by that start; null: not counted, or it cannot be told")] = None
    unreachable_messages: Annotated[int | None, means("that stay in the log and lose their queue unit by it")] = None
    missed_messages: Annotated[
        int | None, means("returned as something else, jumped over, or skipped by groups after that start")
    ] = None
    do_first: Annotated[str | None, means("what to do first")] = None
    error: Annotated[str | None, means("why nothing is told of it")] = None

    @property
    def gone(self) -> int | None:
        """Messages that no consumer gets after the next start."""
        beside = (self.unreachable_messages or 0) + (self.missed_messages or 0)
        if self.messages_lost is None:
            return beside or None
        return self.messages_lost + beside


_ORDER = [verdict.value for verdict in Verdict]


def badness(row: StoreRow) -> tuple[int, int]:
    """Return how bad it is for a store, to put the worst first among those of one exit status."""
    verdict = _ORDER.index(row.next_start) if row.next_start in _ORDER else -1
    return verdict, row.gone or 0


def costs(row: StoreRow) -> bool:
    """Return whether the next start costs something: messages, or the start itself."""
    return row.next_start in COSTS


# --- of documents ---------------------------------------------------------------------------------


def row_of_info(name: str, facts: Overview, document: Mapping[str, Any]) -> StoreRow:
    """Return the row of a summary and its document."""
    start = worst_start(document["next_start"])
    if facts.stop.state == "running":
        first: str | None = "leave it: a broker runs"
    elif start:
        first = _first_of(document["next_start"])
    else:
        first = "forecast: its start reads much" if facts.place == "store" and facts.log.segments else "verify"
    return StoreRow(
        store=name,
        size_bytes=document["total_bytes"],
        writer=writer_of(facts),
        stopped=document["stop"]["state"],
        do_first=first,
        **_of_start(start),
    )


def row_of_forecast(name: str, store: Store, found: Forecast, document: Mapping[str, Any]) -> StoreRow:
    """Return the row of a forecast and its document."""
    return StoreRow(
        store=name,
        size_bytes=sum(file.size for file in store.files),
        writer=found.writer or None,
        stopped=how_stopped(store, []).state,
        do_first=_first_of(document),
        **_of_start(document),
    )


def row_of_report(name: str, store: Store | None, report: Mapping[str, Any]) -> StoreRow:
    """Return the row of a report of `verify`; `store` for how it stopped, None: not known any more."""
    start = worst_start(report["next_start"])
    version = report["broker_version"]
    return StoreRow(
        store=name,
        size_bytes=sum(file["size"] for file in report["inputs"]),
        writer=version and writer_told(version["assumed"], version["why"]),
        stopped=None if store is None else how_stopped(store, []).state,
        verdict=report["verdict"],
        do_first=_first_of_report(report),
        **_of_start(start),
    )


def worst_start(next_start: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the worst version of `next_start` of a document; nothing without a forecast."""
    if next_start is None:
        return {}
    same = [version for version in next_start["versions"] if version["verdict"] == next_start["verdict"]]
    worst: Mapping[str, Any] = max(same, key=lambda version: version["lost_messages"] or 0)
    return worst


def _of_start(start: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a start fills, from a forecast's document or a version of `next_start`."""
    lost = start.get("lost_messages")
    if lost == 0 and start.get("verdict") == Verdict.EMPTY:
        lost = None  # more was there, and nobody knows how much
    return {
        "next_start": start.get("verdict"),
        "messages_lost": lost,
        "unreachable_messages": start.get("unreachable_messages") if lost is not None else None,
        "missed_messages": sum(start.get(name) or 0 for name in MISSED[1:]) if lost is not None else None,
    }


# --- what to do first ------------------------------------------------------------------------------

# Codes of damage that a rebuild of what follows from the log ends.
_OF_DERIVED = ("CQ-", "IX-", "BQ-", "EX-")


def _first_of(told: Mapping[str, Any] | None) -> str | None:
    """Return what to do first by a forecast's document, or by `next_start` of another; None without one."""
    first = (told or {}).get("do_first")
    return None if first is None else str(first["text"])


def _first_of_report(report: Mapping[str, Any]) -> str:
    """Return what to do first about a store that was checked: its start first, then what is damaged."""
    start = report["next_start"] or {}
    first = start.get("do_first") or {}
    errors = {finding["code"] for finding in report["findings"] if finding["severity"] == "error"} - {"ST-IO"}
    is_safe = first.get("action") == Action.START
    if first and not is_safe:
        return str(first["text"])
    if not report["complete"] and not errors:
        return "make all of it readable"
    if errors == {"CL-TORN-TAIL"} and is_safe:
        return "start it: only its last record is torn"
    if any(code.startswith("CL-") for code in errors):
        return "salvage: the log is damaged"
    if errors and _all_derived(errors):
        return "rebuild: the log is sound, what follows from it is not"
    return "read its findings" if errors else "nothing"


def _all_derived(codes: Iterable[str]) -> bool:
    return all(code.startswith(_OF_DERIVED) for code in codes)
