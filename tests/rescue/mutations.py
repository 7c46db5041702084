"""Random damage, salvage, real broker: `python -m tests.rescue.mutations --count 500 --seed 1`.

A round makes one to five damages of all kinds to a store that a store class or a whole broker wrote, salvages it for a
release, and lets a real store of that release serve the result, over two starts: every message whose bytes are still
where they were has to come at its queue offset, and nothing that was not sent; groups go on where they stood; forecast
has to say what each start comes to. What is wrong is printed with the line that repeats the
round: `--cases FILE` plays the lines of a file, `--keep FILE` adds the lines that are wrong to one. `--count` is for
each release. Needs Maven, and Java 17 or later.
"""

import argparse
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from rmqinspect.cli import main
from tests.broker.damages import Damage, damage
from tests.broker.random_cases import CHOICES, Case, case_of, random_damage
from tests.support import oracle
from tests.support.judge import Queue, judge
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.truths import Record, compacted_of, consumers_of, records_of, truth_of

_PART = 10  # cases of one release that a process plays before it hands over what it found

# What is sent is protected by no checksum but the body's: damage that makes another message of one is left out.
_KINDS = {
    name: weight
    for name, (weight, _) in CHOICES.items()
    if name.partition(":")[0] not in ("set_property", "set_topic", "repeat_records", "write_config", "add_file")
}
LOG_KINDS = ("flip_bit", "zero_pages", "tear", "set_blank", "overwrite", "overwrite", "cut_file", "change_file")
_LOSSES = ("lost", "lost", "zero", "empty", "short", "half", "next_copy", "backup", "renamed", "next_zero")
_FOLDERS = ("commitlog", "commitlog", "commitlog", "queue", "index")
_SIZES = (1, 4, 20, 100, 512, 4096, 20000)
_DIFFERENT = re.compile(r"rmqinspect: (\S+) and \S+ differ from physical offset")
OFFSETS = "config/consumerOffset.json"
WITHOUT = ("timerRocksDBEnable",)
"""Settings that a store class cannot serve: the broker around it makes the timer's database."""


class Played(NamedTuple):
    """A case, and what is wrong with what was salvaged."""

    case: Case
    wrong: list[str]


def random_mutation(seed: int, number: int, release: str) -> Case:
    """Return a case of a release by its number: the same in every run."""
    chance = random.Random(f"{seed}/{release}/{number}")
    bases = [name for name in oracle.cases("crash") if name.startswith("base-")]
    others = brokers_stores(release)
    base = chance.choice(chance.choice((bases, others)))
    folders = (*_FOLDERS, *(further_folders(base) if base in others else ()))
    damages = [_damage(chance, folders) for _ in range(chance.choice((1, 1, 2, 3, 4, 5)))]
    return Case(base, tuple(damages), {}, release, chance.choice((1, 2)))


def brokers_stores(release: str) -> list[str]:
    """Return the stores of whole brokers that a release can read; salvage takes no DLedger log."""
    names = (name for name in oracle.cases("broker") if not name.startswith("dledger"))
    return [name for name in names if _number(name.rpartition("-")[2]) <= _number(release)]


@cache
def further_folders(base: str) -> tuple[str, ...]:
    """Return the folders of a store with other files than log, queues, index and configuration."""
    root = oracle.store("broker", base)
    found = {path.parent.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    return tuple(
        sorted(name for name in found if not name.startswith((".", "commitlog", "consumequeue/", "index", "config")))
    )


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _damage(chance: random.Random, folders: Sequence[str]) -> Damage:
    kind = chance.choice((*LOG_KINDS, "any", "any", "any"))
    where: dict[str, int | str] = {
        "folder": chance.choice(folders),
        "file": chance.choice((-1, -1, -2, -3, 0, 1, 2, 3, 4)),
        "queue": chance.randrange(20),
    }
    if kind == "overwrite":
        size = chance.choice(_SIZES)
        return Damage(kind, where | {"at": chance.randrange(1 << 20), "size": size, "seed": chance.randrange(1 << 20)})
    if kind == "cut_file":
        return Damage(kind, where | {"at": chance.randrange(1 << 20)})
    if kind == "change_file":
        return Damage(kind, where | {"how": chance.choice(_LOSSES)})
    if kind == "any":
        return random_damage(chance, [*_KINDS])
    done = random_damage(chance, [kind])
    # Those of a start are mostly in the last segments; a record of any is as good here.
    return Damage(done.kind, {**done.arguments, "segment": chance.randrange(-4, 12)})


@cache
def _records(base: str) -> list[Record]:
    return records_of(oracle.store(_family(base), base))


def _family(base: str) -> oracle.Family:
    return "broker" if base in oracle.cases("broker") else "crash"


def copy_base(base: str, place: Path) -> tuple[Path, dict[str, str]]:
    """Copy a store to `place`/store; return that, and its settings. A store class knows no groups: it is given some."""
    family = _family(base)
    root = oracle.copy(family, base, place)
    if family == "broker":
        settings = oracle.truth(family, base)["store"]["settings"]
        return root, {name: str(value) for name, value in settings.items() if name not in WITHOUT}
    (root / "config").mkdir(exist_ok=True)
    (root / OFFSETS).write_text(_groups(_records(base)))
    return root, dict(oracle.case("crash", base)["settings"])


def _groups(records: Sequence[Record]) -> str:
    """Return a consumerOffset.json: of each topic a group at its begin, one amid, one at its end."""
    ends: dict[Queue, int] = {}
    for one, taken in (message for record in records for message in record.messages):
        queue = one.topic, one.queue_id
        ends[queue] = max(ends.get(queue, 0), one.queue_offset + taken)
    table: dict[str, dict[str, int]] = {}
    for (topic, number), end in sorted(ends.items()):
        for group, place in (("new", 0), ("amid", end // 2), ("done", end)):
            table.setdefault(f"{topic}@{group}", {})[str(number)] = place
    return json.dumps({"offsetTable": table})


def play(case: Case, brokers: RealBrokers, place: Path) -> Played:
    """Damage a store, salvage it, let a broker serve the result."""
    root, settings = copy_base(case.base, place)
    settings |= case.settings
    for one in case.damages:
        damage(root, one)
    compacted = compacted_of(root, case.release)
    consumers = consumers_of(root, oracle.store(_family(case.base), case.base))
    truth = truth_of(_records(case.base), root, release=case.release, consumers=consumers, elsewhere=compacted)
    config, new = place / "broker.conf", place / "new"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = ("salvage", root, "-o", new, "--broker-version", case.release, "--config", config)
    status, said = run(*words)
    if different := _DIFFERENT.match(said):
        # A copy beside a segment, made before or after a damage that nothing proves.
        status, said = run(*words, "--prefer", different[1])
    if not new.exists():
        # Where nothing is sound, there is nothing to serve.
        return Played(case, [f"salvage ends with {status}: {said[-1500:]}"] if truth.messages or status > 6 else [])
    wrong = []
    if (root / OFFSETS).is_file() and (root / OFFSETS).read_bytes() != (new / OFFSETS).read_bytes():
        wrong.append(f"{OFFSETS} is not what it was")
    unclean = (False, True) if case.starts == 1 else (True, True)
    return Played(case, wrong + judge(brokers, case.release, new, truth, settings, unclean=unclean))


def run(*words: str | Path) -> tuple[int, str]:
    """Run a command in this process; return its exit status and all that it says."""
    said, hook = io.StringIO(), sys.excepthook
    with redirect_stdout(said), redirect_stderr(said):
        try:
            status = int(main([str(word) for word in words]))
        finally:
            sys.excepthook = hook
    return status, said.getvalue()


def play_all(cases: Sequence[Case], jobs: int, say: Callable[[Played], None]) -> None:
    """Play cases in several processes, each part with one release; `say` gets them as they end."""
    for family in {_family(case.base) for case in cases}:
        oracle.store(family, oracle.cases(family)[0])  # unpacked before the processes part
    by_release: dict[str, list[Case]] = {}
    for case in cases:
        by_release.setdefault(case.release, []).append(case)
    parts = [some[at : at + _PART] for some in by_release.values() for at in range(0, len(some), _PART)]
    with ProcessPoolExecutor(jobs, get_context("fork"), max_tasks_per_child=None) as pool:
        for done in as_completed([pool.submit(_play_part, part) for part in parts]):
            for played in done.result():
                say(played)


def _play_part(cases: Sequence[Case]) -> list[Played]:
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        brokers = RealBrokers(Path(folder))
        try:
            return [_play_safely(case, brokers, Path(folder) / str(number)) for number, case in enumerate(cases)]
        finally:
            brokers.close()


def _play_safely(case: Case, brokers: RealBrokers, place: Path) -> Played:
    """Play a case; that salvage fails is wrong like anything else."""
    place.mkdir()
    try:
        return play(case, brokers, place)
    except Exception:  # noqa: BLE001  whatever salvage raises is a finding of the run
        return Played(case, [f"failed: {' / '.join(traceback.format_exc().splitlines()[-3:])}"])
    finally:
        shutil.rmtree(place)


def _chosen(given: argparse.Namespace) -> list[Case]:
    if given.cases:
        return [case_of(line) for line in given.cases.read_text().splitlines() if line.startswith("{")]
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    numbers = range(given.first, given.first + given.count)
    return [random_mutation(seed, number, release) for release in given.versions.split(",") for number in numbers]


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="cases for each release")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--versions", default=",".join(RELEASES), help="releases, with commas between")
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--cases", type=Path, help="a file of lines instead of random cases")
    parser.add_argument("--keep", type=Path, help="a file that gets the lines that are wrong")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="processes; stores mostly wait")
    given = parser.parse_args()
    played, wrong = Counter[str](), Counter[str]()

    def say(one: Played) -> None:
        played[one.case.release] += 1
        if one.wrong:
            wrong[one.case.release] += 1
            print("\n".join((one.case.line(), *(f"    {text}" for text in one.wrong))), flush=True)
            if given.keep:
                with given.keep.open("a") as kept:
                    kept.write(one.case.line() + "\n")

    play_all(_chosen(given), given.jobs, say)
    for release, number in played.items():
        print(f"{release}: {number} cases, {number - wrong[release]} right, {wrong[release]} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
