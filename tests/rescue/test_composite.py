"""Several sources as one log: as slow pieces say, and fast with many pieces."""

import random
import time
from typing import Any

import pytest

from rmqinspect.rescue import sources as module
from rmqinspect.rescue.sources import Composite, Damage, Range, Source
from tests.support.sampling import rare

_END = 400


def _source(name: str, sound: list[Range], end: int = _END) -> Source:
    nothing: Any = None
    return Source(name, nothing, nothing, sound, [], [], end)


def _ranges(chance: random.Random, count: int, end: int) -> list[Range]:
    borders = sorted(chance.sample(range(end), 2 * count))
    return [Range(*borders[at : at + 2]) for at in range(0, 2 * count, 2)]


@pytest.fixture(autouse=True)
def same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_log", lambda store, offset, size: bytes(size))


@pytest.mark.parametrize("seed", range(20))
def test_each_byte_comes_from_the_first_source_that_has_it_sound(seed: int) -> None:
    chance = random.Random(seed)
    sources = [_source(name, _ranges(chance, chance.randrange(1, 30), _END)) for name in "abc"]
    pieces = Composite(sources).pieces
    assert pieces == sorted(pieces)
    found = {at: piece.source for piece in pieces for at in range(piece.start, piece.end)}
    wanted = {at: number for number in (2, 1, 0) for start, end in sources[number].sound for at in range(start, end)}
    assert found == wanted


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_of_ranges_without_damage(seed: int) -> None:
    chance = random.Random(seed)
    known = _ranges(chance, 5, _END)
    damaged = [Damage(*one, "gap") for one in _ranges(chance, 20, _END)]
    end = chance.randrange(_END)
    left = [at for start, behind in module._without(known, damaged, end) for at in range(start, behind)]
    bad = {at for one in damaged for at in range(one.start, one.end)}
    assert left == [at for start, behind in known for at in range(start, min(behind, end)) if at not in bad]


@pytest.mark.parametrize("count", [20_000, rare(100_000)])
def test_many_ranges_take_moments(count: int) -> None:
    whole = [Range(0, 100 * count)]
    damaged = [Damage(at * 100, at * 100 + 10, "record") for at in range(count)]
    began = time.process_time()
    one = list(module._without(whole, damaged, 100 * count))
    two = [Range(start + 5, end + 5) for start, end in one]
    composite = Composite([_source("one", one, 100 * count), _source("two", two, 100 * count)])
    assert len(composite.pieces) == 2 * count
    assert all(map(composite.holds_records, composite.pieces))
    assert time.process_time() - began < count / 5_000
