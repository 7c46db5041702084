"""Several stores given to `info`, `forecast` or `verify`: a line for each, the worst first, or a document for each.

given stores -> fleet.run (a process a store, -j at a time) -> Answers, in the order given -> screen, documents, status

A store of which nothing can be told is an answer, too. The status is that of the worst.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rmqinspect.cli import ExitStatus, status_of, worst_status
from rmqinspect.cli.options import FleetOptions, count_jobs
from rmqinspect.cli.pager import as_answer
from rmqinspect.cli.parameters import note_run
from rmqinspect.cli.session import document_of, json_line, printed_to
from rmqinspect.cli.terminal import Progress, Screen, columns, line_width
from rmqinspect.commands import fill_command
from rmqinspect.errors import BadOption
from rmqinspect.fleet.given import Given
from rmqinspect.fleet.run import Failed, Finished, Read, side_by_side
from rmqinspect.fleet.summary import StoreRow, badness, costs
from rmqinspect.system.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.system.uri import is_remote, local_path
from rmqinspect.text import cell_width, clip, count, describe_size, escape, group_digits

if TYPE_CHECKING:
    from rmqinspect.output.openmetrics import Sample
    from rmqinspect.verify.findings import FindingRow

_SCREEN = Screen(indent=13)
_INTERRUPTED = "interrupted before it was read"


Options = TypeVar("Options", bound=FleetOptions)


class Answer(NamedTuple):
    """What is told of one store."""

    row: StoreRow
    status: ExitStatus
    document: Mapping[str, Any] | None = None  # of a store alone; None: not asked for, or the store failed
    findings: "Sequence[FindingRow]" = ()  # of `verify`, where they are asked for
    samples: "Sequence[Sample]" = ()  # for a monitoring system, where they are asked for

    @property
    def element(self) -> dict[str, Any]:
        """The document with the store's name, or with why there is none."""
        if self.row.error is not None:
            return {"store": self.row.store, "error": self.row.error}
        return {"store": self.row.store, **(self.document or {})}


def evidence_of(given: Sequence[Given]) -> list[str]:
    """Return the paths that no output may lie in."""
    return [local_path(path) for one in given for path in one.paths]


def refuse_several(options: object, given: Sequence[Given], *names: str) -> None:
    """Refuse options that are about one store.

    :raises click.UsageError: one is given.
    """
    for name in names:
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is about one store: {group_digits(len(given))} are given.")


# --- the run --------------------------------------------------------------------------------------------


def ask_each(options: Options, given: Sequence[Given], ask: Callable[[Options, Given], Answer]) -> list[Answer]:
    """Return the answer of each store, in the order given; Ctrl-C leaves those that are there."""
    alone = replace(options, jobs=1, progress=False, quiet=options.quiet or not options.verbose)
    answers: dict[int, Answer] = {}
    fork = not any(is_remote(path) for one in given for path in one.paths)
    with interrupted_once(), Progress(0, options.progress, quiet=options.quiet) as progress:
        progress.note = _done(0, given)
        try:
            with closing(side_by_side(partial(_ask, ask, alone), given, count_jobs(options), fork=fork)) as events:
                for event in events:
                    if isinstance(event, Read):
                        progress(event.size)
                    elif isinstance(event, (Finished, Failed)):
                        answers[event.number] = _answer(event, given)
                        progress.note = _done(len(answers), given)
                        progress(0)
                    else:
                        progress.complain(f"{given[event.number].name}: {event.line}")
        except KeyboardInterrupt:
            interrupt_no_more()
    return [
        answers.get(number) or _without(one, _INTERRUPTED, ExitStatus.INTERRUPTED) for number, one in enumerate(given)
    ]


def _ask(ask: Callable[[Options, Given], Answer], options: Options, given: Given) -> Answer:
    """Answer for a store, in a process of its own.

    :raises BadOption: the options are of no use.
    """
    alone = replace(options, paths=given.paths)
    note_run(alone)  # each store has a run of its own
    try:
        return ask(alone, given)
    except click.ClickException as error:
        raise BadOption(error.format_message()) from error


def _done(number: int, given: Sequence[Given]) -> str:
    return f"{group_digits(number)} of {count(len(given), 'store')}"


def _answer(event: Finished | Failed, given: Sequence[Given]) -> Answer:
    if isinstance(event, Finished):
        answer: Answer = event.result
        return answer
    status = ExitStatus.BUG if event.cause is None else status_of(event.cause(event.text))
    return _without(given[event.number], event.text, status)


def _without(given: Given, why: str, status: ExitStatus) -> Answer:
    return Answer(StoreRow(store=str(given.name), error=why), status)


def status_of_all(answers: Sequence[Answer]) -> ExitStatus:
    """Return the exit status of the worst."""
    return worst_status(answer.status for answer in answers)


# --- documents --------------------------------------------------------------------------------------------


def print_answers(
    answers: Sequence[Answer],
    screen_of: Callable[[int], str],
    format_: str,
    path: str | None,
    evidence: Sequence[str],
    *,
    colour: bool,
) -> None:
    """Print the screen, or the documents, of all stores to the file `path`; None: to stdout.

    :raises Refused: the file exists, lies inside the evidence, or cannot be written.
    """
    with printed_to(path, evidence):
        if format_ == "table":
            print_screen(answers, screen_of, colour=colour)
        else:
            print_documents(answers, format_)


def print_documents(answers: Sequence[Answer], format_: str) -> None:
    """Print the documents in the order given: in one, `json`, or a line for each, `jsonl`."""
    if format_ == "json":
        click.echo(json_line(fleet_document(answers)))
    else:
        for answer in answers:
            click.echo(json_line(answer.element))


def fleet_document(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return one document with those of all stores."""
    complete = all(answer.document is not None and answer.document["complete"] for answer in answers)
    elements = [answer.element for answer in answers]
    return document_of(complete=complete, stores=elements)


# --- the screen ---------------------------------------------------------------------------------------------

_COLOURS = {ExitStatus.DONE: "green", ExitStatus.UNREADABLE: "yellow", ExitStatus.INTERRUPTED: "yellow"}
_HEADS = {
    "store": "store",
    "size_bytes": "size",
    "writer": "writer",
    "stopped": "stopped",
    "verdict": "verdict",
    "next_start": "next start",
    "gone": "lost",
    "do_first": "do first",
}
_TO_THE_RIGHT = ("size_bytes", "gone")
_GIVE_WAY = ("writer", "size_bytes", "stopped")  # in this order, on a narrow terminal
_OF_ADVICE = 40  # cells that they leave to what to do first


def print_screen(
    answers: Sequence[Answer], screen_of: Callable[[int], str], *, colour: bool, err: bool = False
) -> None:
    """Print a line for each store, the worst first; what they are together; and the command for one of them.

    `screen_of` returns the command for the screen of an answer, by its number.
    """
    order = sorted(range(len(answers)), key=lambda number: worst_first(answers[number]))
    head, *lines = table_lines([answers[number] for number in order])
    click.echo(click.style(head, bold=True) if colour else head, err=err, color=colour)
    for number, line in zip(order, lines, strict=True):
        shade = _COLOURS.get(answers[number].status, "red")
        click.echo(click.style(line, fg=shade) if colour else line, err=err, color=colour)
    click.echo(err=err)
    shown_first = next((number for number in order if answers[number].row.error is None), order[0])
    for line in _SCREEN.command("one of them", screen_of(shown_first)):
        click.echo(line, err=err)
    with as_answer():
        for line in _SCREEN.rows("together", _together([answer.row for answer in answers])):
            click.echo(line, err=err)


def command_about(verb: str, options: FleetOptions, given: Sequence[Given]) -> Callable[[int], str]:
    """Return what gives the command about one of the stores, by its number, with the same broker.conf."""

    return lambda number: fill_command(f"rmqinspect {verb} {{store}}", options.words_for(given[number].words))


def worst_first(answer: Answer) -> tuple[int, ...]:
    """Return what sorts the worst answer to the front; what was not read because of Ctrl-C is last.

    A start that loses something is as bad as damage, whatever the status of a summary is.
    """
    status = answer.status.badness if answer.status is not ExitStatus.INTERRUPTED else -1
    if costs(answer.row):
        status = max(status, ExitStatus.DAMAGE.badness)
    return tuple(-number for number in (status, *badness(answer.row)))


def table_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield the head and a line for each answer.

    Verdicts of `verify`, and how a store stopped, have a column where one is known. On a terminal some columns make
    room for what to do first, and a line is cut to its width.
    """
    rows = [answer.row for answer in answers]
    unknown = {name for name in ("verdict", "stopped") if not any(getattr(row, name) for row in rows)}
    cells = {name: [_HEADS[name], *(_cell(row, name) for row in rows)] for name in _HEADS if name not in unknown}
    room = line_width() if sys.stdout.isatty() else None
    for name in _GIVE_WAY:
        if room is not None and sum(map(_widest, cells, cells.values())) + 2 * (len(cells) - 1) > room:
            cells.pop(name, None)
    sides = "".join(">" if name in _TO_THE_RIGHT else "<" for name in cells)
    for line in columns(list(zip(*cells.values(), strict=True)), sides):
        yield line if room is None else clip(line, room)


def _widest(name: str, column: Sequence[str]) -> int:
    """Return the cells that a column asks for."""
    return min(max(map(cell_width, column)), _OF_ADVICE if name == "do_first" else sys.maxsize)


def _cell(row: StoreRow, name: str) -> str:
    if name == "do_first" and row.error is not None:
        return escape(f"not read: {row.error}")
    value = getattr(row, name)
    if value is None:
        return ""
    if name == "size_bytes":
        return describe_size(value)
    return group_digits(value) if isinstance(value, int) else escape(str(value))


def _together(rows: Sequence[StoreRow]) -> str:
    """Return how many stores there are, how large, and how many of them are alike."""
    size = sum(row.size_bytes or 0 for row in rows)
    kinds = Counter(_kind(row) for row in rows)
    numbers = "; ".join(f"{group_digits(number)} {kind}" for kind, number in kinds.most_common())
    gone = sum(row.gone or 0 for row in rows)
    words = f"{count(len(rows), 'store')}, {describe_size(size)}: {numbers}"
    return f"{words}; {count(gone, 'message')} lost by the next starts" if gone else words


def _kind(row: StoreRow) -> str:
    if row.error is not None:
        return "not read"
    if row.verdict is not None:
        return row.verdict.partition(",")[0].partition(":")[0]
    return row.next_start or "whose next start was not looked at"
