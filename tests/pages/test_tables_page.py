"""docs/tables.md has every table and column of the schemas."""

import pytest

from docs.build.tables_page import ROWS, page, schemas, type_words
from rmqinspect.tables import TABLES


def test_every_table_has_a_section() -> None:
    assert list(ROWS) == list(schemas())
    assert [*ROWS][: len(TABLES)] == list(TABLES)


@pytest.mark.parametrize("name", ROWS)
def test_a_section_has_every_column_with_type_and_meaning(name: str) -> None:
    section = page().split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert [(column, type_) for column, type_, _ in rows] == [
        (f"`{field.name}`", f"`{type_words(field.type)}`") for field in schemas()[name]
    ]
    assert all(meaning for _, _, meaning in rows)
