"""`rmqinspect verify`: all checks of a level, the byte account, one verdict, an exit status."""

import hashlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from rmqinspect.account import Account
from rmqinspect.checks.codes import BY_CODE, CODES, LEVELS, levels_up_to
from rmqinspect.checks.findings import Finding, Findings, next_command
from rmqinspect.cli.against import compare_with_report
from rmqinspect.cli.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.cli.options import (
    FORMAT_NAMES,
    choose_format,
    count_jobs,
    look_options,
    source_options,
    talk_options,
    use_colour,
    verdict_options,
)
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.status import ExitStatus
from rmqinspect.custody import ALGORITHM, Custody, Watch
from rmqinspect.errors import NotAStore, Refused, Unreadable
from rmqinspect.filesystems import shown, without_secrets
from rmqinspect.read_rate import read_bound
from rmqinspect.report import iso_time, report_document
from rmqinspect.store import Store, lock_holder, open_store
from rmqinspect.text import count, describe_duration, describe_size, escape, group_digits
from rmqinspect.times import format_micros
from rmqinspect.verify import Outcome, Wish, splits_to_read, verify
from rmqinspect.version import tool_name
from rmqinspect.writer import RELEASES

_SEGMENT_ROWS = 20  # with more segments, those with nothing to tell become one row
_QUICK_ERRORS = 3  # named when the quick part is done; the screen has all
_CHANGES = 20  # files that changed while they were read: so many are named
_WIDTH = 100
_INDENT = 13
_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_WHY = {
    "quick": "the last segment with records, and what is preallocated behind it",
    "standard": "every record and every queue unit is checked",
    "deep": "every record is checked against queues and index, and they against the log",
}
# Findings about queue units; their place in the log is where they point.
_OF_UNITS = frozenset({"CQ-DANGLING", "CQ-BEYOND", "CQ-MISMATCH", "CQ-TAG", "CQ-SHIFT", "CQ-ORDER", "BQ-COUNT",
                       "BQ-ORDER", "EX-ADDRESS"})  # fmt: skip
_COLUMNS = ("segment", "size", "records", "bytes", "filler", "zeros", "unknown")


def _check_codes(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    codes = tuple(code.strip().upper() for text in value for code in text.split(","))
    for code in codes:
        if code not in BY_CODE:
            raise click.BadParameter(f"{escape(code)} is no code; --list-checks has them all", ctx, param)
    return codes


def _list_checks(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        width = max(len(code.code) for code in CODES)
        for code in CODES:
            click.echo(f"{code.code:{width}}  {code.severity:7}  {code.level:8}  {code.rule}")
        ctx.exit()


@click.command("verify")
@click.argument("paths", metavar="STORE...", nargs=-1)
@click.option("--level", type=click.Choice(LEVELS), default="standard", show_default=True,
              help="quick: names, sizes, checkpoint, last segment; standard: every record; deep: all there is.")
@click.option("--check", "check", multiple=True, metavar="CODE", callback=_check_codes, help="Look for these only.")
@click.option("--skip", multiple=True, metavar="CODE", callback=_check_codes, help="Do not look for these.")
@click.option("--list-checks", is_flag=True, is_eager=True, expose_value=False, callback=_list_checks,
              help="Print every code, its severity, level and rule.")
@click.option("--max-findings", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N",
              help="Rows kept of each code; the counts stay exact.")
@click.option("--broker-version", type=click.Choice(RELEASES), metavar="VERSION",
              help="Whose rules to apply. Default: the version that wrote the store, estimated from its content.")
@click.option("--rocksdb", is_flag=True,
              help="Check consume queues that live in RocksDB too, on a temporary copy; needs rmqinspect[rocksdb].")
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Everything as one JSON document.")
@click.option("--hash", "hash_", type=click.Choice((ALGORITHM,)),
              help="The digest of every file into the report; a file that changes meanwhile makes it incomplete.")
@click.option("--against", type=click.Path(dir_okay=False), metavar="REPORT",
              help="Run no checks: compare all files with those of a report.")
@click.option("-f", "--format", "format_", type=click.Choice(FORMAT_NAMES),
              help="Default: the screen. Other formats: the table of findings, the verdict on stderr.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Findings into a new file.")
@verdict_options
@source_options
@look_options
@talk_options
def command(**options: Any) -> int:
    """Is the commit log whole? Where is it not? Reads only; ends with one line of verdict.

    \b
    Exit status: 0 whole, 3 damage (--fail-on says from which severity on), 4 not everything could
    be read, 130 interrupted.

    \b
    Examples:
      rmqinspect verify STORE
      rmqinspect verify STORE --level quick
      rmqinspect verify STORE --level deep --hash sha256 --report evidence.json
      rmqinspect verify STORE --against evidence.json
      rmqinspect verify 00000000001073741824
    """  # fmt: skip
    if not options["paths"] and not options["config"]:
        raise click.UsageError("Missing argument 'STORE...'.")
    if options["against"]:
        return compare_with_report(options)
    if options["hash_"] and not options["report"]:
        raise click.UsageError("--hash: the digests are written into the report, so --report FILE is needed.")
    started = datetime.now(UTC)
    format_, codes = choose_format(options), _codes(options)
    with interrupted_once(), ExitStack() as copies:
        try:
            store, watch = _open(options)
            whole, unread = _with_rocksdb(store, copies) if options["rocksdb"] else (store, "")
        except KeyboardInterrupt:
            return _end_unjudged(options)
        jobs, version = count_jobs(options), options["broker_version"]
        wish = Wish(options["level"], codes, options["max_findings"], jobs, version, unread)
        outcome, custody = _verify(whole, watch, wish, options)
        # The folder inside an archive's extra level may be the store: name what was given.
        name = name_of(options["paths"], store)
        result = _Result(outcome, custody, name, options["report"], started, options["zone"])
        digest = _write_report(result) if options["report"] else None
    if format_ != "table" or options["output"]:
        _write_table(outcome, format_, options, result.name)
        if not options["quiet"]:
            click.echo(_verdict_line(result), err=True)
    elif not options["quiet"]:
        colour = use_colour(options["color"])
        for line in _screen(result, colour):
            click.echo(line, color=colour)
    if digest and not options["quiet"]:
        click.echo(f"{escape(options['report'])}  sha256 {digest}", err=True)
    return _status(outcome, options["fail_on"])


class _Result(NamedTuple):
    """All there is to tell about a run."""

    outcome: Outcome
    custody: Custody | None  # None without a report
    name: str  # of the store, as given
    report: str
    started: datetime
    zone: tzinfo  # of the times that are shown


def _open(options: dict[str, Any]) -> tuple[Store, Watch | None]:
    """Return the store and, for a report, the inventory of its files before any other is opened."""
    store = open_store(options["paths"], config=options["config"], base=options["base"])
    if not store.segments and store.place != "store" and not _judges(store):
        name = name_of(options["paths"], store)
        raise NotAStore(f"{name}: nothing in it that verify judges by itself: give the store it belongs to")
    for path in filter(None, (options["report"], options["output"])):
        _refuse_early(path, store.paths)
    return store, Watch(store) if options["report"] else None


def _judges(store: Store) -> bool:
    """Whether there is a file that says something wrong or right by itself."""
    return bool(store.queue_files or store.index_files or store.config_files or store.of_kind("timer_log"))


def _with_rocksdb(store: Store, copies: ExitStack) -> tuple[Store, str]:
    """Return the store with the queues of its RocksDB as queue files, and what could not be read, "" for nothing.

    `copies` removes the files at its end. A queue that is in files too is checked as RocksDB has it.

    :raises NoRocksdict: the library that reads RocksDB is not installed.
    """
    from rmqinspect.rocksdb.queues import NoRocksdict, unpack_queues

    if not any(file.name.startswith("consumequeue") for file in store.of_kind("rocksdb")):
        return store, ""
    folder = copies.enter_context(TemporaryDirectory(prefix="rmqinspect-"))
    try:
        unpacked = unpack_queues(store, folder)
    except NoRocksdict:
        raise
    except Unreadable as error:
        return store, str(error).replace(folder, "the copy")
    files = unpacked.store.queue_files
    if not files:
        return store, "consumequeue: its RocksDB has no queue at all, as when its newest files are lost"
    odd = f"consumequeue: its RocksDB has {count(unpacked.malformed, 'key')} of no queue" if unpacked.malformed else ""
    names = {(file.topic, file.queue_id) for file in files}
    rest = [file for file in store.queue_files if file.kind != "queue" or (file.topic, file.queue_id) not in names]
    ordered = sorted((*files, *rest), key=lambda file: (file.topic, file.queue_id, file.kind, file.base))
    return replace(store, queue_files=tuple(ordered)), odd


def _refuse_early(path: str, evidence: Sequence[str]) -> None:
    """Refuse before hours of reading what `open_destination` would refuse after them."""
    from rmqinspect.output.destination import local_file, refuse_inside

    if path != "-":
        path = local_file(path)
        refuse_inside(path, evidence)
        if os.path.isfile(path):
            raise Refused(f"{path}: exists already; nothing is overwritten")


def _end_unjudged(options: dict[str, Any]) -> ExitStatus:
    if not options["quiet"]:
        words = f"INCOMPLETE at level {options['level']}: interrupted while the files were listed; nothing was judged"
        click.echo(f"{'VERDICT':{_INDENT}}{words}", err=options["format_"] not in (None, "table"))
    return ExitStatus.INTERRUPTED


def name_of(paths: Sequence[str], store: Store) -> str:
    """Return what the user called the store."""
    return shown(paths[0]) if paths else store.name


def _codes(options: dict[str, Any]) -> frozenset[str]:
    chosen = (frozenset(options["check"]) or frozenset(BY_CODE)) - frozenset(options["skip"])
    if not chosen:
        raise click.UsageError("--check and --skip leave nothing to look for.")
    return chosen


# --- the run --------------------------------------------------------------------------------------


def _verify(store: Store, watch: Watch | None, wish: Wish, options: dict[str, Any]) -> tuple[Outcome, Custody | None]:
    """Run the checks and take the digests; Ctrl-C ends both, and what they have found stays."""
    log = sum(split.end - split.start for split in splits_to_read(store, wish.level))
    hashed = sum(exhibit.file.size for exhibit in watch.before.exhibits.values()) if watch and options["hash_"] else 0
    # What is true should Ctrl-C come before anything better is known.
    outcome = Outcome(store, wish, Findings(wish.max_findings), interrupted_at=store.log_start)
    digests = None
    with Progress(log + hashed, options["progress"], quiet=options["quiet"]) as progress:
        try:
            _announce(store, wish, log, hashed, progress)
            for remark in store.remarks if options["verbose"] else ():
                progress.remark(remark)
            if log > LONG_READ and wish.level != "quick":
                outcome, interrupted = _check_quickly(store, wish, progress)
                if interrupted:
                    raise KeyboardInterrupt
            if watch is not None and options["hash_"]:
                digests = watch.take_digests(watch.before.exhibits, wish.jobs)
            outcome = _check(outcome, lambda size: progress(size + (digests.take_octets() if digests else 0)))
            if digests is not None and outcome.interrupted_at is None:
                digests.wait(progress)
        except KeyboardInterrupt:
            if outcome.interrupted_at is None:
                outcome.interrupted_at = _log_end(store)
        finally:
            interrupt_no_more()
            if digests is not None:
                digests.stop()
    custody = watch.conclude() if watch else None
    if custody is not None:
        outcome.unread += [line for line in custody.unread if line not in outcome.unread]
        outcome.unread += [f"{change.name}: changed while it was read: {change.what}" for change in custody.changed]
    return outcome, custody


def _log_end(store: Store) -> int:
    return max((segment.base + segment.size for segment in store.segments), default=0)


def _announce(store: Store, wish: Wish, log: int, hashed: int, progress: Progress) -> None:
    """Say what is going to be read; if that is much also why, the time where it is known, and the cheaper way."""
    if (holder := lock_holder(store)) is not None:
        pid = f"pid {holder} holds the lock"
        progress.remark(f"a broker runs on this store ({pid}): the files may change while they are read")
    numbers = [count(len(store.segments), "segment")]
    numbers += [count(number, "queue") for number in (_queues(store),) if number]
    numbers += [count(number, "index file") for number in (len(store.index_files),) if number]
    size = log
    size += sum(file.size for file in store.queue_files) if wish.level != "quick" else 0
    size += sum(file.size for file in store.index_files) if wish.level == "deep" else 0
    if size + hashed <= LONG_READ:
        progress.remark(f"{describe_size(size)} in {', '.join(numbers)}; level {wish.level}")
        return
    words = f"{', '.join(numbers)}, {describe_size(size)} to read: {_WHY[wish.level]}"
    if hashed:
        # What is read at a bounded rate does not stay in the page cache.
        words += f"; {describe_size(hashed)} to hash, " + ("read again" if read_bound() else "from the page cache")
    words += least_time(size + hashed)
    if wish.level != "quick":
        quick = sum(split.end - split.start for split in splits_to_read(store, "quick"))
        words += f". --level quick reads {describe_size(quick)}"
    progress.remark(words)


def _check_quickly(store: Store, wish: Wish, progress: Progress) -> tuple[Outcome, bool]:
    """Run the quick part by itself and show its result at once; return it, and whether Ctrl-C came.

    Of what was wished for it is the beginning: the outcome says that it was interrupted there.
    """
    begin = time.monotonic()
    outcome = verify(store, replace(wish, level="quick"))
    interrupted = outcome.interrupted_at is not None
    words = f"quick part done in {describe_duration(time.monotonic() - begin)}: {count(outcome.errors, 'error')}"
    errors = [finding for finding in outcome.findings.rows if finding.severity == "error"]
    named = ", ".join(f"{finding.code} {_where(finding) or finding.message}" for finding in errors[:_QUICK_ERRORS])
    more = ", …" if len(errors) > _QUICK_ERRORS else ""
    if not interrupted:
        progress.remark(f"{words}: {named}{more}" if errors else words)
    outcome.wish, outcome.interrupted_at, outcome.accounts = wish, store.log_start, []
    return outcome, interrupted


def _check(before: Outcome, progress: Callable[[int], None]) -> Outcome:
    """Return the outcome of all checks; `before` when Ctrl-C comes where they cannot say what they found."""
    known = before.findings.rows[:]

    def note(findings: list[Finding]) -> None:
        for finding in findings if not known else ():
            before.findings.add(finding)
        before.warnings = before.findings.severities.get("warning", 0)
        before.errors = before.findings.severities.get("error", 0) - before.findings.counts.get("ST-IO", 0)

    try:
        return verify(before.store, before.wish, note, progress)
    except KeyboardInterrupt:
        return before


def _queues(store: Store) -> int:
    return len({(file.topic, file.queue_id) for file in store.queue_files if file.kind != "ext_queue"})


def _status(outcome: Outcome, fail_on: str) -> ExitStatus:
    if outcome.interrupted_at is not None:
        return ExitStatus.INTERRUPTED
    if fail_on != "never":
        if outcome.errors or (fail_on == "warning" and outcome.warnings):
            return ExitStatus.DAMAGE
        if outcome.unread:
            return ExitStatus.UNREADABLE
    return ExitStatus.DONE


def _write_table(outcome: Outcome, format_: str, options: dict[str, Any], name: str) -> None:
    from rmqinspect.checks.table import SCHEMA, finding_batches
    from rmqinspect.output import View, open_writer

    view = View(zone=options["zone"], colour=use_colour(options["color"], options["output"]))
    with open_writer(format_, SCHEMA, options["output"], view=view, evidence=outcome.store.paths) as writer:
        writer.complete = outcome.complete
        for batch in finding_batches(outcome.findings, name):
            writer.write(batch)


def _write_report(result: _Result) -> str:
    """Write the report and return its digest."""
    from rmqinspect.output import open_destination

    arguments = [without_secrets(argument) for argument in sys.argv[1:]]
    document = report_document(result.outcome, result.name, result.started, arguments, result.custody)
    octets = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")
    with open_destination(result.report, result.outcome.store.paths) as out:
        out.write(octets)
    return hashlib.sha256(octets).hexdigest()


# --- the screen -----------------------------------------------------------------------------------


def _screen(result: _Result, colour: bool) -> Iterator[str]:
    outcome, store = result.outcome, result.outcome.store
    if not store.neighbours or store.place != "store":
        yield from _given(outcome)
    if outcome.loss:
        yield from _label("lost", str(outcome.loss))
    shown = [finding for finding in outcome.findings.rows if finding.code != "ST-UNCHECKED"]
    for finding in shown:
        yield from _finding_lines(finding, result, colour)
    if outcome.findings.left_out:
        yield f"{'':{_INDENT}}and {group_digits(outcome.findings.left_out)} more: --max-findings shows them"
    if shown:
        yield ""
    if outcome.accounts:
        yield from _account_lines(outcome)
    if outcome.units and outcome.store.segments and (outcome.interrupted_at is None or outcome.joined_units):
        units = f"{group_digits(outcome.joined_units)} of {count(outcome.units, 'unit')}"
        yield from _label("queues", f"{units} lead to their record")
    if entries := outcome.joined_entries:
        lead = "entry leads" if entries == 1 else "entries lead"
        yield from _label("index", f"{group_digits(entries)} {lead} to their record")
    yield from _label("interrupted", _left_unread(outcome))
    unchecked = [finding for finding in outcome.findings.rows if finding.code == "ST-UNCHECKED"]
    parts = [_unchecked_words(row) for row in unchecked]
    if outcome.wish.level != "deep" and store.place == "store" and store.segments:
        none = "" if store.queue_files else ", there are no consume queues in files"
        parts.insert(0, f"log -> queues, groups{none} (--level deep)")
    too_deep = [code for code in BY_CODE if code in outcome.wish.codes and _is_left_out(code, outcome.wish)]
    if too_deep and len(outcome.wish.codes) < len(BY_CODE):
        parts.append(f"{', '.join(too_deep)} (--level {BY_CODE[too_deep[-1]].level})")
    yield from _label("not checked", "; ".join(dict.fromkeys(parts)))
    if not store.neighbours and store.segments:
        yield from _label("not given", "the segments before and after, queues, index, checkpoint, config: not judged")
    elif store.place != "store":
        rest = "what belongs to it" if not store.segments else "queues, index, checkpoint, config"
        yield from _label("not given", f"{rest}: not judged")
    if result.custody is not None and result.custody.algorithm:
        yield from _custody_lines(result.custody, result.report)
        moments = _span(result.started, datetime.now(UTC))
        yield from _label("run", f"{tool_name()}, {moments}, arguments in the report")
    yield _verdict_line(result)


def _is_left_out(code: str, wish: Wish) -> bool:
    return BY_CODE[code].level not in levels_up_to(wish.level)


def _unchecked_words(finding: Finding) -> str:
    """Return what was not checked, how much of it there is, and the option that checks it."""
    text = finding.message.removeprefix("not checked: ")
    if finding.length is None:
        return text
    what, _, rest = text.partition(", ")
    remedy = rest[rest.rfind(" (--") :] if " (--" in rest else ""
    return f"{what} ({_files(finding)}){remedy}"


def _left_unread(outcome: Outcome) -> str:
    """Say what Ctrl-C left unread, "" if it did not come."""
    reached, segments = outcome.interrupted_at, outcome.store.segments
    if reached is None:
        return ""
    whole = sum(segment.base + segment.size <= reached for segment in segments)
    words = f"segments read: {group_digits(whole)} of {group_digits(len(segments))}"
    if whole < len(segments):
        words += f"; not judged: the log from physical offset {group_digits(reached)} on, and what needs all of it"
    return words


def _custody_lines(custody: Custody, report: str) -> Iterator[str]:
    files = f"{count(len(custody.inventory.exhibits), 'file')}, {count(custody.octets, 'byte')}"
    taken = f"sha256 of {group_digits(len(custody.digests))}" if custody.undigested else "sha256"
    yield from _label("custody", f"{files}: {taken}, size and time of each are in {report}")
    for change in custody.changed[:_CHANGES]:
        yield from _label("", f"changed while it was read: {change.name}: {change.what}")
    more = len(custody.changed) - _CHANGES
    if more > 0:
        yield from _label("", f"and {group_digits(more)} more, all of them in the report")
    same = "" if custody.changed else "; sizes and times the same before and after the run"
    yield from _label("", f"opened for reading only{same}")


def _span(started: datetime, ended: datetime) -> str:
    end = f"{ended:%H:%M:%S}Z" if ended.date() == started.date() else f"{ended:%Y-%m-%dT%H:%M:%S}Z"
    return f"{started:%Y-%m-%dT%H:%M:%S}Z to {end}"


def _files(finding: Finding) -> str:
    return f"{count(finding.count, 'file')}, {describe_size(finding.length or 0)}"


def _label(label: str, text: str) -> Iterator[str]:
    if text:
        yield from textwrap.wrap(
            escape(text), _WIDTH, initial_indent=f"{label:{_INDENT}}", subsequent_indent=" " * _INDENT,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _given(outcome: Outcome) -> Iterator[str]:
    store = outcome.store
    words = []
    for segment in store.segments:
        what = "DLedger data file" if segment.kind == "dledger" else "commit-log segment"
        words.append(f"one {what}, base {group_digits(segment.base)}")
    kind = store.place.replace("_", " ")
    folder = f"{kind} {'files' if store.neighbours else 'file'}, judged by what they say themselves"
    yield from _label("given", "; ".join(words) if words and not store.neighbours else folder)


def _finding_lines(finding: Finding, result: _Result, colour: bool) -> Iterator[str]:
    code = BY_CODE[finding.code]
    where = _where(finding)
    severity = f"{finding.severity:8}"
    if colour:
        severity = click.style(severity, fg=_COLOURS[finding.severity])
    head = f"{finding.code:{max(_INDENT, len(finding.code) + 1)}}{severity} "
    yield head + escape(where or finding.message)
    details = []
    if (record := _record(finding, result.zone)) is not None:
        details.append(record)
    if where:
        details.append(finding.message)
    if finding.count > 1 and str(finding.count) not in finding.message:
        details.append(f"{group_digits(finding.count)} alike, one behind the other")
    if finding.expected is not None or finding.found is not None:
        pairs = (("expected", finding.expected), ("found", finding.found))
        details.append(", ".join(f"{label} {value}" for label, value in pairs if value is not None))
    for detail in details:
        yield from _label("", detail)
    if code.broker_effect and finding.severity != "info":
        yield from (" " * _INDENT + line for line in _wrap("broker  ", code.broker_effect))
    command_next = next_command(finding, result.name)
    if command_next and finding.severity != "info":
        yield " " * _INDENT + "next    " + escape(command_next)


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH - _INDENT, initial_indent=label, subsequent_indent=" " * len(label))


def _where(finding: Finding) -> str:
    where = finding.file or ""
    if finding.severity == "info" and finding.offset is None:
        return ""
    if where and finding.offset is not None:
        where += f" at {group_digits(finding.offset)} ({finding.offset:#x})"
        if finding.length:
            where += f", {group_digits(finding.length)} bytes"
    return where


def _record(finding: Finding, zone: tzinfo) -> str | None:
    if finding.topic is None:
        return None
    if finding.physical_offset is None:
        place = "" if finding.queue_offset is None else f" offset {finding.queue_offset}"
        return f"{finding.topic} queue {finding.queue_id}{place}"
    queue = f"{finding.topic} queue {finding.queue_id} offset {finding.queue_offset}"
    if finding.code in _OF_UNITS:
        return f"unit of {queue}, points at {group_digits(finding.physical_offset)}"
    text = f"record {group_digits(finding.physical_offset)}: {queue}"
    if finding.keys:
        text += f", key {finding.keys.split(' ')[0]}"
    if finding.timestamp is not None and iso_time(finding.timestamp) is not None:
        text += f", {format_micros(1000 * finding.timestamp, zone)}"
    return text


def _account_lines(outcome: Outcome) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "")]
    accounts = outcome.accounts
    quiet: list[Account] = []
    troubled = {finding.file for finding in outcome.findings.rows if finding.severity != "info"}
    for account in accounts:
        tells = account.segment.name in troubled or account.gap_bytes["unknown"] or account is accounts[-1]
        if len(accounts) > _SEGMENT_ROWS and not tells:
            quiet.append(account)
            continue
        rows += _quiet_row(quiet)
        quiet = []
        rows.append(_account_row(str(account.segment.base), [account], _damaged(outcome, account)))
    rows += _quiet_row(quiet)
    if len(accounts) > 1:
        adds_up = all(account.total == account.segment.size for account in accounts)
        rows.append(_account_row("all", accounts, "adds up" if adds_up else "read in part"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip()


def _quiet_row(accounts: list[Account]) -> list[tuple[str, ...]]:
    if not accounts:
        return []
    label = f"{accounts[0].segment.base} to …: {count(len(accounts), 'segment')}"
    return [_account_row(label, accounts, "")]


def _account_row(label: str, accounts: Sequence[Account], remark: str) -> tuple[str, ...]:
    numbers = [
        sum(account.segment.size for account in accounts),
        sum(account.records for account in accounts),
        sum(account.record_bytes for account in accounts),
        *(sum(account.gap_bytes[kind] for account in accounts) for kind in ("filler", "zeros", "unknown")),
    ]
    return (label, *map(group_digits, numbers), remark)


def _damaged(outcome: Outcome, account: Account) -> str:
    of_file = (row for row in outcome.findings.rows if row.file == account.segment.name)
    rows = [row for row in of_file if row.severity == "error" and row.code.startswith("CL-")]
    number = sum(row.count for row in rows)
    return count(number, "error") if number else ""


def _verdict_line(result: _Result) -> str:
    outcome = result.outcome
    records = sum(account.records for account in outcome.accounts)
    scope = ", for this file only" if not outcome.store.neighbours and len(outcome.store.segments) == 1 else ""
    left_out = len(BY_CODE) - len(outcome.wish.codes)
    if left_out:
        scope += f", {len(outcome.wish.codes)} of {len(BY_CODE)} checks"
    words = f"{outcome.verdict} at level {outcome.wish.level}{scope}: {count(outcome.errors, 'error')}, "
    words += f"{count(outcome.warnings, 'warning')} in {count(records, 'record')}; {_read(outcome, result.custody)}"
    return f"{'VERDICT':{_INDENT}}{words}"


def _read(outcome: Outcome, custody: Custody | None) -> str:
    segments = outcome.store.segments
    changed = len(custody.changed) if custody else 0
    if outcome.interrupted_at is not None:
        done = sum(account.total for account in outcome.accounts)
        part = done * 100 // max(sum(segment.size for segment in segments), 1)
        if outcome.interrupted_at >= _log_end(outcome.store) and custody is not None and custody.undigested:
            files = f"{group_digits(len(custody.digests))} of {count(len(custody.inventory.exhibits), 'file')}"
            return f"interrupted while the digests were taken: {files}"
        return f"interrupted at {part} %, physical offset {group_digits(outcome.interrupted_at)}"
    if changed:
        return f"{count(changed, 'file')} changed while being read"
    if outcome.unread:
        return f"{count(len(outcome.unread), 'place')} could not be read"
    if not segments:
        return "there is no commit log"
    return "all bytes read" if outcome.log_read else "the end of the log read"
