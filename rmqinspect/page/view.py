"""What the template prints: the documents of each store in words, cut to what a page has room for.

Every list is capped; what is left out is counted, and the command that shows it is named. With many stores each has
less room, so that the page stays small.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from msgspec.structs import replace

from rmqinspect.commands import EXPLAIN, GROUPS, USAGE, fill_command
from rmqinspect.commitlog.log_runs import MOST_RUNS
from rmqinspect.document import typed
from rmqinspect.page.charts import Part, TimeLine, bar, time_line
from rmqinspect.page.story import Story, tell
from rmqinspect.page.words import amount, grouped, moment, short
from rmqinspect.picture.documents import picture_of
from rmqinspect.picture.drawing import figure
from rmqinspect.picture.model import IndexRow
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.report import Report

_LONGEST_COMMAND = 600  # characters; a longer one is of no use on a page
_WHOLE = 6  # finding blocks, and others, for which a page of many stores has room
_SUMS = ("file_size", "records", "record_bytes", "filler_bytes", "zero_bytes", "unknown_bytes")


class Room(NamedTuple):
    """How much of each list is shown."""

    codes: int
    places: int  # of each code
    files: int
    groups: int
    topics: int
    segments: int
    runs: int  # of the map
    ticks: int  # offsets of groups on the map
    index_files: int  # on the map
    columns: int  # of the time line


_OF_ONE = Room(
    codes=60,
    places=25,
    files=400,
    groups=40,
    topics=20,
    segments=60,
    runs=MOST_RUNS,
    ticks=200,
    index_files=200,
    columns=120,
)
_OF_SOME = Room(
    codes=30, places=8, files=60, groups=15, topics=10, segments=20, runs=400, ticks=60, index_files=100, columns=80
)
_OF_MANY = Room(
    codes=12, places=3, files=12, groups=8, topics=6, segments=6, runs=120, ticks=20, index_files=30, columns=40
)


def room_for(stores: int) -> Room:
    """Return how much of each list is shown on a page of so many stores."""
    return _OF_ONE if stores == 1 else _OF_SOME if stores <= _WHOLE else _OF_MANY


class Place(NamedTuple):
    """One finding."""

    where: str
    facts: Sequence[str]
    command: str | None


class Block(NamedTuple):
    """The findings of one code and severity."""

    code: str
    severity: str
    number: int
    rule: str
    cause: str
    places: Sequence[Place]
    more: int
    do: str | None
    explain: str


class GroupRow(NamedTuple):
    """How far a group is in a topic."""

    told: Mapping[str, Any]
    oldest: str
    parts: Sequence[Part]


class FileRow(NamedTuple):
    """A file with its digest."""

    name: str
    size: int
    modified: str
    digest: str | None


class StoreView(NamedTuple):
    """A store, as the template has it."""

    id: str
    name: str
    report: Mapping[str, Any]
    from_report: bool
    story: Story
    picture: str | None  # markup; None: a report of an earlier version
    time_line: TimeLine | None
    groups: Mapping[str, Any] | None
    group_rows: Sequence[GroupRow]
    usage: Mapping[str, Any] | None
    transactions: Mapping[str, Any] | None
    delays: Mapping[str, Any] | None
    blocks: Sequence[Block]
    more_blocks: int
    sums: Mapping[str, int]
    adds_up: bool
    segments: Sequence[Mapping[str, Any]]
    files: Sequence[FileRow]
    unread: Sequence[str]
    run: Sequence[tuple[str, str]]
    commands: Mapping[str, str]
    room: Room


def store_view(documents: Mapping[str, Any], number: int, room: Room, zone: tzinfo) -> StoreView:
    """Return what is printed of a store; `number` is its place on the page."""
    report = documents["report"]
    stores = report["run"].get("words") or [report["run"]["store"]]
    blocks = list(_blocks(report, room, zone))
    segments = report["segments"]
    groups = documents.get("groups")
    usage = documents.get("usage")
    return StoreView(
        id=f"s{number}",
        name=short(documents["store"]),
        report=report,
        from_report=documents["from_report"],
        story=tell(documents, zone),
        picture=_picture(documents, f"s{number}-map", room),
        time_line=time_line(documents, zone, room.columns),
        groups=groups,
        group_rows=[_group_row(line, zone) for line in (groups or {"lines": ()})["lines"][: room.groups]],
        usage=usage and {**usage, "topic": usage.get("topic", ())[: room.topics]},
        transactions=documents.get("transactions"),
        delays=documents.get("delays"),
        blocks=blocks[: room.codes],
        more_blocks=max(0, len(blocks) - room.codes),
        sums={name: sum(one[name] for one in segments) for name in _SUMS},
        adds_up=all(sum(one[name] for name in _SUMS[2:]) == one["file_size"] for one in segments),
        segments=_telling(report, room.segments),
        files=list(_files(report, room, zone)),
        unread=list(dict.fromkeys([*report["unread"], *documents["unread"]])),
        run=list(_run(report, zone)),
        commands={
            name: command(template, stores)
            for name, template in (
                ("findings", "rmqinspect verify {store} -v"),
                ("report", "rmqinspect verify {store} --hash sha256 --report FILE"),
                ("groups", f"{GROUPS} -v"),
                ("usage", f"{USAGE} --by topic,queue,tag -n 100"),
                ("transactions", "rmqinspect transactions {store}"),
                ("delays", "rmqinspect delays {store}"),
                ("gaps", "rmqinspect decode {store} --table gaps"),
                ("page", "rmqinspect report {store} -o FILE.html"),
                ("segments", "rmqinspect decode {store} --table segments"),
            )
        },
        room=room,
    )


def _picture(documents: Mapping[str, Any], name: str, room: Room) -> str | None:
    """Return the map of a store as markup, whose texts are escaped in it."""
    report = typed(documents["report"], Report)
    ticks = (documents.get("groups") or {"positions": ()})["positions"][: room.ticks]
    picture = picture_of(report, documents.get("forecast"), ticks, room.runs)
    if picture is None or not picture.strips:
        return None
    return figure(replace(picture, index_files=_fewer(picture.index_files, room.index_files)), name)


def _fewer(rows: Sequence[IndexRow], most: int) -> list[IndexRow]:
    """Return index files, neighbours as one until there are at most so many."""
    together = max(1, -(-len(rows) // most))
    runs = [rows[first : first + together] for first in range(0, len(rows), together)]
    return [
        IndexRow(
            run[0].file + (f" and {amount(len(run) - 1, 'more file')}" if len(run) > 1 else ""),
            sum(row.entries for row in run),
            min(row.start for row in run),
            max(row.end for row in run),
        )
        for run in runs
    ]


def command(template: str, stores: Sequence[str], **values: str) -> str:
    """Return a command; one that is too long for a page names the store by a placeholder."""
    text = fill_command(template, stores, **values)
    return text if len(text) <= _LONGEST_COMMAND else fill_command(template, **values)


# --- findings ---------------------------------------------------------------------------------------------

_WORST_FIRST = ("error", "warning", "info")


def _blocks(report: Mapping[str, Any], room: Room, zone: tzinfo) -> Iterator[Block]:
    """Yield the findings by code and severity, the worst first."""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in report["findings"]:
        if row["code"] != "ST-UNCHECKED":
            rows.setdefault((row["severity"], row["code"]), []).append(row)
    for (severity, code), some in sorted(rows.items(), key=lambda item: _WORST_FIRST.index(item[0][0])):
        told = sum(row["count"] for row in some)
        alone = sum(one == code for _, one in rows) == 1
        number = max(told, report["counts"].get(code, 0)) if alone else told
        shown = some[: room.places]
        known = BY_CODE.get(code)
        yield Block(
            code,
            severity,
            number,
            known.rule if known else "a code of another version of the tool",
            known.cause if known else "",
            [_place(row, zone) for row in shown],
            number - sum(row["count"] for row in shown),
            next((row["do"] for row in some if row["do"]), None),
            fill_command(EXPLAIN, what=code),
        )


def _place(row: Mapping[str, Any], zone: tzinfo) -> Place:
    where = row["file"] or ""
    if row["offset"] is not None:
        where += f" at {grouped(row['offset'])} ({row['offset']:#x})" + (
            f", {grouped(row['length'])} bytes" if row["length"] else ""
        )
    facts = [
        row["message"] + (f" ({grouped(row['count'])} in a row)" if row["count"] > 1 and not row["counted"] else "")
    ]
    if row["topic"] is not None:
        offset = "" if row["queue_offset"] is None else f" offset {grouped(row['queue_offset'])}"
        record = f"topic {short(row['topic'])} queue {row['queue_id']}{offset}"
        if row["keys"]:
            record += f", key {short(row['keys'].split(' ')[0])}"
        if row["store_timestamp"]:
            record += f", stored {moment(row['store_timestamp'], zone)}"
        facts.append(record)
    values = [f"{name} {short(row[name])}" for name in ("expected", "found") if row[name] is not None]
    facts += [", ".join(values)] if values else []
    if row["broker_effect"]:
        facts.append(f"At the next start: {row['broker_effect']}")
    next_command = row["next"] if row["next"] and len(row["next"]) <= _LONGEST_COMMAND else None
    return Place(where or "the store", [fact[:2000] for fact in facts], next_command)


# --- the rest ---------------------------------------------------------------------------------------------


def _telling(report: Mapping[str, Any], most: int) -> list[Mapping[str, Any]]:
    """Return the segments with findings or unknown bytes, else the first and last ones."""
    troubled = {row["file"] for row in report["findings"] if row["severity"] != "info"}
    segments = report["segments"]
    if len(segments) <= most:
        return list(segments)
    telling = [one for one in segments if one["file"] in troubled or one["unknown_bytes"]]
    return (telling or segments)[:most]


def _group_row(line: Mapping[str, Any], zone: tzinfo) -> GroupRow:
    oldest = "" if line["oldest"] is None else moment(line["oldest"], zone)
    return GroupRow(line, oldest, bar(lost=line["lost"], consumed=line["consumed"], waiting=line["lag"] or 0))


def _files(report: Mapping[str, Any], room: Room, zone: tzinfo) -> Iterator[FileRow]:
    custody = report["custody"]
    if custody is not None and custody["algorithm"]:
        for file in custody["files"][: room.files]:
            yield FileRow(file["file"], file["size"], moment(file["mtime"], zone), file["sha256"])


_RUN = {
    "tool": "Tool",
    "python": "Python",
    "store": "Store, as given",
    "arguments": "Command line",
    "jobs": "Threads",
    "started": "Started",
    "ended": "Ended",
}


def _run(report: Mapping[str, Any], zone: tzinfo) -> Iterator[tuple[str, str]]:
    """Yield what the report says of its run, whatever fields it has."""
    for name, value in report["run"].items():
        label = _RUN.get(name, name.replace("_", " ").capitalize())
        if value is None or value == "":
            continue
        if name in ("started", "ended"):
            yield label, moment(value, zone)
        elif isinstance(value, list | tuple):
            yield label, " ".join(map(str, value))
        elif isinstance(value, dict):
            yield label, ", ".join(f"{key} {one}" for key, one in value.items())
        else:
            yield label, str(value)
    version = report["broker_version"]
    if version is not None:
        yield "Written by RocketMQ", version["assumed"]
    yield "Level", report["level"]
    yield "Checks", amount(len(report["checks"]), "code")
