"""Names that no broker gives, in every folder: a row, a finding or a line that says so, and never a traceback.

Each store gets a group of names in one folder, as files with the bytes of a real neighbour, and as folders where a file
belongs, or the other way round.
"""

import shutil
from collections.abc import Callable, Iterator
from itertools import cycle, islice, product
from pathlib import Path

import pytest

from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()

# Groups of names: one alone does not hide another's error behind its own.
NAMES = (
    # negative; other digits
    ("-1", "-0", "-00000000000000000400", "-9223372036854775808", "\u0664\u0665" * 10, "\u00b2", "\uff11\uff12\uff13"),
    # too large; no text
    ("9223372036854775807", "9223372036854775808", "9" * 20, "\udcff", "%00", "a\nb", "\x1b[31m", "..a"),
    # too long; off the grid
    ("0" * 21, "1" * 40, "7" * 250, "00000000000000000001", "00000000000000065537", "1"),
    # nearly numbers
    ("+1", "1e3", "0x10", "1_000", " 1", "1 ", "1.0", "00000000000000000400x", "0" * 19 + "."),
)


def _first_file(folder: Path) -> Path:
    return next(path for path in sorted(folder.iterdir()) if path.is_file())


def _queue(store: Path) -> Path:
    return store / "consumequeue" / "TopicA" / "0"


# Folder of the store -> what lies in it.
FOLDERS: dict[str, Callable[[Path], Path]] = {
    "commitlog": lambda store: _first_file(store / "commitlog"),
    "consumequeue": lambda store: store / "consumequeue" / "TopicA",
    "consumequeue/TopicA": _queue,
    "consumequeue/TopicA/0": lambda store: _first_file(_queue(store)),
    "index": lambda store: _first_file(store / "index"),
    "config": lambda store: store / "checkpoint",
    "timerlog": lambda store: store / "checkpoint",
    ".": lambda store: store / "checkpoint",
}

COMMANDS = (
    ("info",),
    ("verify",),
    ("decode", "--table", "queue_units", "-f", "csv"),
    ("decode", "--table", "segments", "-f", "csv"),
    ("groups",),
    ("delays",),
    ("find", "-t", "TopicA", "--queue", "0", "--queue-offset", "3"),
)
_STATUSES = {0, 3, 4, 5}
_RELEASES = ("5.5.0", "4.9.7", "5.1.3", "4.4.0")


def _odd_entries(names: tuple[str, ...], like: Path) -> Iterator[tuple[str, bytes | None]]:
    """Yield names with the bytes of a file, None: a folder; what lies there already is the other of them."""
    content = like.read_bytes() if like.is_file() else b"text"
    for name, as_file in product(names, (True, False)):
        yield (name if as_file else f"{name}0"), content if as_file else None


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_breaks_a_command(folder: str, run: Run, tmp_path: Path) -> None:
    commands = islice(cycle(COMMANDS), list(FOLDERS).index(folder), None)  # each in some folders
    for number, names in enumerate(NAMES):
        store = tmp_path / str(number)
        shutil.copytree(sample("healthy-4.9.7"), store)
        like = FOLDERS[folder](store)
        place = store / folder
        place.mkdir(exist_ok=True)
        for name, content in _odd_entries(names, like):
            if (place / name).exists():
                continue
            if content is not None:
                (place / name).write_bytes(content)
            elif len(name) < 255:
                (place / name).mkdir(exist_ok=True)
                (place / name / "inside").write_bytes(b"text")
        command = next(commands)
        status, _, err = run(command[0], store, *command[1:])
        assert status in _STATUSES, (names, command, err)
        release = _RELEASES[number % len(_RELEASES)]
        start = forecast(open_store([str(store)]), ForecastRequest(release, count_losses=False)).worst
        assert start.release == release
