"""Every recorded store, salvaged for every release, judged by it: `python -m tests.rescue.recorded_run --results FILE`.

The damaged stores of the family crash, and those that whole brokers wrote, which are sound, with the groups' offsets.
Each is salvaged for each release that can read it; a real store of that release serves the result, start after start.
A line of JSON for each is added to the file as it ends; what is there already is not judged again. Needs Maven, and
Java 17 or later.
"""

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.rescue.mutations import WITHOUT, run
from tests.support import oracle
from tests.support.judge import judge
from tests.support.oracle import Family
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.truths import compacted_of, consumers_of, records_of, truth_of, truth_of_damaged

JUDGES = ("4.7.1", "5.2.0", *RELEASES)

# With this setting a broker takes none of the records that a store has, sound as they are.
_REFUSES = "forceVerifyPropCRC"
# Nothing is left to be saved.
_NOTHING = ("log_dir_lost", "log_empty", "log_only_zero_len")
_PART = 20  # stores that a process has judged before it hands over what was found


class Recorded(NamedTuple):
    """A recorded store, and the release that is to serve what is salvaged of it."""

    family: Family
    name: str
    release: str


class Judged(NamedTuple):
    """What is wrong with it."""

    case: Recorded
    wrong: list[str]


def damaged_cases() -> list[Recorded]:
    """Return the damaged stores that have something to be saved, each for each release."""
    return [
        Recorded("crash", name, release)
        for name in oracle.cases("crash")
        if oracle.is_damaged(name)
        and _REFUSES not in oracle.case("crash", name)["settings"]
        and not name.startswith(_NOTHING)
        for release in JUDGES
    ]


def sound_cases() -> list[Recorded]:
    """Return the stores of whole brokers, each for its own release and all later ones; salvage takes no DLedger log.

    What rocketmq-rust wrote is for all.
    """
    rust = [Recorded("rust", name, release) for name in oracle.cases("rust") for release in JUDGES]
    return rust + [
        Recorded("broker", name, release)
        for name in oracle.cases("broker")
        if not name.startswith("dledger")
        for release in JUDGES
        if _number(release) >= _number(name.rpartition("-")[2])
    ]


def judged(case: Recorded, brokers: RealBrokers, place: Path) -> Judged:
    """Salvage a recorded store, and let a broker serve the result."""
    root, new, config = oracle.store(case.family, case.name), place / "new", place / "broker.conf"
    crash = case.family == "crash"
    source = oracle.case("crash", case.name) if crash else oracle.truth(case.family, case.name)
    source = source.get("store", source)
    settings = {name: value for name, value in source["settings"].items() if name not in WITHOUT}
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    status, said = run("salvage", root, "-o", new, "--broker-version", case.release, "--config", config)
    if not new.exists():
        return Judged(case, [f"salvage ends with {status}: {said[-2000:]}"])
    if crash:
        truth = truth_of_damaged(root, new, release=case.release)
    else:
        compacted = compacted_of(root, case.release)
        truth = truth_of(
            records_of(root), release=case.release, consumers=consumers_of(root, root), elsewhere=compacted
        )
    return Judged(case, judge(brokers, case.release, new, truth, settings, unclean=(not crash, True)))


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _judge_part(cases: Sequence[Recorded]) -> list[Judged]:
    with tempfile.TemporaryDirectory(prefix="recorded-run-") as folder:
        brokers, done = RealBrokers(Path(folder)), []
        for number, case in enumerate(cases):
            # Each has a folder of its own: the last store of the one before ends in the background.
            place = Path(folder) / str(number)
            place.mkdir()
            try:
                done.append(judged(case, brokers, place))
            except Exception:  # noqa: BLE001  whatever the program raises is a finding of the run
                done.append(Judged(case, [f"failed: {' / '.join(traceback.format_exc().splitlines()[-3:])}"]))
            shutil.rmtree(place)
        brokers.close()
        return done


def judge_all(cases: Sequence[Recorded], jobs: int, say: Callable[[Judged], None]) -> None:
    """Judge in several processes, each part with one release; `say` gets what was found as it comes."""
    for family in {case.family for case in cases}:
        oracle.store(family, oracle.cases(family)[0])  # unpacked before the processes part
    by_release: dict[str, list[Recorded]] = {}
    for case in cases:
        by_release.setdefault(case.release, []).append(case)
    parts = [some[at : at + _PART] for some in by_release.values() for at in range(0, len(some), _PART)]
    with ProcessPoolExecutor(jobs, get_context("fork"), max_tasks_per_child=None) as pool:
        for done in as_completed([pool.submit(_judge_part, part) for part in parts]):
            for one in done.result():
                say(one)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="a file of lines, added to")
    parser.add_argument("--versions", default=",".join(JUDGES), help="releases, with commas between")
    parser.add_argument("--only", default="", help="names of stores that begin so")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    known = {(row["store"], row["release"]) for row in map(json.loads, lines)}
    chosen = [
        case
        for case in (*sound_cases(), *damaged_cases())
        if case.release in given.versions.split(",") and case.name.startswith(given.only)
        if (case.name, case.release) not in known
    ]
    right, wrong = Counter[str](), Counter[str]()

    def say(one: Judged) -> None:
        (wrong if one.wrong else right)[one.case.release] += 1
        with given.results.open("a") as results:
            row = {"store": one.case.name, "release": one.case.release, "wrong": one.wrong}
            results.write(json.dumps(row, ensure_ascii=False) + "\n")
        for text in one.wrong:
            print(f"{one.case.name}: {text}", flush=True)

    judge_all(chosen, given.jobs, say)
    for release in given.versions.split(","):
        print(f"{release}: {right[release]} right, {wrong[release]} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
