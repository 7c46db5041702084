"""`rmqinspect find`: messages of one or several stores, and why there are none."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.find_pull import QuestionOptions, answer, refuse_unfit
from rmqinspect.cli.options import NamedSourceOptions, choose_format, count_jobs, open_named
from rmqinspect.cli.parameters import option, takes
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.rows_plan import RowsPlan, make_plan
from rmqinspect.cli.selection import read_selection
from rmqinspect.cli.status import ExitStatus
from rmqinspect.codec.message_id import split_batch
from rmqinspect.text import count, describe_size, group_digits

if TYPE_CHECKING:
    from rmqinspect.find.finding import Finding, Target
    from rmqinspect.find.search import Scope
    from rmqinspect.tables.filters import Selection


@dataclass(frozen=True, kw_only=True)
class FindArguments(NamedSourceOptions, QuestionOptions):
    """What `find` is asked for."""

    life: bool | None = option(
        "--life/--no-life",
        is_flag=True,
        default=None,
        help="What became of each message: its copies, and who passed it. Default: of up to 5 messages.",
    )


@click.command("find")
@takes(FindArguments)
def command(arguments: FindArguments) -> int:
    """Find messages by id, key, queue offset, time or content; say why there are none.

    Takes several stores, such as the brokers of a cluster. An id may be a message id or an offset
    message id: both are tried. Commas join the ids of a batch.

    Exit status: 0 found, 3 a damaged record, 4 unreadable, 5 something asked for was not found.

    \b
    Examples:
      rmqinspect find STORE -t orders -k ORDER-1001
      rmqinspect find a=/a/store b=/b/store --id C0A8010A1A2B18B4AAC263ABFA530007
      rmqinspect find STORE -t orders --queue 3 --queue-offset 12
      rmqinspect find STORE --body-contains 4711 --since -2h -f json
      rmqinspect find STORE --pull orders 3 12 --tag 'TagA || TagB'
    """
    format_ = choose_format(arguments)
    refuse_unfit(arguments, format_)

    from rmqinspect.cli.find_screen import open_sink
    from rmqinspect.cli.lives import Lives
    from rmqinspect.find.finding import Finding
    from rmqinspect.tables.log import MESSAGES_TABLE

    selection = _read_questions(arguments)
    stores = open_named(arguments)
    if arguments.asks_broker:
        return answer(arguments, stores, format_)
    plan = make_plan(stores, MESSAGES_TABLE, arguments, selection, format_)
    evidence = [path for store in stores for path in store.paths]
    with (
        ExitStack() as stack,
        Progress(plan.size, arguments.progress, quiet=arguments.quiet) as progress,
        open_sink(format_, plan, evidence, progress) as sink,
    ):
        _announce(plan, progress)
        finding = Finding(list(_targets(plan, progress, stack)), selection, arguments.limit, arguments.redact)
        life = arguments.life if format_ in ("table", "json") else False
        lives = Lives(life, scan=arguments.scan, jobs=count_jobs(arguments))
        with closing(finding.hits()) as hits:
            for store, rows in hits:
                progress.clear()  # stdout and stderr may be the same terminal
                sink.take(store, rows)
                lives.take(store, rows)
        misses = list(finding.misses())
        for line in _remarks(finding, plan):
            progress.remark(line)
        progress.clear()
        sink.conclude(finding, misses, lives.traced())
        for line in lives.remarks():
            progress.remark(line)
    return _status(finding, arguments)


def _read_questions(arguments: FindArguments) -> "Selection":
    selection = read_selection(arguments)
    ids = tuple(dict.fromkeys(one for text in selection.ids for one in split_batch(text) or [text]))
    return replace(selection, ids=ids, keys_name_ids=True)


def _announce(plan: RowsPlan, progress: Progress) -> None:
    """Announce a long read before it starts; with -v also what was inferred about the files."""
    remarks = [remark for read in plan.reads for remark in read.store.remarks]
    for remark in remarks if plan.arguments.verbose else ():
        progress.remark(remark)
    if plan.size > LONG_READ:
        ways = ", ".join(dict.fromkeys("by a scan" if one.look_up is None else one.look_up.way for one in plan.reads))
        cheaper = "Cheaper: --id, -k, --queue-offset with -t and --queue, or --since and --until"
        progress.remark(f"{describe_size(plan.size)} to read: {ways}. {cheaper}{least_time(plan.size)}")


def _targets(plan: RowsPlan, progress: Progress, stack: ExitStack) -> "Iterator[Target]":
    """Yield what is searched; what is unpacked from RocksDB exists until the stack ends."""
    from rmqinspect.find.finding import Target
    from rmqinspect.find.life import LIFE_DATABASES
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.tables.sources import range_to_read, unread_places
    from rmqinspect.tables.table import QUEUE_DATABASES, Request

    arguments = plan.arguments
    assert isinstance(arguments, FindArguments)
    for read in plan.reads:
        databases = QUEUE_DATABASES if arguments.life is False else LIFE_DATABASES
        store = stack.enter_context(unpacked(read.store, arguments.unpacking, databases))
        for remark in store.remarks[len(read.store.remarks) :]:
            progress.remark(f"{store.name}: {remark}")
        request = Request(
            offsets=range_to_read(store, read.selection.offsets),
            raw_body=arguments.raw_body,
            max_body=arguments.max_body,
            jobs=count_jobs(arguments),
            columns=plan.wanted | {"physical_offset"},
            progress=progress,
            on_unreadable=progress.complain,
            on_remark=progress.remark,
        )
        unread = tuple(unread_places(store, (plan.table.name,)))
        for message in unread:
            progress.complain(message)
        yield Target(store, read.selection, None if plan.scan else read.look_up, request, unread)


def _remarks(finding: "Finding", plan: RowsPlan) -> Iterator[str]:
    """Yield the way taken in each store, and what a reader of the hits should know."""
    several = len(plan.reads) > 1
    for one in finding.searched:
        head = f"{one.store.name}: " if several else ""
        yield f"{head}{_describe_way(one.scope)}"
        for question, second in one.second.items():
            yield f"{head}{question.shown} as msg id: {_describe_way(second)}"
    for question, reading in finding.readings.items():
        yield f"{question.shown}: found as {reading}"
    if finding.more:
        yield f"shown {group_digits(finding.total)}, {finding.more} (-n {plan.arguments.limit})"


def _describe_way(scope: "Scope") -> str:
    told = f": {scope.told}" if scope.told else ""
    return f"{scope.way}{told}; {count(scope.records, 'record')} read"


def _status(finding: "Finding", arguments: FindArguments) -> ExitStatus:
    if finding.bad_hits and arguments.fail_on != "never":
        return ExitStatus.DAMAGE
    if not finding.unanswered:
        return ExitStatus.DONE
    return ExitStatus.UNREADABLE if finding.unread else ExitStatus.NOTHING_FOUND
