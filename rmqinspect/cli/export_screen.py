"""The screen of `export`: rows by table, what was left out, what is damaged, one verdict."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.terminal import Screen
from rmqinspect.export.request import ExportRequest
from rmqinspect.system.uri import shown
from rmqinspect.text import count, describe_size, group_digits

if TYPE_CHECKING:
    from rmqinspect.export.job import ExportResult
    from rmqinspect.export.manifest import Manifest
    from rmqinspect.export.plan import StorePlan
    from rmqinspect.export.target import Target

_SCREEN = Screen(indent=10)
_RANGES = 3  # without records, on the screen


def bad_statuses(manifest: "Manifest") -> dict[str, int]:
    """Return the number of rows by status, without those that are ok."""
    rows: dict[str, int] = {}
    for file in manifest.files:
        for status, number in file.statuses.items():
            rows[status] = rows.get(status, 0) + number
    return rows


def lost_ranges(manifest: "Manifest", request: ExportRequest) -> list[tuple[str, int, int, str]]:
    """Return (store, start, end, kind) of the ranges without records that should have some, in the range asked for."""
    return [(store.name, *lost) for store in manifest.stores for lost in store.lost_in(request.selection.offsets)]


def screen(
    outcome: "ExportResult", plans: "Sequence[StorePlan]", request: ExportRequest, target: "Target", status: ExitStatus
) -> Iterator[str]:
    """Yield the lines of the screen."""
    manifest = outcome.manifest
    if outcome.nothing_new and target.earlier is not None:
        rows = sum(file.rows for file in manifest.files)
        yield f"nothing new: {count(rows, 'row')}, {count(len(manifest.files), 'file')} unchanged"
    new = [file for file in manifest.files if file.name in outcome.names]
    files = Screen(indent=max(_SCREEN.indent, *(len(table) + 2 for table in request.tables)))
    for table in request.tables:
        of_table = [file for file in new if file.table == table]  # the manifest has their names
        if of_table:
            tail = sum(file.is_tail for file in of_table)
            beyond = f", {group_digits(tail)} beyond the log's end" if tail else ""
            rows_of_table = count(sum(file.rows for file in of_table), "row")
            yield files.line(table, f"{rows_of_table:>14} in {count(len(of_table), 'file')}{beyond}")
    for skipped in manifest.skipped:
        yield from _SCREEN.fitted("skipped", f"{skipped.name}: {skipped.error}")
    yield from _suppressed(manifest, plans, request)
    yield from _damaged(outcome)
    yield from Screen(indent=0).fitted("", _manifest_line(manifest, request, target))
    yield from _SCREEN.fitted("VERDICT", _verdict(manifest, request, status))


def _suppressed(manifest: "Manifest", plans: "Sequence[StorePlan]", request: ExportRequest) -> Iterator[str]:
    for plan in plans if request.closed_only else ():
        segment = plan.reach.open_segment
        if segment is not None:
            size = describe_size(plan.reach.end - segment.base)
            yield from _SCREEN.fitted(
                "left out", f"segment {segment.base} of {plan.store.name} is open ({size} so far)"
            )
    lost = lost_ranges(manifest, request)
    for store, start, end, kind in lost[:_RANGES]:
        where = f"physical {group_digits(start)} to {group_digits(end)}"
        yield from _SCREEN.fitted(
            "left out", f"{count(end - start, 'byte')} of {store} without a record ({kind}), {where}"
        )
    if lost[_RANGES:]:
        yield from _SCREEN.fitted(
            "", f"and {count(len(lost) - _RANGES, 'range')} more: lost in _manifest.json, --table gaps"
        )


def _damaged(outcome: "ExportResult") -> Iterator[str]:
    firsts: dict[str, tuple[str, int]] = {}
    for result in outcome.results:
        for status, offset in result.first_bad.items():
            firsts.setdefault(status, (result.name, offset))
    for status, rows in sorted(bad_statuses(outcome.manifest).items()):
        verb = "has" if rows == 1 else "have"
        where = ""
        if status in firsts:
            store, offset = firsts[status]
            first = "" if rows == 1 else "first at "
            where = f" ({first}{store}, physical offset {group_digits(offset)})"
        yield from _SCREEN.fitted("damaged", f"{count(rows, 'row')} {verb} status {status}{where}")


def _manifest_line(manifest: "Manifest", request: ExportRequest, target: "Target") -> str:
    from rmqinspect.export.manifest import MANIFEST

    rows = sum(file.rows for file in manifest.files)
    words = [count(len(manifest.files), "file"), count(rows, "row"), f"schema {request.schema}"]
    if len(manifest.stores) == 1 and (only := manifest.stores[0]).start is not None and only.end is not None:
        complete = "complete" if manifest.complete else "incomplete"
        words.append(f"{complete} for physical {group_digits(only.start)} to {group_digits(only.end)}")
    elif len(manifest.stores) > 1:
        words.append(count(len(manifest.stores), "store"))
    return f"{shown(target.path)}/{MANIFEST}: {', '.join(words)}"


def _verdict(manifest: "Manifest", request: ExportRequest, status: ExitStatus) -> str:
    rows, lost = sum(bad_statuses(manifest).values()), lost_ranges(manifest, request)
    parts = [count(rows, "row")] if rows else []
    if lost:
        parts.append(f"{count(len(lost), 'range')} without records")
    words = f"DAMAGED: {', '.join(parts)}" if parts else "EXPORTED"
    if not manifest.is_read:
        words = f"INCOMPLETE: not everything could be read; {words if parts else 'the rest was exported'}"
    if manifest.findings is not None:
        found = ", ".join(count(number, severity) for severity, number in manifest.findings.items() if number)
        words += f"; verify found {found or 'nothing'}"
    if status == ExitStatus.DAMAGE:
        words += f". Pipelines that accept {'rows marked in status' if rows else 'gaps'}: --fail-on never"
    return words
