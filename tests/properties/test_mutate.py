"""A round of structured damage; `.ci/run` plays more, `python -m tests.properties.mutate` any number."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rmqinspect.cli.report
from rmqinspect.store.model import StoreFile
from tests.properties import mutate
from tests.support.building import lay
from tests.support.samples import NAMES, sample


def test_a_round_of_damage_is_survived() -> None:
    rounds, failures = mutate.play_for(600, seed=10, most=1)
    assert (rounds, failures) == (1, [])


def test_fields_are_those_of_the_records() -> None:
    raw = lay([{"topic": "T", "body": b"x"}, {"topic": "T"}])
    spans = mutate.spans_of(StoreFile("", "", len(raw), "segment"), raw)
    assert (spans[0], spans[1]) == ((0, 4), (4, 8))
    assert all(one.end == two.start for one, two in pairwise(spans)), "every byte is in a field"
    assert spans[-1].end == len(raw)


def test_a_round_is_the_same_every_time() -> None:
    path = sample(NAMES[0]) / "checkpoint"
    raw = path.read_bytes()
    spans = mutate.spans_of(StoreFile(str(path), "checkpoint", len(raw), "checkpoint"), raw)
    changed = []
    for _ in range(2):
        copy = bytearray(raw)
        changed.append((mutate.set_field(random.Random(3), copy, spans), bytes(copy)))
    assert changed[0] == changed[1]
    assert changed[0][1] != raw


def test_runs_at_different_times_have_equal_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = UTC) -> Any:
            return datetime.now(tz) + timedelta(days=1)

    out = tmp_path / "out" / "rows"
    mutate.empty(out.parent)
    words = ["report", str(sample(NAMES[0])), "-o", str(out)]
    first = mutate.run(words, out)
    page = out.read_bytes()
    out.unlink()
    monkeypatch.setattr(rmqinspect.cli.report, "datetime", Later)
    assert mutate.run(words, out) == first
    assert out.read_bytes() != page
    assert len(first[1]) > 0.9 * len(page), "only what differs between runs is left out"


@pytest.mark.parametrize(
    ("format_", "written"),
    [("json", b'{"rows":['), ("jsonl", b'{"a":1}\n{"a"\n'), ("csv", b"a,b\n1\n"), ("parquet", b"x"), ("arrow", b"x")],
)
def test_what_is_no_output_of_its_format_is_seen(format_: str, written: bytes) -> None:
    with pytest.raises((ValueError, AssertionError)):
        mutate.parse(format_, written)
