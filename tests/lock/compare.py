"""The lock: `python -m tests.lock.compare OLD NEW` runs every command of two builds and tells where they differ.

OLD and NEW are Python interpreters, each with a build of rmqinspect installed. Every command runs on every recorded
store, the samples and seeded mutations of them, as JSON and as a screen of 80 and of 120 columns; exit status, stdout,
stderr and the files that are written are compared, without times. What differs is written to a folder, one file for
each command with the first stores that show it, and counted. A difference is a defect, or a commit names it.

    python -m venv old && old/bin/pip install 'rmqinspect-…whl[rocksdb]'
    python -m tests.lock.compare old/bin/python .venv/bin/python --every 10 --mutations 50

With `--answers FOLDER`, the old build's answers are kept there, and the next comparison with it takes half the time.
"""

import argparse
import difflib
import gzip
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from tests.properties.mutate import change_bytes, change_name
from tests.support import oracle
from tests.support.documents import RUN
from tests.support.samples import NAMES, sample

SCREENS = (80, 120)
_SHOWN = 5  # stores that a file of differences shows
_LINES = 60  # lines of each difference

# What differs from run to run, and what stands for it.
_VARIES = tuple(
    (re.compile(pattern), steady)
    for pattern, steady in (
        (rf",\s*{RUN}", ""),  # earlier builds wrote none in most documents
        (r"20\d\d-\d\d-\d\dT[\d:.]+Z(?= by rmqinspect| *$)", "TIME"),
        (r'"(started|finished|recorded|created|written)(_at)?": "[^"]*"', r'"\1": TIME'),
        (r'"(seconds|elapsed|cpu_seconds|free_bytes)": [\d.]+', r'"\1": NUMBER'),
        (r"\b\d+(\.\d+)? (ms|s|min)\b(?! (after|before))", "DURATION"),
        (r"sha256:? [0-9a-f]{64}", "DIGEST"),
        (r"free \S+ \w+", "free SPACE"),
        (r"/tmp/[\w/.-]+", "TEMPORARY"),
    )
)


class Build:
    """One process of `serve.py`, of one build."""

    def __init__(self, python: str, home: Path) -> None:
        environment = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
        environment |= {
            "HOME": str(home),
            "TERM": "xterm",
            "TZ": "UTC",
            "LANG": "C.UTF-8",
        }
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("serve.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=home,
        )

    def run(self, words: Sequence[str], folder: Path, columns: int | None) -> dict[str, Any]:
        """Run a command; its answer with what varies made steady."""
        shutil.rmtree(folder / "out", ignore_errors=True)
        (folder / "out").unlink(missing_ok=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"words": words, "folder": str(folder), "columns": columns}) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found | {name: _steady(found[name]) for name in ("stdout", "stderr")}

    def end(self) -> None:
        """End the process."""
        with self._process:  # closes the pipes
            self._process.kill()


class Remembered(Build):
    """A build whose answers are kept in a folder, so that it answers each question once."""

    def __init__(self, python: str, home: Path, answers: Path) -> None:
        super().__init__(python, home)
        self._answers = answers
        self.store = ""  # the name of the store that is asked

    def run(self, words: Sequence[str], folder: Path, columns: int | None) -> dict[str, Any]:
        """Return the answer that is kept, or run the command and keep it."""
        question = hashlib.sha256(json.dumps([self.store, words, columns]).encode()).hexdigest()
        kept = self._answers / question[:2] / question
        if kept.exists():
            found: dict[str, Any] = json.loads(gzip.decompress(kept.read_bytes()))
            return found
        found = super().run(words, folder, columns)
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(gzip.compress(json.dumps(found).encode(), 1))
        part.replace(kept)
        return found


def _steady(text: str) -> str:
    for pattern, steady in _VARIES:
        text = pattern.sub(steady, text)
    return text


# --- the stores -------------------------------------------------------------------------------------------


def recorded() -> dict[str, Path]:
    """Return all samples and recorded stores by name."""
    found = {f"samples/{name}": sample(name) for name in NAMES}
    for family in ("crash", "broker"):
        found |= {f"{family}/{name}": oracle.store(family, name) for name in oracle.cases(family)}
    return found


def mutate(number: int, stores: dict[str, Path], place: Path) -> str:
    """Make mutation `number` in `place`/store: a copy of some store with one to three changes; return its name."""
    chance = random.Random(f"lock {number}")
    name = chance.choice(sorted(stores))
    shutil.copytree(stores[name], place / "store", symlinks=True)
    for path in (place / "store", *(place / "store").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    done = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        files = [file for file in open_store([str(place / "store")]).files if file.size and Path(file.path).is_file()]
        if not files:
            break
        kind = chance.choice(sorted({file.kind for file in files}))
        file = chance.choice([file for file in files if file.kind == kind])
        change = change_name if chance.random() < 0.15 else change_bytes
        done.append(change(chance, Path(file.path), file))
    return f"mutation {number} of {name}: {'; '.join(done)}"


# --- the commands -----------------------------------------------------------------------------------------


def commands(rows: Sequence[dict[str, Any]], name: str) -> Iterator[tuple[list[str], bool]]:
    """Yield every command for `store`, and whether it prints a screen; `rows` are messages to ask for."""
    chance = random.Random(f"questions {name}")
    for words, formats in _COMMANDS:
        for format_ in formats:
            yield [*words, *(["-f", format_] if format_ != "screen" else [])], format_ == "screen"
    for row in chance.sample(rows, min(len(rows), 3)):
        topic, queue = row["topic"], str(row["queue_id"])
        questions = [
            ["--offset", str(row["physical_offset"]), "--life"],
            ["-t", topic, "--queue", queue, "--queue-offset", str(row["queue_offset"]), "--life"],
            ["--pull", topic, queue, str(row["queue_offset"])],
            ["--offset-by-time", topic, queue, row["store_timestamp"] or "0"],
            *([["--id", row["msg_id"], "--life"]] if row["msg_id"] else []),
            *([["-t", topic, "-k", key, "--life"] for key in row["keys"][:1]]),
        ]
        for question in questions:
            yield ["find", "store", *question, "-f", "json"], False
            yield ["find", "store", *question], True
        at = str(row["physical_offset"] + chance.choice((0, 0, 0, 1, 50)))
        yield ["show", "store", "--at", at], True
        yield ["show", "store", "--at", at, "-f", "json"], False


_COMMANDS: tuple[tuple[list[str], tuple[str, ...]], ...] = (
    (["info", "store"], ("screen", "json")),
    (["verify", "store"], ("screen", "json", "jsonl")),
    (["verify", "store", "-v"], ("screen",)),
    (["verify", "store", "--level", "standard"], ("screen", "json")),
    (["verify", "store", "--level", "quick"], ("screen", "json")),
    (["forecast", "store"], ("screen", "json")),
    (["forecast", "store", "-v", "--all-versions"], ("screen", "json")),
    (["forecast", "store", "--exit", "clean", "--explain"], ("screen",)),
    (["forecast", "store", "--exit", "unclean"], ("screen", "json")),
    (["forecast", "store", "--script"], ("screen",)),
    *((["decode", "store", "--table", table], ("screen", "jsonl")) for table in TABLES),
    (["decode", "store", "--redact", "body,keys,tags,properties,hosts"], ("jsonl",)),
    *(([name, "store"], ("screen", "jsonl", "json")) for name in ("groups", "transactions", "delays", "usage")),
    *(([name, "store", "-v"], ("screen",)) for name in ("groups", "transactions", "delays")),
    (["usage", "store", "--by", "topic,host,hour", "--retention", "1"], ("screen", "jsonl")),
    (["find", "store", "-k", "nobody-has-this"], ("screen", "json")),
    (["find", "store", "--pull", "TopicA", "0", "0"], ("screen", "json")),
    (["diff", "store", "whole"], ("screen", "jsonl")),
    (["export", "store", "--all", "--engine", "local", "-j", "1", "-o", "out"], ("screen",)),
)


# --- the comparison ---------------------------------------------------------------------------------------


@dataclass
class Differences:
    """What differed: by command, the stores and the texts of the first."""

    folder: Path
    compared: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, store: str, words: Sequence[str], columns: int | None, old: Any, new: Any) -> None:
        """Note a difference and write it down."""
        name = " ".join(word for word in [words[0], *(one for one in words if one.startswith("--") or one in TABLES)])
        name += "" if columns is None else " (screen)"
        self.counts[name] += 1
        if self.counts[name] <= _SHOWN:
            with (self.folder / f"{re.sub(r'[^a-z_-]+', '_', name)}.diff").open("a", encoding="utf-8") as file:
                file.write(f"=== {store}\n$ rmqinspect {shlex.join(words)}    # columns {columns}\n")
                file.write(f"status {old['status']} {new['status']}\n")
                for part in ("stdout", "stderr"):
                    lines = difflib.unified_diff(
                        old[part].splitlines(), new[part].splitlines(), "old", "new", lineterm="", n=1
                    )
                    file.writelines(f"{line[:400]}\n" for line, _ in zip(lines, range(_LINES), strict=False))
                for path in sorted(old["files"].keys() | new["files"].keys()):
                    if old["files"].get(path) != new["files"].get(path):
                        file.write(f"file {path} differs\n")


def compare(
    name: str,
    store: Path,
    whole: Path,
    builds: tuple[Build, Build],
    found: Differences,
    place: Path,
    only: str = "",
) -> None:
    """Run all commands of both builds on one store, or those whose words match `only`."""
    if isinstance(builds[0], Remembered):
        builds[0].store = name
    folders = tuple(place / side for side in ("old", "new"))
    for folder in folders:
        folder.mkdir()
        (folder / "store").symlink_to(store)
        (folder / "whole").symlink_to(whole)
    asked = ["physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "msg_id", "keys"]
    listing = builds[0].run(["decode", "store", "-f", "jsonl", "--columns", ",".join(asked)], folders[0], None)
    rows = [json.loads(line) for line in listing["stdout"].splitlines()]
    rows = [row for row in rows if None not in (row["topic"], row["queue_id"], row["queue_offset"])]
    with ThreadPoolExecutor(2) as pool:
        for words, is_screen in commands(rows, name):
            if not re.search(only, " ".join(words)):
                continue
            for columns in SCREENS if is_screen else (None,):
                sides = [
                    pool.submit(build.run, words, folder, columns)
                    for build, folder in zip(builds, folders, strict=True)
                ]
                old, new = (side.result() for side in sides)
                found.compared += 1
                if old != new:
                    found.add(name, words, columns, old, new)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a Python interpreter with the old build")
    parser.add_argument("new", help="one with the new build")
    parser.add_argument("--every", type=int, default=1, help="only every Nth recorded store")
    parser.add_argument("--mutations", type=int, default=500)
    parser.add_argument("--only", default="", help="only stores whose name matches this regular expression")
    parser.add_argument("--commands", default="", help="only commands whose words match this regular expression")
    parser.add_argument(
        "--answers", type=Path, help="a folder that keeps the answers of the old build, and of no other"
    )
    parser.add_argument("--to", type=Path, default=Path("lock-differences"), help="a new folder for what differs")
    given = parser.parse_args()
    given.to.mkdir()
    found, stores = Differences(given.to), recorded()
    with tempfile.TemporaryDirectory(prefix="lock-") as temporary:
        place = Path(temporary)
        (place / "home").mkdir()
        home = place / "home"
        old = Remembered(given.old, home, given.answers) if given.answers else Build(given.old, home)
        builds = (old, Build(given.new, home))
        chosen = [name for name in list(stores)[:: given.every] if re.search(given.only, name)]
        works: list[tuple[str, Callable[[Path], tuple[str, Path, Path]]]] = [
            (name, lambda _, name=name: (name, stores[name], stores[name]))  # type: ignore[misc]
            for name in chosen
        ]
        works += [
            (f"mutation {number}", lambda room, number=number: _mutated(number, stores, room))  # type: ignore[misc]
            for number in range(given.mutations)
        ]
        try:
            for number, (name, make) in enumerate(works, 1):
                room = place / "room"
                room.mkdir()
                told, store, whole = make(room)
                compare(told, store, whole, builds, found, room, given.commands)
                shutil.rmtree(room)
                print(
                    f"{number}/{len(works)} {name}: {found.compared} compared, {found.counts.total()} differ",
                    flush=True,
                )
        finally:
            for build in builds:
                build.end()
    for name, number in found.counts.most_common():
        print(f"{number:6} {name}")
    return 1 if found.counts else 0


def _mutated(number: int, stores: dict[str, Path], room: Path) -> tuple[str, Path, Path]:
    told = mutate(number, stores, room)
    return told, room / "store", stores[told.split(": ")[0].split(" of ")[1]]


if __name__ == "__main__":
    sys.exit(_main())
