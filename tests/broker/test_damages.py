"""The damages of the property run: each does something, repeatably, and a case survives its line."""

import random
import shutil
from pathlib import Path

import pytest

from tests.broker import damages
from tests.broker.random_cases import CHOICES, case_of, random_case, random_damage
from tests.rescue.mutations import LOG_KINDS
from tests.support.samples import sample

BASE = "killed-4.9.7"


def content(root: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


@pytest.mark.parametrize("kind", CHOICES)
def test_every_kind_changes_a_store(kind: str, tmp_path: Path) -> None:
    before = content(sample(BASE))
    for number in range(20):
        store = tmp_path / str(number)
        shutil.copytree(sample(BASE), store)
        damages.damage(store, random_damage(random.Random(number), [kind]))
        if content(store) != before:
            return
    pytest.fail(f"{kind} never changes anything")


def test_every_damage_is_chosen() -> None:
    """By the random cases of starts, or by those of salvages."""
    assert {kind.partition(":")[0] for kind in CHOICES} | set(LOG_KINDS) == damages.DAMAGES.keys()


def test_a_case_is_the_same_in_every_run() -> None:
    one, other = (random_case(7, 3, "5.3.3") for _ in range(2))
    assert one == other
    assert one != random_case(7, 4, "5.3.3")


def test_a_case_survives_its_line() -> None:
    for number in range(50):
        case = random_case(1, number, "4.9.7")
        assert case_of(case.line()) == case
