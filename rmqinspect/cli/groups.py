"""`rmqinspect groups`: how far consumer groups are in their queues, what they lost, what nobody consumes.

group           topic      queues     lag  lost  oldest unconsumed         inflow/h
order-service   orders          8  10 240     0  2026-11-21T08:38:19.980Z    11 520
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rmqinspect.broker.gone import tiered_files
from rmqinspect.broker.unread import OFFSETS, unread_by_writer
from rmqinspect.cli.decode import print_rows
from rmqinspect.cli.options import choose_format, open_named, use_colour
from rmqinspect.cli.session import Session, printed_to, tell_unmatched, with_offsets
from rmqinspect.cli.terminal import Screen, columns
from rmqinspect.cli.verbs.groups import GroupsArguments
from rmqinspect.commands import UNCONSUMED, fill_command
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.text import clip, count, describe_duration, escape, group_digits
from rmqinspect.times import format_micros, format_millis

if TYPE_CHECKING:
    from rmqinspect.broker.offset_age import OffsetAge
    from rmqinspect.find.consumers import GroupSurvey, GroupTopic, OffsetFile, TopicContent
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.group_positions import Position, Refused
    from rmqinspect.tables.request import Request


_SCREEN = Screen(indent=14, phrases=True)
_LISTED = 20  # lines of groups, unless -n or -v says otherwise
_SOME = 6  # lines of everything else
_SOME_CELLS = 40  # of a name in a text
_TIMES = frozenset({"oldest_unconsumed", "inflow"})


def run(arguments: GroupsArguments) -> int:
    """Do what `groups` is asked for, and return the exit status."""
    format_ = choose_format(arguments)
    if arguments.unconsumed is not None and (arguments.groups or arguments.statuses):
        raise click.UsageError("--unconsumed names one group: without --group and --status.")
    if format_ == "openmetrics" and (
        arguments.unconsumed is not None or arguments.columns or arguments.limit is not None
    ):
        raise click.UsageError("openmetrics has sums of all: without --unconsumed, --columns and -n.")

    # Ten thousand queues make many objects, all of which live to the end: a collection would free nothing.
    gc.disable()
    try:
        stores = open_named(arguments)
        if arguments.unconsumed is None and format_ == "table" and arguments.columns is None:
            return _print_screens(stores, arguments)

        from rmqinspect.tables.groups import GROUPS
        from rmqinspect.tables.log import MESSAGES_TABLE

        table = GROUPS if arguments.unconsumed is None else MESSAGES_TABLE
        with with_offsets(stores, arguments, arguments.unpacking) as whole:
            return print_rows(whole, table, arguments, _selection(arguments))
    finally:
        gc.enable()


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


def _print_screens(stores: "Sequence[Store]", arguments: GroupsArguments) -> int:
    from rmqinspect.find.consumers import survey_groups
    from rmqinspect.tables.groups import GROUPS

    filters = _Filters(arguments)
    colour = use_colour(arguments.color, arguments.output)
    beyond = False
    with Session(arguments, stores) as session, printed_to(arguments.output, session.evidence):
        for store in session.stores(GROUPS.databases, GROUPS.name):
            request = session.request(store)
            survey = survey_groups(store, request, filters.want)
            filters.narrow(survey)
            beyond |= any(position.status == "beyond_max" for line in survey.lines for position in line.positions)
            for problem in survey.problems:
                (session.progress.remark if survey.readable else session.complain)(f"{store.name}: {problem}")
            lines = _lines(survey, store, arguments, replace(request, columns=_TIMES))
            session.show(lines, colour=colour)
    missed = tell_unmatched(filters.selection, session.progress)
    for pattern in filters.unmatched_groups():
        session.progress.complain(f"no group matches {pattern}")
        missed = True
    session.tell_gaps("lag", " (decode --table gaps)")
    return session.status(damaged=beyond or session.gaps, missed=missed)


class _Filters:
    """What of a survey is asked for."""

    def __init__(self, arguments: GroupsArguments) -> None:
        self._arguments = arguments
        self.selection = _selection(arguments)
        self._groups: set[str] = set()  # those that a pattern has met

    def want(self, position: "Position") -> bool:
        """Return whether an offset of a group is asked for."""
        entry, statuses = position.entry, self._arguments.statuses
        if not self._want_group(entry.group) or (statuses and position.status not in statuses):
            return False
        return self.selection.wants_queue(entry.topic, entry.queue_id)

    def _want_group(self, group: str) -> bool:
        patterns = self._arguments.groups
        if patterns and not any(fnmatchcase(group, pattern) for pattern in patterns):
            return False
        self._groups.add(group)
        return True

    def unmatched_groups(self) -> list[str]:
        """Return the patterns that no group has met."""
        patterns = self._arguments.groups
        return [pattern for pattern in patterns if not any(fnmatchcase(group, pattern) for group in self._groups)]

    def narrow(self, survey: "GroupSurvey") -> None:
        """Leave out the topics without an offset that are not asked for."""
        arguments, wants = self._arguments, self.selection.wants_topic
        survey.retries, survey.dead_letters = (
            [one for one in some if wants(one.topic) and self._want_group(one.group or "")]
            for some in (survey.retries, survey.dead_letters)
        )
        survey.unconsumed = [one for one in survey.unconsumed if wants(one.topic) and not arguments.groups]
        if arguments.statuses:
            survey.retries, survey.dead_letters, survey.unconsumed = [], [], []
        if arguments.groups or arguments.statuses or arguments.topics:
            survey.light_queues = 0
        self.selection.topics_seen.update(survey.topics)


# --- the screen -------------------------------------------------------------------------------------------


def _lines(survey: "GroupSurvey", store: "Store", arguments: GroupsArguments, request: "Request") -> Iterator[str]:
    """Yield the screen of one store; the times of the lines that are shown are read for it."""
    from rmqinspect.find.consumers import add_times

    zone, limit, known = arguments.zone, arguments.limit, survey.queues > 0
    unlimited = limit is None and arguments.verbose > 0
    listed, some = (None if unlimited else usual if limit is None else limit for usual in (_LISTED, _SOME))
    groups = {line.group for line in survey.lines}
    queues = {(line.topic, one.entry.queue_id) for line in survey.lines for one in line.positions}
    topics = count(len({topic for topic, _ in queues}), "topic")
    where = f" with offsets in {count(len(queues), 'queue')} of {topics}" if groups else ""
    last = "" if survey.last_time is None else f"; last message {_moment(survey.last_time, zone)}"
    is_known = bool(survey.files) or (_has_config(store) and not why_unknown(store, "consumer offsets"))
    number = count(len(groups), "group") if is_known else "groups are not known"
    yield from _SCREEN.rows("store", f"{store.name}: {number}{where}{last}")
    yield from _SCREEN.several("offsets", _offsets(survey, store, zone))
    lines = survey.lines
    if lines:
        telling = lines if unlimited or limit is not None else [line for line in lines if line.weight]
        shown_lines = (telling or lines)[:listed]
        add_times(store, shown_lines, request)
        yield from _table(shown_lines, zone, known=known)
        told = {(line.group, line.topic) for line in shown_lines}
        if rest := [line for line in lines if (line.group, line.topic) not in told]:
            lag = sum(line.lag for line in rest)
            behind = f", lag {group_digits(lag)}" if lag else " without lag" if known else ""
            of = count(len({line.group for line in rest}), "group")
            yield f"and {count(len(rest), 'line')} of {of}{behind} (-v)"
    yield from _SCREEN.several("refused", _folded(_refused(survey.refused), some, "topic"))
    yield from _SCREEN.several("popped", _folded(_popped(lines), some, "topic"))
    retries, dead = (_contents(topics, survey, store, zone) for topics in (survey.retries, survey.dead_letters))
    yield from _SCREEN.several("retry", _folded(retries, some, "topic"))
    yield from _SCREEN.several("dead letters", _folded(dead, some, "topic"))
    if survey.readable and not why_unknown(store, "consumer offsets"):
        yield from _SCREEN.several("nobody", _nobody(survey, some))
    worst = next((line.group for line in lines if line.lag and line.kind not in ("system", "broadcast")), None)
    if worst is not None:
        yield from _SCREEN.command("next", fill_command(UNCONSUMED, store.words, group=worst))
    if lines:
        unknown = f"not known: {why_unknown(store, 'queues') or 'no consume queue was given'}"
        yield from _SCREEN.rows("lag", _sums(lines) if known else unknown)
        yield from _SCREEN.several("", _gone(lines, store))


# --- the head ---------------------------------------------------------------------------------------------


def _has_config(store: "Store") -> bool:
    return bool(store.config_files or store.unpacked_config)


def _offsets(survey: "GroupSurvey", store: "Store", zone: tzinfo) -> Iterator[str]:
    for file in survey.files:
        yield _file(file, survey, zone)
        if survey.age is not None and survey.age.file == file.file:
            yield from _age(survey.age, survey, zone)
        for copy in file.copies:
            if copy.behind or copy.ahead:
                ahead = f", {count(copy.ahead, 'message')} not at all" if copy.ahead else ""
                yield f"{copy.file}: with it {count(copy.behind, 'message')} would be consumed again{ahead}"
    for one in unread_by_writer(store):
        if one.document == OFFSETS:
            yield f"{one}; {one.remedy}"
    if not survey.files:
        none = "no consumerOffset.json that can be read" if _has_config(store) else "no config folder was given"
        why = why_unknown(store, "consumer offsets")
        yield f"none: {none}" if why is None else f"not known: {why}"


def _age(age: "OffsetAge", survey: "GroupSurvey", zone: tzinfo) -> Iterator[str]:
    """Yield why the offsets are older than what the groups consumed, and how much comes again."""
    if age.is_old and age.written is not None and age.newest is not None:
        span = describe_duration((age.newest - age.written) / 1000)
        yield (
            f"these offsets are {span} older than the last message: what groups consumed since "
            f"{_moment(age.written, zone)} is not known; a broker that starts with them delivers it again, at most "
            f"{count(survey.lag, 'message')}"
        )
    for one in age.contradictions[:_SOME]:
        group, topic = (clip(escape(name), _SOME_CELLS) for name in (one.group, one.topic))
        yield (
            f"{group} gave back offset {group_digits(one.consumed)} of {topic} queue {one.queue_id}, but its offset "
            f"is {group_digits(one.offset)}: at least {count(one.again, 'message')} come again"
        )
    if (rest := len(age.contradictions) - _SOME) > 0:
        yield f"and {count(rest, 'more queue')}"


def _file(file: "OffsetFile", survey: "GroupSurvey", zone: tzinfo) -> str:
    text = file.file
    if file.written is not None:
        text += f", written {_moment(file.written, zone)}"
        if (last := survey.last_time) is not None:
            distance = describe_duration(abs(last - file.written) / 1000)
            text += f", {distance} {'before' if file.written < last else 'after'} the last message"
    elif file.version_time is not None:
        text += f", changed {_moment(file.version_time, zone)} by its dataVersion"
    if file.is_copy:
        text += (
            f": the file itself is not there or broken; what was consumed since then comes again, "
            f"at most {count(survey.lag, 'message')}"
        )
    return text


def _sums(lines: "Sequence[GroupTopic]") -> str:
    others = [line for line in lines if line.kind != "system"]
    parts: list[str] = []
    for name, value, some in (
        ("{} not consumed", lambda line: line.lag, others),
        ("{} gone before they were consumed", lambda line: line.lost, others),
        ("offsets {} beyond the end of their queue", lambda line: line.beyond, lines),  # decides the exit status
    ):
        total, groups = _total(some, value)
        if total or not parts:
            of = f" by {count(groups, 'group')}" if groups else ""
            parts.append(name.format(count(total, "message")) + of)
    return "; ".join(parts)


def _gone(lines: "Sequence[GroupTopic]", store: "Store") -> Iterator[str]:
    """Yield which queues and which part of the log the groups miss."""
    absent, groups = _total(lines, lambda line: line.absent)
    if absent:
        stand = "stands in a queue that is" if absent == 1 else "stand in queues that are"
        yield f"{count(absent, 'offset')} of {count(groups, 'group')} {stand} not there"
    no_queue, groups = _total(lines, lambda line: line.no_queue)
    if no_queue:
        stands = "stands in a queue" if no_queue == 1 else "stand in queues"
        yield (
            f"{count(no_queue, 'offset')} of {count(groups, 'group')} {stands} of a topic that is not there: whether "
            "messages were left to consume, verify counts"
        )
    lost, _ = _total([line for line in lines if line.kind != "system"], lambda line: line.lost)
    if lost and tiered_files(store):
        yield "the store has tiered storage: what is gone here may be there"
    not_here, _ = _total([line for line in lines if line.kind != "system"], lambda line: line.not_here)
    if not_here:
        yield f"the log is not here: {count(not_here, 'message')} of the lag cannot be served"


def _total(lines: "Sequence[GroupTopic]", value: "Callable[[GroupTopic], int]") -> tuple[int, int]:
    return sum(map(value, lines)), len({line.group for line in lines if value(line)})


# --- the lines of groups ----------------------------------------------------------------------------------


def _table(lines: "Sequence[GroupTopic]", zone: tzinfo, *, known: bool) -> Iterator[str]:
    """Yield a header and a line for each; a column in which nothing is said is left out. `known`: whether lags are."""
    titles = ["group", "topic", "queues", "lag", "lost", "beyond", "oldest unconsumed", "inflow/h"]
    rows = [
        [
            escape(line.group),
            escape(line.topic),
            group_digits(len(line.positions)),
            ("no queue" if line.has_no_queue else group_digits(line.lag)) if known else "-",
            group_digits(line.lost),
            group_digits(line.beyond),
            "-" if line.oldest_unconsumed is None else format_micros(line.oldest_unconsumed, zone),
            "-" if line.inflow is None else group_digits(line.inflow),
        ]
        for line in lines
    ]
    for name in ("lost", "beyond"):
        if not any(getattr(line, name) for line in lines):
            left_out = titles.index(name)
            titles, *rows = (row[:left_out] + row[left_out + 1 :] for row in (titles, *rows))
    yield from columns([titles, *rows], "<<" + ">" * (len(titles) - 2), narrow=2)


def _moment(milliseconds: int, zone: tzinfo) -> str:
    return format_millis(milliseconds, zone) or f"{milliseconds} ms, not a valid time"


# --- what follows -----------------------------------------------------------------------------------------


def _refused(refused: "Sequence[Refused]") -> Iterator[str]:
    """Yield the messages that no consumer can read."""
    for one in refused:
        queues = ", ".join(map(str, one.queue_ids[:_SOME]))
        more = f" and {count(len(one.queue_ids) - _SOME, 'more')}" if len(one.queue_ids) > _SOME else ""
        wait = "message waits" if one.messages == 1 else "messages wait"
        noun = "queue" if len(one.queue_ids) == 1 else "queues"
        cure = f". {one.cure}" if one.cure else ""
        yield (
            f"{group_digits(one.messages)} {wait} in {noun} {queues}{more} of {clip(escape(one.topic), _SOME_CELLS)}: "
            f"{one.why}, so no consumer gets them{cure}"
        )


def _popped(lines: "Sequence[GroupTopic]") -> Iterator[str]:
    for line in lines:
        if line.pops is not None:
            to_pop = f"{count(line.lag, 'message')} to pop" if line.lag else "popped to the end"
            waiting = line.pops.awaiting_revive
            parts = (
                f"{group_digits(line.pops.in_flight)} in flight, {group_digits(line.pops.acked)} acknowledged",
                f"{group_digits(waiting)} due again and not revived" if waiting else "",
            )
            group, topic = (clip(escape(name), _SOME_CELLS) for name in (line.group, line.topic))
            yield f"{group} of {topic}: {to_pop}; {', '.join(filter(None, parts))}"


def _contents(topics: "Sequence[TopicContent]", survey: "GroupSurvey", store: "Store", zone: tzinfo) -> Iterator[str]:
    from rmqinspect.commitlog.record_reader import RecordReader

    with RecordReader(store) as times:
        for one in topics:
            stored = None if one.newest is None else times.timestamp_of(*one.newest)
            newest = "" if stored is None else f", the last one {_moment(stored, zone)}"
            gone = "" if one.group in survey.groups or not survey.readable else "; the group has no offsets"
            yield f"{one.topic}: {count(one.messages, 'message')}{newest}{gone}"


def _nobody(survey: "GroupSurvey", some: int | None) -> Iterator[str]:
    topics = sorted(survey.unconsumed, key=lambda one: -one.messages)
    if topics:
        words = [f"{one.topic} ({count(one.messages, 'message')})" for one in topics[:some]]
        left = len(topics) - len(words)
        more = f" and {count(left, 'more topic')}" if left else ""
        yield f"no group has an offset in {', '.join(words)}{more}"
    if survey.light_queues:
        yield f"no group has an offset in {count(survey.light_queues, 'light queue')} (%LMQ%)"


def _folded(texts: Iterator[str], some: int | None, noun: str) -> Iterator[str]:
    """Yield the first texts, and how many follow."""
    for number, text in enumerate(texts):
        if number == some:
            yield f"and {count(1 + sum(1 for _ in texts), f'more {noun}')}"
            return
        yield text
