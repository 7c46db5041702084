"""Pages of docs/ that are generated from the code are up to date, and have all that they are about."""

import re
import runpy

import pytest

from docs.build import architecture_page, tables_page
from docs.build.floors import FLOORS, LEAVES
from rmqinspect.tables import TABLES
from tests.support.documents import page_of, table_of
from tests.support.samples import ROOT

PAGES = sorted(path.stem.removesuffix("_page") for path in (ROOT / "docs" / "build").glob("*_page.py"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_command_that_it_names_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = name.replace("_", "-")
    command = f"python -m docs.build.{name}_page > docs/{file}.md"
    runpy.run_path(str(ROOT / "docs" / "build" / f"{name}_page.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert page_of(file) == printed, f"run: {command}"
    assert command in printed


def test_every_table_has_a_section_with_every_column_its_type_and_its_meaning() -> None:
    schemas = tables_page.schemas()
    assert list(tables_page.ROWS) == list(schemas)
    assert list(schemas)[: len(TABLES)] == list(TABLES)
    for name, schema in schemas.items():
        rows = table_of(page_of("tables"), name)
        assert [row[:2] for row in rows] == [[field.name, tables_page.column_words(field)] for field in schema]
        assert all(meaning for _, _, meaning in rows)


def test_every_folder_and_leaf_stands_in_the_picture() -> None:
    picture = page_of("architecture").split("```text\n")[1].split("```")[0]
    assert set(re.findall(r"\w+", picture)) >= {folder.name for folder in FLOORS} | LEAVES
    assert len({len(line) for line in picture.splitlines() if line.endswith(("|", "+"))}) == 1


def test_every_file_that_the_page_of_the_architecture_names_exists() -> None:
    named = re.findall(r"[\w/]+\.(?:py|toml|md)\b|[\w/]+/(?=[\s`,;:])", architecture_page.page())
    places = [ROOT, *(ROOT / "rmqinspect" / folder for folder in ("", "tables", "commitlog", "verify"))]
    assert len(named) > 20
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
