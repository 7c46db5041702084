"""`forecast --script`: the ways to start as a shell script, each with its forecast. Nothing of it is run.

    bash start.sh          lists the ways
    bash start.sh copy     copies the store
    bash start.sh 2        copies the store, prepares way 2, starts the broker

The first step of every way is the copy. A way that is not better than the start as it is, is not offered.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rmqinspect.commands import quote_path
from rmqinspect.errors import BadOption
from rmqinspect.forecast.outcome import Forecast, Outcome, Verdict
from rmqinspect.forecast.words import outcome_words
from rmqinspect.store.model import Store
from rmqinspect.system import uri
from rmqinspect.text import count, escape, name_text
from rmqinspect.version import tool_name

_MOST = 9  # ways

_HEAD = """\
#!/usr/bin/env bash
# Written by {tool}. Nothing was run and nothing was changed.
# The forecast is that of the files as they were then: stop the broker first, and let nothing write in between.
set -eu

store={store}
# The copy takes {size}, with the holes of the files kept.
copy={copy}

usage() {{
  cat <<'END'
{usage}
END
}}

copy_store() {{
  if [ -e "$copy" ]; then
    echo "$copy exists already: nothing is overwritten" >&2
    exit 1
  fi
  cp -a --sparse=always -- "$store" "$copy"
}}

move_away() {{  # out of the store, to a place beside the copy
  mkdir -p -- "$copy.moved/$(dirname -- "$1")"
  mv -- "$store/$1" "$copy.moved/$1"
}}

start_broker() {{  # ROCKETMQ_HOME: the release to start; BROKER_CONF: its broker.conf
  exec "${{ROCKETMQ_HOME:?}}/bin/mqbroker" -c "${{BROKER_CONF:?}}"
}}

case "${{1:-}}" in
copy)
  copy_store
  ;;
"""

_TAIL = """\
*)
  usage
  ;;
esac
"""


class _Step(NamedTuple):
    """A way to start: what it is called, what comes of it, and the commands before the start."""

    name: str
    outcome: Outcome
    commands: tuple[str, ...]


def script(forecast: Forecast, store: Store) -> str:
    """Return the script.

    :raises BadOption: the store is no local folder.
    """
    root = _root(store)
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
        usage="\n".join(usage),
    )
    return head + "".join(line for number, step in enumerate(steps, 1) for line in _case(number, step)) + _TAIL


def _root(store: Store) -> str | None:
    """Return the folder of a store as `name_text` writes it; None without a file, or for parts of a store."""
    paths = ((name_text(file.path), f"/{file.name}") for file in store.files if store.given == "store")
    return next((path.removesuffix(name) for path, name in paths if path.endswith(name)), None)


def _steps(forecast: Forecast) -> list[_Step]:
    """Return the start as it is, as far as the broker starts, and the ways that are better."""
    worst = forecast.worst
    as_it_is = [_Step("start it as it is", worst, ())] if worst.verdict in (Verdict.SAFE, Verdict.LOSES) else []
    ways = []
    for way in forecast.instead:
        if way.is_better:
            commands = [f"move_away {quote_path(name)}" for name in way.moved]
            if way.outcome.clean_exit != worst.clean_exit:
                commands.append("move_away abort" if way.outcome.clean_exit else ': > "$store/abort"')
            ways.append(_Step(way.way, way.outcome, tuple(commands)))
    return [*as_it_is, *ways][:_MOST]


def _told(step: _Step) -> str:
    return escape(f"{step.name}: {outcome_words(step.outcome)}, with {step.outcome.era}")


def _case(number: int, step: _Step) -> Iterator[str]:
    yield f"{number})  # {_told(step)}\n"
    for command in ("copy_store", *step.commands, "start_broker"):
        yield f"  {command}\n"
    yield "  ;;\n"
