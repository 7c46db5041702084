"""Random damage, forecast, real broker: `python -m tests.broker.property_run --count 100 --seed 1`.

A round makes a store of a base by random damage (`random_cases`), asks forecast what a release will do to it, starts
a real store of that release on it, and compares all that both say. What differs is printed with the line that repeats
the round: `--cases FILE` plays the lines of a file, `--keep FILE` adds the lines that differ to one. `--count` is for
each release. Needs Maven, and Java 17 or later.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import groupby, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rmqinspect.forecast.document import document, outcome_document
from rmqinspect.forecast.outcome import Alternative, Forecast
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from tests.broker.damages import damage
from tests.broker.random_cases import ABSENT, FAMILIES, Case, case_of, random_case
from tests.broker.situations import SITUATIONS, made
from tests.support import oracle
from tests.support.broker_answers import differences
from tests.support.real_brokers import RELEASES, RealBrokers

Play = Callable[[Case, RealBrokers, Path], "Played"]

_PART = 25  # cases of one release that a process plays before it hands over what it found


class Played(NamedTuple):
    """A case, and what forecast and the broker do not agree on."""

    case: Case
    differences: list[str]


def play(case: Case, brokers: RealBrokers, place: Path) -> Played:
    """Damage a store, ask forecast, start the broker, compare; as often as the case says."""
    store, settings = copy_base(case, brokers, place)
    for one in case.damages:
        damage(store, one)
    settings = {name: value for name, value in {**settings, **case.settings}.items() if value != ABSENT}
    found: list[str] = []
    for number in range(1, case.starts + 1):
        told = document_of(store, settings, case.release, place)
        answer = brokers.open_store(case.release, store, settings, halt=number < case.starts)
        found += [f"start {number}: {text}" if number > 1 else text for text in differences(told, answer)]
    return Played(case, found)


def play_ways(case: Case, brokers: RealBrokers, place: Path) -> Played:
    """Damage a store, ask forecast for other ways to start; carry out each on a copy, start the broker, compare.

    Ways of releases that cannot be asked are left out, and those by commands that make another store: the tests of
    `rebuild` and `salvage` start these.
    """
    store, settings = copy_base(case, brokers, place)
    for one in case.damages:
        damage(store, one)
    settings.update(case.settings)
    found: list[str] = []
    for number, way in enumerate(forecast_of(store, settings, case.release, place).instead):
        if way.tool:
            continue
        if way.outcome.release in RELEASES or way.outcome.release == case.release:
            copied = shutil.copytree(store, place / f"way-{number}", symlinks=True)
            carry_out(way, copied)
            answer = brokers.open_store(way.outcome.release, copied, settings | dict(way.remedy.settings))
            # What a remedy has moved away is not there for the broker.
            told = outcome_document(way.outcome)
            found += [f"{way.way}: {text}" for text in differences(told, answer)]
            shutil.rmtree(copied)
    return Played(case, found)


def carry_out(way: Alternative, store: Path) -> None:
    """Do to a store what a way to start asks for."""
    for name in way.remedy.moved:
        moved = store / name
        shutil.rmtree(moved) if moved.is_dir() else moved.unlink()
    for name, length in way.remedy.lengths:
        os.truncate(store / name, length)
    for bit in way.remedy.bits:
        with (store / bit.file).open("r+b") as file:
            file.seek(bit.position)
            file.write(bytes([bit.was]))
    for name, new in way.remedy.renamed:
        (store / name).rename(store / new)
    if way.outcome.clean_exit:
        (store / "abort").unlink(missing_ok=True)
    else:
        (store / "abort").touch()


def copy_base(case: Case, brokers: RealBrokers, place: Path) -> tuple[Path, dict[str, str]]:
    """Copy the base of a case to `place`/store; return that, and the base's settings."""
    if case.base not in SITUATIONS:
        return oracle.copy("crash", case.base, place), dict(oracle.case("crash", case.base)["settings"])
    store, settings = made(case.base, brokers, case.release)
    return shutil.copytree(store, place / "store"), dict(settings)


def document_of(store: Path, settings: Mapping[str, str], release: str, place: Path) -> dict[str, Any]:
    """Return what `rmqinspect forecast -f json` says."""
    return document(forecast_of(store, settings, release, place, instead=False))


def forecast_of(
    store: Path, settings: Mapping[str, str], release: str, place: Path, *, instead: bool = True
) -> Forecast:
    """Return the forecast for a release; with all other ways to start where `instead` says so."""
    config = place / "broker.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return forecast(open_store([str(store)], config=str(config)), ForecastRequest(release=release, instead=instead))


def play_all(cases: Sequence[Case], jobs: int, say: Callable[[Played], None], *, ways: bool = False) -> None:
    """Play cases in several processes, each part with one release; `say` gets them as they end."""
    oracle.store("crash", oracle.cases("crash")[0])  # unpacked before the processes part
    by_release = groupby(sorted(cases, key=_release), key=_release)
    parts = [part for _, some in by_release for part in _parts(some)]
    with ProcessPoolExecutor(jobs, get_context("fork"), max_tasks_per_child=None) as pool:
        for done in as_completed([pool.submit(_play_part, part, ways) for part in parts]):
            for played in done.result():
                say(played)


def _play_part(cases: Sequence[Case], ways: bool) -> list[Played]:
    with tempfile.TemporaryDirectory(prefix="property-run-") as folder:
        brokers = RealBrokers(Path(folder))
        try:
            return [
                _play_safely(case, brokers, Path(folder) / str(number), play_ways if ways else play)
                for number, case in enumerate(cases)
            ]
        finally:
            brokers.close()


def _play_safely(case: Case, brokers: RealBrokers, place: Path, play: Play) -> Played:
    """Play a case; that forecast fails is a difference like any other."""
    place.mkdir()
    try:
        return play(case, brokers, place)
    except Exception:  # noqa: BLE001  whatever the program raises is a finding of the run
        return Played(case, [f"failed: {' / '.join(traceback.format_exc().splitlines()[-3:])}"])
    finally:
        shutil.rmtree(place)


def _release(case: Case) -> str:
    return case.release


def _parts(cases: Iterable[Case]) -> Iterator[list[Case]]:
    some = iter(cases)
    while part := list(islice(some, _PART)):
        yield part


def _chosen(given: argparse.Namespace) -> list[Case]:
    if given.cases:
        return [case_of(line) for line in given.cases.read_text().splitlines() if line.startswith("{")]
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    numbers = range(given.first, given.first + given.count)
    return [
        random_case(seed, number, release, given.family) for release in given.versions.split(",") for number in numbers
    ]


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="cases for each release")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--versions", default=",".join(RELEASES), help="releases, with commas between")
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--family", choices=FAMILIES, default="", help="every case begins with a damage of this family")
    parser.add_argument("--ways", action="store_true", help="carry out every other way to start, and start those")
    parser.add_argument("--cases", type=Path, help="a file of lines instead of random cases")
    parser.add_argument("--keep", type=Path, help="a file that gets the lines that differ")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    played, differing = Counter[str](), Counter[str]()

    def say(one: Played) -> None:
        played[one.case.release] += 1
        if one.differences:
            differing[one.case.release] += 1
            print("\n".join((one.case.line(), *(f"    {text}" for text in one.differences))), flush=True)
            if given.keep:
                with given.keep.open("a") as kept:
                    kept.write(one.case.line() + "\n")

    play_all(_chosen(given), given.jobs, say, ways=given.ways)
    for release, count in played.items():
        print(f"{release}: {count} cases, {count - differing[release]} equal, {differing[release]} different")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(_main())
