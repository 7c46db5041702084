"""What a start did by the lines of a log, in words, and the commands that show more of it."""

from collections import Counter
from collections.abc import Iterator

from rmqinspect.commands import SHOW, VERIFY, fill_command
from rmqinspect.explain.log import Start
from rmqinspect.text import count, describe_offset


def headline(start: Start) -> str:
    """Say in one sentence what the start did."""
    if start.refused_elsewhere:
        return (
            "the broker refused to start: the load of the store returned false. These lines do not say why: the reason"
            " is in store.log of the same time"
        )
    if start.refused_by:
        return f"the broker refused to start: {(start.files or start.refused_by)[0]}"
    if start.emptied:
        return f"found no segment of the log and deleted all consume queues{_before(start)}"
    end = describe_offset(start.end or 0)
    if start.cut:
        reached = describe_offset(start.cut + (start.end or 0))
        return f"cut at least {count(start.cut, 'byte')} of the log: it reached {reached} and ends at {end} now"
    if start.cause and start.end is not None:
        return f"cut the log at {end}; the lines do not say how far it reached before"
    if start.units_cut:
        units = describe_offset(start.units_reached or 0)
        return (
            f"cut off queue units for {count(start.units_cut, 'byte')} behind the end of the log: they pointed up to"
            f" {units}, and it ends at {end}. Its end is lost, or these units were wrong"
        )
    if any("ignore it" in row for row in start.files):
        return f"ignored files of the store, loaded the others{_ends(start)}"
    if start.loaded and start.end == 0:
        return "loaded an empty log"
    if start.loaded:
        return "loaded; no sign that anything was cut" + _ends(start)
    return _unfinished(start)


def _unfinished(start: Start) -> str:
    if start.end is not None:
        return "recovered; the end of the loading is not in these lines" + _ends(start)
    if not start.last_exit:
        return "the broker was started before these lines begin"
    return (
        "did not finish loading: killed, stuck, the log ends here, or an Error such as OutOfMemoryError ended it,"
        " which only stdout shows"
    )


def _before(start: Start) -> str:
    return f"; the log reached {describe_offset(start.reached)} before" if start.reached else ""


def _ends(start: Start) -> str:
    return "" if start.end is None else f"; the log ends at {describe_offset(start.end)}"


def details(start: Start) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of what is known of a start besides its headline."""
    exits = {"normally": "clean: no abort file", "abnormally": "unclean: there was an abort file"}
    yield "last exit", exits.get(start.last_exit, start.last_exit)
    for row in start.refused_by:
        yield "refused by", row
    for row in start.files:
        yield "file", row
    if start.cut or (start.cause and start.end is not None):
        yield "because", start.cause or "no line says why: the log was longer after the start before"
    yield "scan", _scan(start)
    yield "loaded", _counted(start.files_loaded)
    yield "deleted", _counted(start.deleted)
    for row in start.failures:
        yield "failed", row
    yield "ended", start.ended


def _counted(files: Counter[str]) -> str:
    return ", ".join(count(number, kind) for kind, number in sorted(files.items()))


def _scan(start: Start) -> str:
    begin = f"from {start.scanned_from}" if start.scanned_from else ""
    end = f"ended in {start.scan_ended_in}" if start.scan_ended_in else ""
    return ", ".join(filter(None, (begin, end)))


def commands(start: Start) -> tuple[str, ...]:
    """Return the commands that show more of what the start did."""
    if start.refused_by:
        return (fill_command("rmqinspect verify {store} --level quick"),)
    if start.cut or start.cause or start.units_cut or start.emptied:
        show = fill_command(SHOW) if start.end is None else fill_command(SHOW, at=start.end)
        return show, fill_command(VERIFY)
    return ()
