"""`rmqinspect forecast`: what a broker does to a store at its next start, as a screen, a document or a script.

`forecast --explain`: every decision of a walk, what it was decided from, and where the rule was read.

`forecast --script`: the ways to start as a shell script, each with its forecast. Nothing of it is run.

    bash start.sh          lists the ways
    bash start.sh copy     copies the store
    bash start.sh 2        copies the store, prepares way 2, starts the broker

Every way first tests that no broker runs, and what it needs: nothing is left behind where it cannot be gone to its end.
Then comes the copy. A way that is not better than the start as it is, is not offered.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import click

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.options import (
    DocumentOptions,
    JobOptions,
    LookOptions,
    RocksdbOptions,
    SourceOptions,
    TalkOptions,
    count_jobs,
    release_option,
    use_colour,
)
from rmqinspect.cli.parameters import option, takes
from rmqinspect.cli.session import document_format, json_line, print_lines, printed_to, refuse_early, tell_broker
from rmqinspect.cli.terminal import LONG_READ, Progress, Screen, least_time
from rmqinspect.commands import quote, quote_path
from rmqinspect.errors import BadOption, Unreadable
from rmqinspect.forecast.outcome import (
    STARTING,
    Decision,
    Forecast,
    Outcome,
    Verdict,
    outcome_words,
    span_of,
    unit_words,
)
from rmqinspect.store.model import Store
from rmqinspect.system import uri
from rmqinspect.text import count, describe_size, escape, group_digits, name_text
from rmqinspect.version import tool_name

STATUSES = {
    Verdict.SAFE: ExitStatus.DONE,
    Verdict.LOSES: ExitStatus.DAMAGE,
    Verdict.EMPTY: ExitStatus.DAMAGE,
    Verdict.REFUSES: ExitStatus.DAMAGE,
    Verdict.UNKNOWN: ExitStatus.UNREADABLE,
    Verdict.RUNS: ExitStatus.UNREADABLE,
}
"""The exit status of each verdict."""

_COLOURS = {ExitStatus.DONE: "green", ExitStatus.DAMAGE: "red", ExitStatus.UNREADABLE: "yellow"}


@dataclass(frozen=True, kw_only=True)
class ForecastArguments(DocumentOptions, LookOptions, SourceOptions, RocksdbOptions, JobOptions, TalkOptions):
    """What `forecast` is asked for."""

    broker_version: str | None = release_option()
    all_versions: bool = option(
        "--all-versions", is_flag=True, help="Walk the start of every release; one line for each answer."
    )
    exit: str | None = option(
        "--exit",
        type=click.Choice(("clean", "unclean")),
        help="Take the last stop for clean or unclean. Default: unclean if the file abort is there.",
    )
    explain: bool = option(
        "--explain", is_flag=True, help="Show every decision of the start, its inputs, and the class it was read from."
    )
    script: bool = option(
        "--script",
        is_flag=True,
        help="Print a shell script instead: copy the store, and each way to start with its forecast. Runs nothing.",
    )
    as_copied: bool = option(
        "--as-copied",
        is_flag=True,
        help="Tell of the files as they are, though a process holds the lock: for a store that was copied from under a"
        " running broker, or if that process is no broker.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.all_versions and self.broker_version:
            raise click.UsageError("--all-versions walks every release: --broker-version cannot be combined with it.")
        if self.script and (self.all_versions or self.explain or self.format):
            raise click.UsageError("--script prints a script: --all-versions, --explain and -f cannot be combined.")


@click.command("forecast")
@takes(ForecastArguments)
def command(arguments: ForecastArguments) -> int:
    """Tell what a broker does to a store at its next start: will it start, and what will be gone?

    Without --broker-version every release that may have written the store is walked; where they differ
    all are shown, and the worst one decides. Nothing is started and nothing is changed.

    Exit status: 0 the start loses nothing more, 3 it loses data or starts empty, or the broker does not
    start, 4 it cannot be told, or a broker runs on the store.

    \b
    Examples:
      rmqinspect forecast STORE
      rmqinspect forecast STORE --broker-version 5.3.3 --config broker.conf
      rmqinspect forecast STORE --all-versions
      rmqinspect forecast STORE --explain
      rmqinspect forecast STORE --script -o start.sh
      rmqinspect forecast STORE -q && systemctl start rocketmq
    """
    from rmqinspect.rocksdb.databases import UNITS_NEEDED
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.store.discover import open_store

    store = open_store(arguments.paths, **arguments.opening)
    refuse_early(arguments.output, store.paths)
    # Most starts change no queue in RocksDB: then it is enough to know where they end.
    with unpacked(store, replace(arguments.unpacking, ends_only=True)) as whole:
        found = _forecast(whole, arguments)
    if any(outcome.unknown == UNITS_NEEDED for outcome in found.outcomes):
        with unpacked(store, arguments.unpacking) as whole:
            found = _forecast(whole, arguments)
    if arguments.script:
        from rmqinspect.output import open_destination

        # As bytes: a script has to keep the names of files as they are, in any locale and through any stream.
        text = script(found, store).encode()
        with open_destination(arguments.output, store.paths) as out:
            out.write(text)
    elif not arguments.quiet or arguments.format or arguments.output:
        with printed_to(arguments.output, store.paths):
            _print(found, store, arguments)
    return _status(found)


def _status(forecast: "Forecast") -> ExitStatus:
    status = STATUSES[forecast.worst.verdict]
    # What could not be read may be what the start stumbles over.
    return ExitStatus.UNREADABLE if status is ExitStatus.DONE and forecast.unread else status


# --- the walk -------------------------------------------------------------------------------------------


def _forecast(store: "Store", arguments: ForecastArguments) -> "Forecast":
    from rmqinspect.cli.forecast_screen import alike
    from rmqinspect.forecast.evidence import of_parts
    from rmqinspect.forecast.versions import ForecastRequest, forecast

    if (parts := of_parts(store)) is not None:
        return parts
    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:
        tell_broker(store, progress.remark)
        for remark in store.remarks if arguments.verbose else ():
            progress.remark(remark)

        def announce(size: int, why: str) -> None:
            # Several walks read the same, once: the longest one counts.
            if size > max(progress.total, LONG_READ):
                progress.remark(f"up to {describe_size(size)} to read: {why}{least_time(size)}")
            progress.total = max(progress.total, size)

        request = ForecastRequest(
            release=arguments.broker_version,
            all_versions=arguments.all_versions,
            clean_exit=None if arguments.exit is None else arguments.exit == "clean",
            jobs=count_jobs(arguments),
            progress=progress,
            announce=announce,
            as_copied=arguments.as_copied,
            instead=not arguments.all_versions,
        )
        found = forecast(store, request)
        for message in found.unread:
            progress.complain(f"not read: {message}")
        told = found.worst.verdict is not Verdict.UNKNOWN
        if told and found.worst.release and arguments.broker_version is None and not arguments.all_versions:
            clues = f"from content: {found.version_from}" if found.version_from else "no evidence in the content"
            agree = "agree" if len(alike(found)) == 1 else "differ, the worst one decides"
            progress.remark(
                f"the version is not given: walked for {span_of(found.outcomes)} ({clues}); the outcomes {agree}"
            )
    return found


# --- what is printed ------------------------------------------------------------------------------------


def _print(forecast: "Forecast", store: "Store", arguments: ForecastArguments) -> None:
    if document_format(arguments) == "json":
        from rmqinspect.forecast.document import document

        click.echo(json_line(document(forecast, arguments.zone)))
        return
    colour = use_colour(arguments.color, arguments.output)
    print_lines(_lines(forecast, store, arguments), colour=colour)
    from rmqinspect.cli.forecast_screen import verdict_lines

    shade = _COLOURS[_status(forecast)]
    for line in verdict_lines(forecast):
        click.echo(click.style(line, fg=shade, bold=True) if colour else line, color=colour)


def _lines(forecast: "Forecast", store: "Store", arguments: ForecastArguments) -> Iterator[str]:
    from rmqinspect.cli.forecast_screen import Look, era_table, screen

    if arguments.explain:
        yield from walk_lines(forecast)
    if arguments.all_versions:
        yield from era_table(forecast)
    else:
        yield from screen(forecast, store, Look(arguments.zone, queues=arguments.verbose > 0))


_SCREEN = Screen(indent=11, lead=2, cut=True)


def walk_lines(forecast: Forecast) -> Iterator[str]:
    """Yield the decisions of each outcome, in the order in which the start comes to them.

    A step that a release before it takes alike is only named.
    """
    told: dict[tuple[Decision, ...], str] = {}  # the decisions of a step, and the first release that takes them
    for outcome in forecast.outcomes:
        word = "clean" if outcome.clean_exit else "unclean"
        yield f"walk of {outcome.release} after {'a' if outcome.clean_exit else 'an'} {word} exit"
        alike: dict[str, list[str]] = {}
        for step, run in groupby(outcome.decisions, key=lambda decision: decision.step):
            decisions = tuple(run)
            first = told.setdefault(decisions, outcome.release)
            if first != outcome.release:
                alike.setdefault(first, []).append(step)
                continue
            for number, decision in enumerate(decisions):
                yield from _SCREEN.rows("" if number else step, decision.text)
                inputs = ", ".join(
                    f"{name} {group_digits(value) if isinstance(value, int) else value}"
                    for name, value in decision.inputs
                )
                source = f"({decision.source})"
                yield from _SCREEN.rows("", f"from {inputs} {source}" if inputs else source)
        for release, steps in alike.items():
            yield from _SCREEN.rows(f"as {release}", ", ".join(dict.fromkeys(steps)))
        yield ""


_MOST = 9  # ways

# Where a broker is seen, in its order: it opens `lock` first of all, loads and recovers, and only then takes the lock
# (DefaultMessageStore#<init>, #load, #start, called by BrokerController#initialize and #start; 4.2.0 to 5.5.0).
# The lock is Java's FileLock, a POSIX lock, which flock(1) neither sees nor gets in the way of.
_HEAD = """\
#!/usr/bin/env bash
# Written by {tool}. Nothing was run and nothing was changed.
# The forecast is that of the files as they were then: stop the broker first, and let nothing write in between.
set -eu

store={store}
# The copy takes {size}, with the holes of the files kept.
copy={copy}
running={running}

usage() {{
  cat <<'END'
{usage}
END
}}

fail() {{
  echo "$1" | cat -v >&2  # paths may hold what moves a cursor
  exit 1
}}

no_broker() {{  # a second one would cut files before it fails: it recovers first, and takes the lock afterwards
  [ -d "$store" ] || fail "$store: no such folder"
  [ -r /proc/locks ] || fail "/proc/locks cannot be read: whether a broker runs on $store is not known"
  local device inode lock kind pid place process
  if [ -e "$store/lock" ]; then
    read -r device inode <<<"$(stat -c '%d %i' -- "$store/lock")"
    printf -v lock '%02x:%02x:%s' $((device >> 8 & 0xfff)) $((device & 0xff | device >> 12 & 0xfff00)) "$inode"
    while read -r _ kind _ _ pid place _; do
      case $kind:${{place##*:}} in
      POSIX:"$inode" | OFDLCK:"$inode")
        # Some file systems show another device here: then the open files decide, below.
        [ "$place" != "$lock" ] && [ -r "/proc/$pid/fd" ] || fail "$running (pid $pid holds the lock): stop it first"
        ;;
      esac
    done </proc/locks
    # Not -samefile: find would open the file itself.
    for process in $(find -L /proc/[0-9]*/fd -maxdepth 1 -inum "$inode" -printf '%D/%h\n' 2>/dev/null |
      grep "^$device/" | cut -d / -f 4); do
      fail "$running (pid $process has $store/lock open): stop it first"
    done
  fi
  for process in $(grep -las 'Broker[S]tartup' /proc/[0-9]*/cmdline | cut -d / -f 3); do
    if [ ! -r "/proc/$process/fd" ]; then
      [ -d "/proc/$process" ] || continue  # it has just ended
      fail "which store the broker of pid $process has cannot be seen: run this as its user"
    fi
    if find "/proc/$process/fd" -maxdepth 1 -printf '%l\n' 2>/dev/null | grep -qF -- "$store/"; then
      fail "$running (pid $process has files of it open): stop it first"
    fi
  done
}}

broker_from() {{  # the first and the last release that the way was walked for
  [ -n "${{ROCKETMQ_HOME:-}}" ] || fail "ROCKETMQ_HOME is not set: the folder of the release to start"
  [ -n "${{BROKER_CONF:-}}" ] || fail "BROKER_CONF is not set: the broker.conf to start with"
  [ -x "$ROCKETMQ_HOME/bin/mqbroker" ] || fail "$ROCKETMQ_HOME/bin/mqbroker: no such program"
  [ -r "$BROKER_CONF" ] || fail "$BROKER_CONF: no such file"
  local jar release walked=$1
  [ "$1" = "$2" ] || walked="$1 to $2"
  for jar in "$ROCKETMQ_HOME"/lib/rocketmq-store-[0-9]*.jar; do
    if [ ! -e "$jar" ]; then
      echo "no $jar: whether this is the release that the way was walked for is not known" >&2
      break
    fi
    release=${{jar##*/rocketmq-store-}}
    release=${{BROKER_RELEASE:-${{release%.jar}}}}
    printf '%s\n' "$1" "$release" "$2" | sort -CV ||
      fail "$jar: this way was walked for $walked; BROKER_RELEASE=$1 takes it for that one"
  done
}}

copy_store() {{
  local made
  for made in "$copy" "$copy.part" "$copy.moved"; do
    [ ! -e "$made" ] || fail "$made exists already: nothing is overwritten"
  done
  cp -a --sparse=always -- "$store" "$copy.part"
  mv -T -- "$copy.part" "$copy"
  no_broker  # a copy takes long
}}

move_away() {{  # out of the store, to a place beside the copy
  local place=$copy.moved/$1
  mkdir -p -- "${{place%/*}}"
  mv -T -- "$store/$1" "$place"
}}

set_length() {{  # cuts a file, or fills it with zeros
  truncate -s "$2" -- "$store/$1"
}}

rename() {{
  [ ! -e "$store/$2" ] || fail "$store/$2 exists already: nothing is overwritten"
  mv -T -- "$store/$1" "$store/$2"
}}

start_broker() {{
  exec "$ROCKETMQ_HOME/bin/mqbroker" -c "$BROKER_CONF"
}}

case "$#:${{1:-}}" in
0:)
  usage
  ;;
1:copy)
  no_broker
  copy_store
  ;;
"""

_TAIL = """\
*)
  usage >&2
  exit 2
  ;;
esac
"""


class _Step(NamedTuple):
    """A way to start: what it is called, what comes of it, and the commands before the start."""

    name: str
    outcome: Outcome
    commands: tuple[str, ...]
    units: tuple[str, ...] = ()  # what becomes of queue units, in words


def script(forecast: Forecast, store: Store) -> str:
    """Return the script.

    :raises BadOption: the store is no local folder.
    :raises Unreadable: a broker runs on it.
    """
    if forecast.worst.verdict is Verdict.RUNS:
        raise Unreadable(f"--script: {outcome_words(forecast.worst)}. The script is about the files of a stopped one")
    # Its folder, as `name_text` writes it; there is none without a file, or for parts of a store.
    paths = ((name_text(file.path), f"/{file.name}") for file in store.files if store.given == "store")
    root = next((path.removesuffix(name) for path, name in paths if path.endswith(name)), None)
    if any(map(uri.is_remote, store.paths)) or len(store.paths) > 1 or root is None:
        raise BadOption("--script: needs a store in one folder on this machine")
    steps = _steps(forecast)
    usage = ["copy  copies the store, and does nothing else"]
    usage += [f"{number}     {_told(step)}" for number, step in enumerate(steps, 1)]
    head = _HEAD.format(
        tool=tool_name(),
        store=quote_path(root),
        size=count(sum(file.size for file in store.files), "byte"),
        copy=quote_path(f"{root}.before-start"),
        running=quote(Verdict.RUNS),
        usage="\n".join(usage),
    )
    return head + "".join(line for number, step in enumerate(steps, 1) for line in _case(number, step)) + _TAIL


def _steps(forecast: Forecast) -> list[_Step]:
    """Return the start as it is, as far as the broker starts, and the ways that are better."""
    worst = forecast.worst
    alike = (list(run) for words, run in groupby(forecast.outcomes, key=outcome_words) if words == outcome_words(worst))
    as_it_is = [
        _Step("start it as it is", replace(run[-1], era=span_of(run)), ()) for run in alike if worst.verdict in STARTING
    ]
    ways = []
    for way in forecast.instead:
        if way.is_better and not way.remedy.settings:  # broker.conf is the reader's
            commands = [f"move_away {quote_path(name)}" for name in way.moved]
            commands += [f"set_length {quote_path(name)} {length}" for name, length in way.remedy.lengths]
            commands += [f"rename {quote_path(name)} {quote_path(new)}" for name, new in way.remedy.renamed]
            has_abort = not worst.clean_exit and "abort" not in way.moved
            if has_abort is way.outcome.clean_exit:
                commands.append("move_away abort" if has_abort else ': > "$store/abort"')
            ways.append(_Step(way.way, way.outcome, tuple(commands), tuple(unit_words(way))))
    return [*as_it_is, *ways][:_MOST]


def _told(step: _Step) -> str:
    return escape(f"{step.name}: {'; '.join((outcome_words(step.outcome), *step.units))}, with {step.outcome.era}")


def _case(number: int, step: _Step) -> Iterator[str]:
    first, last = (step.outcome.era.split(" to ") * 2)[:2]
    yield f"1:{number})  # {_told(step)}\n"
    for command in ("no_broker", f"broker_from {first} {last}", "copy_store", *step.commands, "start_broker"):
        yield f"  {command}\n"
    yield "  ;;\n"
