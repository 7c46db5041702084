"""`rmqinspect verify`: all checks of a level, the byte account, one verdict, an exit status."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

import click

from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.cli.against import compare_with_report
from rmqinspect.cli.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.cli.labelled import INDENT
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
from rmqinspect.cli.verify_screen import Judged, log_end, screen, verdict_line, where
from rmqinspect.errors import NotAStore, Refused, Unreadable
from rmqinspect.store.discover import open_store
from rmqinspect.store.lock import lock_holder
from rmqinspect.store.model import Store
from rmqinspect.system.throttle import read_bound
from rmqinspect.system.uri import shown, without_secrets
from rmqinspect.text import count, describe_duration, describe_size, escape
from rmqinspect.verify.codes import BY_CODE, CODES, LEVELS
from rmqinspect.verify.custody import ALGORITHM, Custody, Watch
from rmqinspect.verify.findings import Finding, Findings
from rmqinspect.verify.report import report_document
from rmqinspect.verify.run import VerifyOptions, VerifyResult, splits_to_read, verify

_QUICK_ERRORS = 3  # named when the quick part is done; the screen has all
_WHY = {
    "quick": "the last segment with records, and what is preallocated behind it",
    "standard": "every record and every queue unit is checked",
    "deep": "every record is checked against queues and index, and they against the log",
}


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
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="standard",
    show_default=True,
    help="quick: names, sizes, checkpoint, last segment; standard: every record; deep: all there is.",
)
@click.option("--check", "check", multiple=True, metavar="CODE", callback=_check_codes, help="Look for these only.")
@click.option("--skip", multiple=True, metavar="CODE", callback=_check_codes, help="Do not look for these.")
@click.option(
    "--list-checks",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_checks,
    help="Print every code, its severity, level and rule.",
)
@click.option(
    "--max-findings",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Rows kept of each code; the counts stay exact.",
)
@click.option(
    "--broker-version",
    type=click.Choice(RELEASES),
    metavar="VERSION",
    help="Whose rules to apply. Default: the version that wrote the store, estimated from its content.",
)
@click.option(
    "--rocksdb",
    is_flag=True,
    help="Check consume queues that live in RocksDB too, on a temporary copy; needs rmqinspect[rocksdb].",
)
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Everything as one JSON document.")
@click.option(
    "--hash",
    "hash_",
    type=click.Choice((ALGORITHM,)),
    help="The digest of every file into the report; a file that changes meanwhile makes it incomplete.",
)
@click.option(
    "--against",
    type=click.Path(dir_okay=False),
    metavar="REPORT",
    help="Run no checks: compare all files with those of a report.",
)
@click.option(
    "-f",
    "--format",
    "format_",
    type=click.Choice(FORMAT_NAMES),
    help="Default: the screen. Other formats: the table of findings, the verdict on stderr.",
)
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
    """
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
        wanted = VerifyOptions(options["level"], codes, options["max_findings"], jobs, version, unread)
        outcome, custody = _verify(whole, watch, wanted, options)
        # The folder inside an archive's extra level may be the store: name what was given.
        name = name_of(options["paths"], store)
        result = Judged(outcome, custody, name, options["report"], started, options["zone"])
        digest = _write_report(result) if options["report"] else None
    if format_ != "table" or options["output"]:
        _write_table(outcome, format_, options, result.name)
        if not options["quiet"]:
            click.echo(verdict_line(result), err=True)
    elif not options["quiet"]:
        colour = use_colour(options["color"])
        for line in screen(result, colour):
            click.echo(line, color=colour)
    if digest and not options["quiet"]:
        click.echo(f"{escape(options['report'])}  sha256 {digest}", err=True)
    return _status(outcome, options["fail_on"])


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
    from rmqinspect.consumequeue.rocksdb import NoRocksdict, unpack_queues

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
    from rmqinspect.system.output_file import local_file, refuse_inside

    if path != "-":
        path = local_file(path)
        refuse_inside(path, evidence)
        if os.path.isfile(path):
            raise Refused(f"{path}: exists already; nothing is overwritten")


def _end_unjudged(options: dict[str, Any]) -> ExitStatus:
    if not options["quiet"]:
        words = f"INCOMPLETE at level {options['level']}: interrupted while the files were listed; nothing was judged"
        click.echo(f"{'VERDICT':{INDENT}}{words}", err=options["format_"] not in (None, "table"))
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


def _verify(
    store: Store, watch: Watch | None, wanted: VerifyOptions, options: dict[str, Any]
) -> tuple[VerifyResult, Custody | None]:
    """Run the checks and take the digests; Ctrl-C ends both, and what they have found stays."""
    log = sum(split.end - split.start for split in splits_to_read(store, wanted.level))
    hashed = sum(exhibit.file.size for exhibit in watch.before.exhibits.values()) if watch and options["hash_"] else 0
    # What is true should Ctrl-C come before anything better is known.
    outcome = VerifyResult(store, wanted, Findings(wanted.max_findings), interrupted_at=store.log_start)
    digests = None
    with Progress(log + hashed, options["progress"], quiet=options["quiet"]) as progress:
        try:
            _announce(store, wanted, log, hashed, progress)
            for remark in store.remarks if options["verbose"] else ():
                progress.remark(remark)
            if log > LONG_READ and wanted.level != "quick":
                outcome, interrupted = _check_quickly(store, wanted, progress)
                if interrupted:
                    raise KeyboardInterrupt
            if watch is not None and options["hash_"]:
                digests = watch.take_digests(watch.before.exhibits, wanted.jobs)
            outcome = _check(outcome, lambda size: progress(size + (digests.take_octets() if digests else 0)))
            if digests is not None and outcome.interrupted_at is None:
                digests.wait(progress)
        except KeyboardInterrupt:
            if outcome.interrupted_at is None:
                outcome.interrupted_at = log_end(store)
        finally:
            interrupt_no_more()
            if digests is not None:
                digests.stop()
    custody = watch.conclude() if watch else None
    if custody is not None:
        outcome.unread += [line for line in custody.unread if line not in outcome.unread]
        outcome.unread += [f"{change.name}: changed while it was read: {change.what}" for change in custody.changed]
    return outcome, custody


def _announce(store: Store, wanted: VerifyOptions, log: int, hashed: int, progress: Progress) -> None:
    """Say what is going to be read; if that is much also why, the time where it is known, and the cheaper way."""
    if (holder := lock_holder(store)) is not None:
        pid = f"pid {holder} holds the lock"
        progress.remark(f"a broker runs on this store ({pid}): the files may change while they are read")
    numbers = [count(len(store.segments), "segment")]
    numbers += [count(number, "queue") for number in (_queues(store),) if number]
    numbers += [count(number, "index file") for number in (len(store.index_files),) if number]
    size = log
    size += sum(file.size for file in store.queue_files) if wanted.level != "quick" else 0
    size += sum(file.size for file in store.index_files) if wanted.level == "deep" else 0
    if size + hashed <= LONG_READ:
        progress.remark(f"{describe_size(size)} in {', '.join(numbers)}; level {wanted.level}")
        return
    words = f"{', '.join(numbers)}, {describe_size(size)} to read: {_WHY[wanted.level]}"
    if hashed:
        # What is read at a bounded rate does not stay in the page cache.
        words += f"; {describe_size(hashed)} to hash, " + ("read again" if read_bound() else "from the page cache")
    words += least_time(size + hashed)
    if wanted.level != "quick":
        quick = sum(split.end - split.start for split in splits_to_read(store, "quick"))
        words += f". --level quick reads {describe_size(quick)}"
    progress.remark(words)


def _check_quickly(store: Store, wanted: VerifyOptions, progress: Progress) -> tuple[VerifyResult, bool]:
    """Run the quick part by itself and show its result at once; return it, and whether Ctrl-C came.

    Of what was wished for it is the beginning: the outcome says that it was interrupted there.
    """
    begin = time.monotonic()
    outcome = verify(store, replace(wanted, level="quick"))
    interrupted = outcome.interrupted_at is not None
    words = f"quick part done in {describe_duration(time.monotonic() - begin)}: {count(outcome.errors, 'error')}"
    errors = [finding for finding in outcome.findings.rows if finding.severity == "error"]
    named = ", ".join(f"{finding.code} {where(finding) or finding.message}" for finding in errors[:_QUICK_ERRORS])
    more = ", …" if len(errors) > _QUICK_ERRORS else ""
    if not interrupted:
        progress.remark(f"{words}: {named}{more}" if errors else words)
    outcome.options, outcome.interrupted_at, outcome.accounts = wanted, store.log_start, []
    return outcome, interrupted


def _check(before: VerifyResult, progress: Callable[[int], None]) -> VerifyResult:
    """Return the outcome of all checks; `before` when Ctrl-C comes where they cannot say what they found."""
    known = before.findings.rows[:]

    def note(findings: list[Finding]) -> None:
        for finding in findings if not known else ():
            before.findings.add(finding)
        before.warnings = before.findings.severities.get("warning", 0)
        before.errors = before.findings.severities.get("error", 0) - before.findings.counts.get("ST-IO", 0)

    try:
        return verify(before.store, before.options, note, progress)
    except KeyboardInterrupt:
        return before


def _queues(store: Store) -> int:
    return len({(file.topic, file.queue_id) for file in store.queue_files if file.kind != "ext_queue"})


def _status(outcome: VerifyResult, fail_on: str) -> ExitStatus:
    if outcome.interrupted_at is not None:
        return ExitStatus.INTERRUPTED
    if fail_on != "never":
        if outcome.errors or (fail_on == "warning" and outcome.warnings):
            return ExitStatus.DAMAGE
        if outcome.unread:
            return ExitStatus.UNREADABLE
    return ExitStatus.DONE


def _write_table(outcome: VerifyResult, format_: str, options: dict[str, Any], name: str) -> None:
    from rmqinspect.output import View, open_writer
    from rmqinspect.verify.table import SCHEMA, finding_batches

    view = View(zone=options["zone"], colour=use_colour(options["color"], options["output"]))
    with open_writer(format_, SCHEMA, options["output"], view=view, evidence=outcome.store.paths) as writer:
        writer.complete = outcome.complete
        for batch in finding_batches(outcome.findings, name):
            writer.write(batch)


def _write_report(result: Judged) -> str:
    """Write the report and return its digest."""
    from rmqinspect.output import open_destination

    arguments = [without_secrets(argument) for argument in sys.argv[1:]]
    document = report_document(result.outcome, result.name, result.started, arguments, result.custody)
    raw = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")
    with open_destination(result.report, result.outcome.store.paths) as out:
        out.write(raw)
    return hashlib.sha256(raw).hexdigest()
