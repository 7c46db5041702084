"""Random damage to every kind of file: `verify --level deep` says something sensible, or nothing, and always ends.

By default some hundred files of each kind are damaged; `pytest tests/test_fuzz.py --mutations 10000` tries as
many of each. What a number gives is the same in every run.
"""

import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqinspect.store import Store, open_store
from rmqinspect.verify import Wish, verify
from tests import oracle

LONGEST = 20.0  # seconds for one small store, on a busy machine
MEMORY = 256 << 10  # KiB that the process may grow by

# Where files of each kind are found, whole and undamaged.
STORES: dict[str, tuple[oracle.Family, str]] = {
    "segment": ("crash", "base-5.3.3-halt"),
    "queue": ("crash", "base-5.3.3-halt"),
    "index": ("crash", "base-4.7.1-clean"),
    "checkpoint": ("crash", "base-5.5.0-clean"),
    "batch_queue": ("broker", "main-5.1.4"),
    "ext_queue": ("broker", "ext-4.9.7"),
    "timer_log": ("broker", "halt-5.1.4"),
    "timer_wheel": ("broker", "halt-5.1.4"),
    "config": ("broker", "halt-5.2.0"),
    "dledger": ("broker", "dledger-4.9.7"),
    "dledger_index": ("broker", "dledger-4.9.7"),
}
EDGES = (0, 1, -1, 0x7F, 0x7FFF, 0x7FFFFFFF, -0x80000000, 2**63 - 1, -(2**63), 0x7FFFFFFE, 1 << 40)

Mutation = Callable[[random.Random, bytearray], None]


def flip(chance: random.Random, octets: bytearray) -> None:
    for _ in range(chance.choice((1, 1, 1, 5, 200))):
        octets[chance.randrange(len(octets))] ^= 1 << chance.randrange(8)


def overwrite(chance: random.Random, octets: bytearray) -> None:
    at, size = chance.randrange(len(octets)), chance.choice((1, 4, 20, 512, 4096))
    filler = chance.choice((b"\0" * size, b"\xff" * size, chance.randbytes(size), b"text " * size))[:size]
    octets[at : at + size] = filler[: len(octets) - at]


def set_number(chance: random.Random, octets: bytearray) -> None:
    """Put an extreme number where a field may be."""
    size = chance.choice((1, 2, 4, 8))
    at = chance.randrange(max(1, len(octets) - size))
    octets[at : at + size] = (chance.choice(EDGES) & (1 << 8 * size) - 1).to_bytes(size, "big")


def cut(chance: random.Random, octets: bytearray) -> None:
    del octets[chance.choice((0, 1, len(octets) // 2, len(octets) - 1, chance.randrange(len(octets)))) :]


def lengthen(chance: random.Random, octets: bytearray) -> None:
    octets += chance.randbytes(chance.choice((1, 3, 20, 5000)))


def move(chance: random.Random, octets: bytearray) -> None:
    """Copy a part over another one."""
    size = chance.choice((20, 46, 52, 300, 4096))
    source, target = (chance.randrange(len(octets)) for _ in range(2))
    part = octets[source : source + size][: len(octets) - target]
    octets[target : target + len(part)] = part


def shift(chance: random.Random, octets: bytearray) -> None:
    at, size = chance.randrange(len(octets)), chance.choice((1, 4, 20))
    length = len(octets)
    octets[at:at] = bytes(size)
    del octets[length:]


MUTATIONS: tuple[Mutation, ...] = (flip, flip, overwrite, set_number, set_number, cut, lengthen, move, shift)


def used_part(path: Path) -> int:
    """Return how many bytes of a file hold anything: most of a wheel or a queue file is a hole."""
    return max(1, len(path.read_bytes().rstrip(b"\0")) + 64)


def damaged(store: Store, paths: list[Path], number: int) -> Iterator[Path]:
    """Damage one of the files, yield it, and put its bytes back."""
    chance = random.Random(number)
    path = chance.choice(paths)
    original = path.read_bytes()
    octets = bytearray(original[: used_part(path)])
    rest = original[len(octets) :]
    for _ in range(chance.choice((1, 1, 2, 4))):
        if octets:
            chance.choice(MUTATIONS)(chance, octets)
    path.write_bytes(bytes(octets) + (rest if len(octets) >= used_part(path) else b""))
    try:
        yield path
    finally:
        path.write_bytes(original)


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("kind", STORES)
def test_damage_of_any_kind_is_survived(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = oracle.copy(*STORES[kind], tmp_path)
    store = open_store([str(folder)])
    wanted = [Path(file.path) for file in store.files if file.kind == kind and file.size]
    # Those with something in them: a flip of a preallocated zero says little.
    files = sorted(path for path in wanted if path.read_bytes().strip(b"\0"))
    assert files, f"{STORES[kind]} has no {kind}"
    before = {path: path.stat().st_size for path in folder.rglob("*")}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = 0
    count = request.config.getoption("--mutations")
    for number in range(count):
        for path in damaged(store, files, number):
            begin = time.monotonic()
            outcome = verify(open_store([str(folder)]), Wish(level="deep", max_findings=20))
            took = time.monotonic() - begin
            assert took < LONGEST, f"mutation {number} of {path.name} took {took:.0f} s"
            assert outcome.complete
            for row in outcome.findings.rows:
                assert row.message
                assert row.count > 0
            found += bool(outcome.findings.rows)
    assert found > count // 3, "most damage is told"
    assert {path: path.stat().st_size for path in folder.rglob("*")} == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MEMORY
