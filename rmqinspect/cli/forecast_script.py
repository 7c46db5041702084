"""`forecast --script`: the ways to start as a shell script, each with its forecast. Nothing of it is run.

    bash start.sh          lists the ways
    bash start.sh copy     copies the store
    bash start.sh save     saves what the start as it is gives up
    bash start.sh 2        saves what way 2 gives up, copies the store, prepares way 2, starts the broker

Every way first tests that no broker runs, and what it needs: nothing is left behind where it cannot be gone to its end.
Then what it loses is saved, by rmqinspect, and the store is copied; what is lost once files were changed can be seen
only then, so such a way saves between the change and the start. `rebuild` and `salvage` need no copy: the new store
takes the place of the old one, which stays as it was under the copy's name. A way that is not better than the start as
it is, is not offered.
"""

import os
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from rmqinspect.broker.clock import octal_bytes
from rmqinspect.commands import quote, quote_path
from rmqinspect.errors import BadOption, Unreadable
from rmqinspect.forecast.outcome import STARTING, Forecast, Outcome, Verdict
from rmqinspect.forecast.words import outcome_words, span_of, unit_words
from rmqinspect.store.model import Store
from rmqinspect.system import uri
from rmqinspect.text import count, escape, name_text
from rmqinspect.version import tool_name

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
new={new}  # a new store, until it takes the place of the old one
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

broker_from() {{  # the first and the last release that the choice was worked out for
  [ -n "${{ROCKETMQ_HOME:-}}" ] || fail "ROCKETMQ_HOME is not set: the folder of the release to start"
  [ -n "${{BROKER_CONF:-}}" ] || fail "BROKER_CONF is not set: the broker.conf to start with"
  [ -x "$ROCKETMQ_HOME/bin/mqbroker" ] || fail "$ROCKETMQ_HOME/bin/mqbroker: no such program"
  [ -r "$BROKER_CONF" ] || fail "$BROKER_CONF: no such file"
  local jar release walked=$1
  [ "$1" = "$2" ] || walked="$1 to $2"
  for jar in "$ROCKETMQ_HOME"/lib/rocketmq-store-[0-9]*.jar; do
    if [ ! -e "$jar" ]; then
      echo "no $jar: whether this is the release that the choice was worked out for is not known" >&2
      break
    fi
    release=${{jar##*/rocketmq-store-}}
    release=${{BROKER_RELEASE:-${{release%.jar}}}}
    printf '%s\n' "$1" "$release" "$2" | sort -CV ||
      fail "$jar: this choice was worked out for $walked; BROKER_RELEASE=$1 takes it for that one"
  done
}}

nothing_made() {{
  local made
  for made in "$copy" "$copy.part" "$copy.moved" "$new"; do
    [ ! -e "$made" ] || fail "$made exists already: nothing is overwritten"
  done
}}

save_lost() {{  # beside the copy; options of rmqinspect say which start
  local program=${{RMQINSPECT:-rmqinspect}} saved=$copy.lost.parquet status=0
  if [ "$program" = none ]; then
    echo "what is lost is not saved, as asked for: RMQINSPECT=none" >&2
    return
  fi
  command -v -- "$program" >/dev/null ||
    fail "$program: no such program: it saves what is lost. RMQINSPECT=PROGRAM names it; RMQINSPECT=none saves nothing"
  [ ! -e "$saved" ] || fail "$saved exists already: nothing is overwritten"
  "$program" decode {source} --lost-at-start "$@" -o "$saved" || status=$?
  case $status in
  0 | 3) ;;  # 3: a record among them is damaged, or a gap lies between them
  *) fail "what is lost could not be saved (exit status $status): nothing is started" ;;
  esac
}}

copy_store() {{
  nothing_made
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

set_byte() {{  # FILE POSITION NOW BEFORE, bytes as three octal digits
  [ "$(od -An -v -to1 -j "$2" -N 1 -- "$store/$1" | tr -d ' ')" = "$3" ] ||
    fail "$store/$1: byte $2 is not $3 (octal) any more: nothing is written"
  printf "\\\\$4" | dd of="$store/$1" bs=1 seek="$2" conv=notrunc status=none
}}

rename() {{
  [ ! -e "$store/$2" ] || fail "$store/$2 exists already: nothing is overwritten"
  mv -T -- "$store/$1" "$store/$2"
}}

copy_file() {{
  [ ! -e "$store/$2" ] || fail "$store/$2 exists already: nothing is overwritten"
  cp -a -- "$store/$1" "$store/$2"
}}

set_level() {{  # LEVEL NOW THEN: the offset of a delay level, a line of a JSON file without other numbers as names
  local file=$store/config/delayOffset.json name="([{{,[:space:]]\"?$1\"?[[:space:]]*:[[:space:]]*)$2([^0-9]|$)"
  [ "$(grep -cE "$name" -- "$file")" = 1 ] || fail "$file: level $1 is not at $2 any more: nothing is written"
  sed -E -i "s/$name/\\1$3\\2/" -- "$file"
}}

set_clock() {{  # the first eight bytes of timercheck
  printf "$1" | dd of="$store/config/timercheck" bs=8 count=1 conv=notrunc status=none
}}

make_new() {{  # rebuild or salvage; the store is only read
  local program=${{RMQINSPECT:-rmqinspect}} status=0
  command -v -- "$program" >/dev/null ||
    fail "$program: no such program: it makes the new store. RMQINSPECT=PROGRAM names it"
  "$program" "$1" {source} -o "$new" --broker-version "$2" || status=$?
  # 3: something is lost already, or not taken over; a new store gets its name only if all else is delivered.
  [ -d "$new" ] || fail "no new store was made (exit status $status): nothing is started"
}}

take_new() {{  # the old one stays, in the place of a copy
  no_broker  # a new store takes long
  mv -T -- "$store" "$copy"
  mv -T -- "$new" "$store"
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

_SAVE = """\
1:save)
  no_broker
  {command}
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
    changes_files: bool = False  # by these commands, other than abort
    makes_new: bool = False  # a store that takes the place of this one

    @property
    def saving(self) -> str:
        """The command that saves what it loses; "" where it loses no record."""
        stop = "clean" if self.outcome.clean_exit else "unclean"
        start = f"--broker-version {self.outcome.release} --exit {stop}"
        return f"save_lost {start}" if self.outcome.losses.messages else ""


def script(forecast: Forecast, store: Store, config: str | None = None) -> str:
    """Return the script; `config` is the broker.conf that the store was opened with.

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
    steps = _steps(forecast, store)
    usage = ["copy  copies the store, and does nothing else"]
    saving = steps[0].saving if steps and forecast.worst.verdict in STARTING else ""
    usage += ["save  saves what start 1 loses, and does nothing else"] if saving else []
    usage += [f"{number}     {_told(step)}" for number, step in enumerate(steps, 1)]
    head = _HEAD.format(
        tool=tool_name(),
        store=quote_path(root),
        size=count(sum(file.size for file in store.files), "byte"),
        copy=quote_path(f"{root}.before-start"),
        new=quote_path(f"{root}.new"),
        running=quote(Verdict.RUNS),
        usage="\n".join(usage),
        source='"$store"' + ("" if config is None else f" --config {quote_path(name_text(os.path.abspath(config)))}"),
    )
    head += _SAVE.format(command=saving) if saving else ""
    return head + "".join(line for number, step in enumerate(steps, 1) for line in _case(number, step)) + _TAIL


def _steps(forecast: Forecast, store: Store) -> list[_Step]:
    """Return the start as it is, as far as the broker starts, and the ways that are better."""
    worst = forecast.worst
    alike = (list(run) for words, run in groupby(forecast.outcomes, key=outcome_words) if words == outcome_words(worst))
    as_it_is = [
        _Step("start it as it is", replace(run[-1], era=span_of(run)), ()) for run in alike if worst.verdict in STARTING
    ]
    ways = []
    for way in forecast.instead:
        if way.is_better and way.tool and _in_one_folder(store) and not way.outcome.skipped:
            making = f"make_new {way.tool} {way.outcome.release}", "take_new"
            ways.append(_Step(way.way, way.outcome, making, makes_new=True))
        # broker.conf is the reader's.
        elif way.is_better and not way.remedy.settings and not way.tool:
            commands = [f"move_away {quote_path(name)}" for name in way.moved]
            commands += [f"set_length {quote_path(name)} {length}" for name, length in way.remedy.lengths]
            commands += [
                f"set_byte {quote_path(bit.file)} {bit.position} {bit.found:03o} {bit.was:03o}"
                for bit in way.remedy.bits
            ]
            commands += [f"rename {quote_path(name)} {quote_path(new)}" for name, new in way.remedy.renamed]
            commands += [f"copy_file {quote_path(name)} {quote_path(new)}" for name, new in way.remedy.copied]
            commands += [f"set_level {level} {now} {then}" for level, now, then in way.remedy.levels]
            changes_files = bool(commands)
            has_abort = not worst.clean_exit and "abort" not in way.moved
            if has_abort is way.outcome.clean_exit:
                commands.append("move_away abort" if has_abort else ': > "$store/abort"')
            ways.append(_Step(way.way, way.outcome, tuple(commands), tuple(unit_words(way)), changes_files))
    clock = worst.timer.set_back if worst.timer is not None and worst.timer.stuck else None
    if worst.verdict is Verdict.SAFE and clock is not None:
        setting = f"set_clock {quote(octal_bytes(clock))}"
        ways.append(_Step("start it with the timer's clock set back", worst, (setting,), changes_files=True))
    return [*as_it_is, *ways][:_MOST]


def _in_one_folder(store: Store) -> bool:
    """Whether broker.conf has all of a store in its root, as it is in a new one."""
    return not any(name.startswith("storePath") and name != "storePathRootDir" for name in store.settings)


def _told(step: _Step) -> str:
    return escape(f"{step.name}: {'; '.join((outcome_words(step.outcome), *step.units))}, with {step.outcome.era}")


def _case(number: int, step: _Step) -> Iterator[str]:
    first, last = (step.outcome.era.split(" to ") * 2)[:2]
    yield f"1:{number})  # {_told(step)}\n"
    tests = "no_broker", f"broker_from {first} {last}", "nothing_made"
    before, after = ("", step.saving) if step.changes_files else (step.saving, "")
    copied = "" if step.makes_new else "copy_store"
    for command in filter(None, (*tests, before, copied, *step.commands, after, "start_broker")):
        yield f"  {command}\n"
    yield "  ;;\n"
