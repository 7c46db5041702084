"""docs/find.md is right about the reasons of a miss and every field of the JSON document."""

import json
import re
from typing import Any

import pytest

from rmqinspect.find import REASONS
from rmqinspect.tables.messages import SCHEMA
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.documents import fields
from tests.support.samples import ROOT, sample

find = runner("find", after=("-f", "json", "-j", "1", "--redact", "hosts"))

PAGE = (ROOT / "docs" / "find.md").read_text(encoding="utf-8")
TYPES = {"text": str, "number": int, "boolean": bool, "object": dict, "null": type(None)}
FREE = ("rows[]", "stores[].statuses", "misses[].searched.statuses")


def rows_of(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table of a section by their first cell, without its quotes."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = re.findall(r"^\| `(.+?)` \|(.*)\|$", section, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in table}


def test_every_reason_is_listed() -> None:
    assert {name: meaning for name, (meaning,) in rows_of("Questions").items()} == REASONS


@pytest.fixture
def documents(find: Run, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return documents that together have every field."""
    monkeypatch.setattr("rmqinspect.find.life_records.MOST_READ", 1 << 10)  # of a life, some is left unread
    popped = oracle.store("broker", "halt-5.3.3")
    flipped, damaged = sample("flipped-bit-5.3.3"), oracle.store("crash", "seg_missing_mid-4.9.7-c")
    answers = (
        find(flipped, "-k", "B98_0", "-k", "K98", "--id", "K97"),
        find(flipped, "-k", "B98_0", "-k", "K98", "--scan"),
        find(damaged, "-k", "nothing"),
        find(flipped, "--id", "7F000001000055970000000000038270"),
        find(popped, "-k", "pop-3", "-k", "txkey-rollback"),
        find(oracle.store("crash", "base-4.2.0-clean"), "--offset", "415"),  # a prepared message
    )
    return [json.loads(out) for _, out, _ in answers]


def test_every_field_of_the_document_is_listed(documents: list[dict[str, Any]]) -> None:
    listed = rows_of("The JSON document")
    listed |= {
        f"misses[].searched.{name.removeprefix('stores[].')}": cells
        for name, cells in listed.items()
        if name.startswith("stores[].") and name not in ("stores[].name", "stores[].hits")
    }
    met: set[str] = set()
    for document in documents:
        for path, value in fields(document, FREE):
            if path.startswith("rows[]."):
                path = "rows[].*"
            met.add(path)
            kinds = listed.get(path, listed.get(f"{path}[]", [""]))[0]
            if not isinstance(value, list) and kinds:
                assert isinstance(value, tuple(TYPES[kind] for kind in kinds.split(", "))), (path, value)
    assert {name.removesuffix("[]") for name in listed} <= met
    assert {path for path in met if not any(name.startswith(path) for name in listed)} == set()


def test_rows_have_the_columns_of_messages(documents: list[dict[str, Any]]) -> None:
    (row,) = {tuple(row) for document in documents for row in document["rows"]}
    assert set(SCHEMA.names) <= set(row)
