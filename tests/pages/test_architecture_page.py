"""docs/architecture.md draws the floors that the tests enforce, and names files that exist."""

import re
from pathlib import Path

from docs.build.architecture_page import page
from docs.build.floors import FLOORS, LEAVES

ROOT = Path(__file__).parents[2]


def test_every_folder_and_leaf_stands_in_the_picture() -> None:
    picture = page().split("```text\n")[1].split("```")[0]
    assert set(re.findall(r"\w+", picture)) >= {folder.name for folder in FLOORS} | LEAVES
    assert len({len(line) for line in picture.splitlines() if line.endswith(("|", "+"))}) == 1


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"[\w/]+\.(?:py|toml|md)\b|[\w/]+/(?=[\s`,;:])", page())
    places = [ROOT, ROOT / "rmqinspect", ROOT / "rmqinspect" / "tables"]
    places += [ROOT / "rmqinspect" / "commitlog", ROOT / "rmqinspect" / "verify"]
    assert len(named) > 20
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
