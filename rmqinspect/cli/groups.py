"""`rmqinspect groups`: how far consumer groups are in their queues, what they lost, what nobody consumes."""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.documents import print_line, printed_to
from rmqinspect.cli.options import NamedSourceOptions, choose_format, open_named, use_colour
from rmqinspect.cli.parameters import option, takes
from rmqinspect.cli.progress import Progress
from rmqinspect.cli.rows_plan import MessageOptions, RowsOptions
from rmqinspect.cli.selection import TopicOptions, UnconsumedOptions, with_offsets
from rmqinspect.cli.status import ExitStatus
from rmqinspect.cli.table_rows import print_rows

if TYPE_CHECKING:
    from rmqinspect.find.group_survey import GroupSurvey
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.groups import Position

_ALL = 1 << 31  # lines
_TIMES = frozenset({"oldest_unconsumed", "inflow"})
STATUSES = ("ok", "behind_min", "beyond_max", "no_queue")


@dataclass(frozen=True, kw_only=True)
class GroupsArguments(NamedSourceOptions, RowsOptions, MessageOptions, TopicOptions, UnconsumedOptions):
    """What `groups` is asked for."""

    groups: tuple[str, ...] = option("--group", multiple=True, metavar="GLOB", help="Consumer group; repeatable.")
    statuses: tuple[str, ...] = option(
        "--status", multiple=True, type=click.Choice(STATUSES), help="How an offset lies to its queue; repeatable."
    )


@click.command("groups")
@takes(GroupsArguments)
def command(arguments: GroupsArguments) -> int:
    """Show how far consumer groups are: lag, messages lost to them, what they popped, what nobody consumes.

    Little is read, whatever the size of the store. The other formats print the rows of the table
    groups, with --unconsumed those of the table messages; --body, --raw-body and --scan are for these.

    \b
    Examples:
      rmqinspect groups STORE
      rmqinspect groups STORE --group 'order-*' --status behind_min
      rmqinspect groups STORE --unconsumed order-service -o unconsumed.parquet
      rmqinspect groups STORE -f csv
    """
    format_ = choose_format(arguments)
    if arguments.unconsumed is not None and (arguments.groups or arguments.statuses):
        raise click.UsageError("--unconsumed names one group: without --group and --status.")

    # Ten thousand queues make many objects, all of which live to the end: a collection would free nothing.
    gc.disable()
    try:
        stores = open_named(arguments)
        if arguments.unconsumed is not None or format_ != "table" or arguments.columns is not None:
            return _print_rows(stores, arguments)
        return _print_screens(stores, arguments)
    finally:
        gc.enable()


# --- rows -------------------------------------------------------------------------------------------------


def _print_rows(stores: "Sequence[Store]", arguments: GroupsArguments) -> int:
    from rmqinspect.tables.groups import GROUPS
    from rmqinspect.tables.log import MESSAGES_TABLE

    table = GROUPS if arguments.unconsumed is None else MESSAGES_TABLE
    with with_offsets(stores, arguments, arguments.unpacking) as whole:
        return print_rows(whole, table, arguments, _selection(arguments))


def _selection(arguments: GroupsArguments) -> "Selection":
    from rmqinspect.tables.filters import Selection

    cells = (("group", arguments.groups), ("status", arguments.statuses))
    return Selection(
        topics=arguments.topics,
        queue_id=arguments.queue_id,
        system_topics=arguments.system_topics,
        cells=tuple((column, patterns) for column, patterns in cells if patterns),
        unconsumed=arguments.unconsumed,
    )


# --- screens ----------------------------------------------------------------------------------------------


def _print_screens(stores: "Sequence[Store]", arguments: GroupsArguments) -> int:
    evidence = [path for store in stores for path in store.paths]
    colour = use_colour(arguments.color, arguments.output)
    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:
        screens = _Screens(arguments, progress)
        with printed_to(arguments.output, evidence):
            for number, store in enumerate(stores):
                if number:
                    click.echo()
                for line in screens.of(store):
                    print_line(line, colour=colour)
        return screens.conclude()


class _Screens:
    """Surveys stores one after the other, and counts what decides the exit status."""

    def __init__(self, arguments: GroupsArguments, progress: Progress) -> None:
        self._arguments = arguments
        self._progress = progress
        self._selection = _selection(arguments)
        self._groups: set[str] = set()  # those that a pattern has met
        self._unread = 0
        self._beyond = False

    def of(self, store: "Store") -> Iterator[str]:
        """Yield the lines of a store's screen."""
        from rmqinspect.cli.groups_screen import Look, lines_of
        from rmqinspect.find.group_survey import survey_groups
        from rmqinspect.rocksdb.unpack import unpacked
        from rmqinspect.tables.groups import GROUPS
        from rmqinspect.tables.sources import unread_places
        from rmqinspect.tables.table import Request

        request = Request(on_unreadable=self._note_unread, on_remark=self._progress.remark)
        with unpacked(store, self._arguments.unpacking, GROUPS.databases) as whole:
            for remark in whole.remarks if self._arguments.verbose else whole.remarks[len(store.remarks) :]:
                self._progress.remark(f"{store.name}: {remark}")
            for message in unread_places(whole, (GROUPS.name,)):
                self._note_unread(message)
            survey = survey_groups(whole, request, self._is_wanted)
            self._narrow(survey)
            self._tell(survey, whole)
            self._progress.clear()
            limit = _ALL if self._arguments.verbose and self._arguments.limit is None else self._arguments.limit
            look = Look(self._arguments.zone, self._arguments.paths, limit)
            yield from lines_of(survey, whole, look, replace(request, columns=_TIMES))

    def _is_wanted(self, position: "Position") -> bool:
        entry, statuses = position.entry, self._arguments.statuses
        if not self._is_wanted_group(entry.group) or (statuses and position.status not in statuses):
            return False
        return self._selection.wants_queue(entry.topic, entry.queue_id)

    def _is_wanted_group(self, group: str) -> bool:
        patterns = self._arguments.groups
        if patterns and not any(fnmatchcase(group, pattern) for pattern in patterns):
            return False
        self._groups.add(group)
        return True

    def _narrow(self, survey: "GroupSurvey") -> None:
        """Leave out the topics without an offset that the filters do not ask for."""
        arguments, wants = self._arguments, self._selection.wants_topic
        survey.retries, survey.dead_letters = (
            [one for one in some if wants(one.topic) and self._is_wanted_group(one.group or "")]
            for some in (survey.retries, survey.dead_letters)
        )
        survey.unconsumed = [one for one in survey.unconsumed if wants(one.topic) and not arguments.groups]
        if arguments.statuses:
            survey.retries, survey.dead_letters, survey.unconsumed = [], [], []
        if arguments.groups or arguments.statuses or arguments.topics:
            survey.light_queues = 0

    def _tell(self, survey: "GroupSurvey", store: "Store") -> None:
        """Tell what is wrong with the files of the offsets, and note what decides the exit status."""
        self._selection.topics_seen.update(survey.topics)
        self._beyond = self._beyond or any(
            position.status == "beyond_max" for line in survey.lines for position in line.positions
        )
        for problem in survey.problems:
            (self._progress.remark if survey.readable else self._note_unread)(f"{store.name}: {problem}")

    def _note_unread(self, message: str) -> None:
        self._unread += 1
        self._progress.complain(message)

    def conclude(self) -> int:
        """Tell of patterns that match nothing, and return the exit status."""
        missed = False
        for pattern in self._selection.unmatched_topics():
            near = ", ".join(self._selection.near_topics(pattern))
            self._progress.complain(f"no topic matches {pattern}" + (f"; near: {near}" if near else ""))
            missed = True
        for pattern in self._arguments.groups:
            if not any(fnmatchcase(group, pattern) for group in self._groups):
                self._progress.complain(f"no group matches {pattern}")
                missed = True
        if self._beyond and self._arguments.fail_on != "never":
            return ExitStatus.DAMAGE
        if self._unread:
            return ExitStatus.UNREADABLE
        return ExitStatus.NOTHING_FOUND if missed else ExitStatus.DONE
