"""`rmqinspect find`: messages of one or several stores, and why there are none.

What a broker would answer a consumer is asked in `find_pull`.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rmqinspect.cli import exit_status
from rmqinspect.cli.decode import RowsPlan, make_plan
from rmqinspect.cli.find_pull import answer, refuse_unfit
from rmqinspect.cli.options import choose_format, count_jobs, open_named
from rmqinspect.cli.selection import read_selection
from rmqinspect.cli.session import Session, refuse_early, with_offsets, write_document
from rmqinspect.cli.verbs.find import FindArguments
from rmqinspect.codec.message_id import split_batch
from rmqinspect.document import as_object
from rmqinspect.system.run import with_run
from rmqinspect.text import count, group_digits

if TYPE_CHECKING:
    from rmqinspect.find.finding import Finding, Target
    from rmqinspect.find.search import Scope
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection


def run(arguments: FindArguments) -> int:
    """Do what `find` is asked for, and return the exit status."""
    format_ = choose_format(arguments)
    refuse_unfit(arguments, format_)

    if arguments.evidence and (arguments.asks_broker or arguments.redact is not None):
        raise click.UsageError("--evidence is about records, and has their bytes: not with --pull or --redact.")
    selection = read_selection(arguments)
    ids = tuple(dict.fromkeys(one for text in selection.ids for one in split_batch(text) or [text]))
    selection = replace(selection, ids=ids, keys_name_ids=True)
    stores = open_named(arguments)
    if arguments.asks_broker:
        return answer(arguments, stores, format_)
    with ExitStack() as copies:
        if arguments.lost_at_start:
            stores = list(copies.enter_context(with_offsets(stores, arguments, arguments.unpacking)))
        return _find(arguments, stores, selection, format_)


def _find(arguments: FindArguments, stores: "Sequence[Store]", selection: "Selection", format_: str) -> int:
    """Print the messages of stores that a selection chooses, and why there are none; return the exit status."""
    from rmqinspect.cli.find_screen import Lives, open_sink
    from rmqinspect.export.request import filters
    from rmqinspect.find.evidence import Hits, evidence_of
    from rmqinspect.find.finding import Finding, answers
    from rmqinspect.tables.log import MESSAGES_TABLE

    plan = make_plan(stores, MESSAGES_TABLE, arguments, selection, format_)
    with (
        Session(arguments, stores, plan.size) as session,
        open_sink(format_, plan, session.evidence, session.progress) as sink,
    ):
        progress = session.progress
        refuse_early(arguments.evidence, session.evidence)
        proof = Hits()
        ways = ", ".join(dict.fromkeys("by a scan" if one.look_up is None else one.look_up.way for one in plan.reads))
        session.announce(f": {ways}. Cheaper: --id, -k, --queue-offset with -t and --queue, or --since and --until")
        # What is lost is another question in each store: only the targets have it.
        asked = replace(selection, lost_at_start=None)
        targets = list(_targets(plan, session))
        for target in targets if arguments.evidence else ():
            proof.watch(target.store)
        finding = Finding(targets, asked, arguments.limit, arguments.redact)
        life = arguments.life if format_ in ("table", "json") else False
        lives = Lives(
            life,
            scan=arguments.scan,
            jobs=count_jobs(arguments),
            unread=finding.beside,
            trace_topics=arguments.trace_topics,
        )
        with closing(finding.hits()) as hits:
            for store, rows in hits:
                progress.clear()  # stdout and stderr may be the same terminal
                sink.take(store, rows)
                lives.take(store, rows)
                if arguments.evidence:
                    proof.take(store, rows)
        misses = list(finding.misses())
        for line in _remarks(finding, plan):
            progress.remark(line)
        progress.clear()
        sink.conclude(finding, misses, lives.traced())
        for line in lives.remarks():
            progress.remark(line)
        for line in lives.unread:
            progress.complain(line)
        unread = finding.unread
        if arguments.evidence:
            written = evidence_of(finding, misses, proof, filters(asked))
            unread = unread or [line for one in written.stores for line in one.unread]
            digest = write_document(with_run(as_object(written)), arguments.evidence, session.evidence)
            progress.remark(f"{arguments.evidence}  sha256 {digest}")
    damaged = finding.bad_hits or finding.is_cut_short or any(miss.is_lost for miss in answers(misses))
    return exit_status(arguments.fail_on, damaged=damaged, unread=unread, missed=finding.unanswered)


def _targets(plan: RowsPlan, session: Session) -> "Iterator[Target]":
    """Yield what is searched; what is unpacked from RocksDB exists until the session ends."""
    from rmqinspect.find.evidence import COLUMNS
    from rmqinspect.find.finding import Target
    from rmqinspect.find.life import LIFE_DATABASES
    from rmqinspect.tables.sources import range_to_read
    from rmqinspect.tables.table import QUEUE_DATABASES

    arguments = plan.arguments
    assert isinstance(arguments, FindArguments)
    databases = QUEUE_DATABASES if arguments.life is False else LIFE_DATABASES
    for read in plan.reads:
        told = len(session.unread)
        store = session.enter(session.opened(read.store, databases, plan.table.name))
        request = session.request(
            store,
            offsets=range_to_read(store, read.selection.offsets),
            named=read.selection.named,
            raw_body=arguments.raw_body,
            max_body=arguments.max_body,
            columns=plan.wanted | {"physical_offset"} | (COLUMNS if arguments.evidence else frozenset()),
        )
        look_up = None if plan.scan else read.look_up
        yield Target(store, read.selection, look_up, request, (*session.unread[told:], *read.unread))


def _remarks(finding: "Finding", plan: RowsPlan) -> Iterator[str]:
    """Yield the way taken in each store, and what a reader of the hits should know."""
    from rmqinspect.cli.find_screen import describe_gaps

    several = len(plan.reads) > 1
    for read in plan.reads:
        yield from (f"{read.store.name}: {remark}" if several else remark for remark in read.remarks)
    for one in finding.searched:
        head = f"{one.store.name}: " if several else ""
        yield f"{head}{_describe_way(one.scope)}"
        for question, second in one.second.items():
            yield f"{head}{question.shown} as msg id: {_describe_way(second)}"
    for name, gaps in finding.lacking.items():
        yield f"{name if several else 'incomplete'}: {describe_gaps(gaps)}: more may have been there"
    for question, reading in finding.readings.items():
        yield f"{question.shown}: found as {reading}"
    if finding.more:
        yield f"shown {group_digits(finding.total)}, {finding.more} (-n {plan.arguments.limit})"


def _describe_way(scope: "Scope") -> str:
    told = f": {scope.told}" if scope.told else ""
    least = "at least " if scope.stopped else ""
    return f"{scope.way}{told}; {least}{count(scope.records, 'record')} read"
