"""JSON documents, compared with the pages in docs/ that describe them."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tests.support.samples import ROOT

_TYPES = {"text": str, "number": int, "boolean": bool, "object": dict, "null": type(None)}


def page_of(name: str) -> str:
    """Return the text of docs/`name`.md."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def table_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table of a section, without its header and the quotes of code."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = re.search(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    assert table is not None
    return [[cell.strip(" `") for cell in line[1:-1].split(" | ")] for line in table[0].splitlines()[2:]]


def fields(value: Any, free: Collection[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every field of a document, paths written as in docs/: `stores[].paths[]`.

    The names of the fields of an object whose path is in `free` are data; their paths end in `.*`.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            below = f"{path}.{'*' if path in free else name}" if path else name
            yield below, part
            yield from fields(part, free, below)
    elif isinstance(value, list):
        for part in value:
            yield from fields(part, free, f"{path}[]")


RUN = r'"run": ?\{(?:[^{}]|\{[^{}]*\})*\}'
"""The object `run` at the end of a JSON document, as a pattern: all that differs between two runs on the same files."""

PAGE_RUN = r'Made [^<]* by rmqinspect|<section aria-labelledby="[^"]*-run">.*?</section>'
"""The same of a page of `report`, read with re.DOTALL: when it was made, and the sections about the run."""


def without_run(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without the object `run`, with which each ends."""
    assert list(document)[-1] == "run"
    return {name: value for name, value in document.items() if name != "run"}


def check_listed(documents: Iterable[Any], listed: Mapping[str, str], free: Collection[str]) -> None:
    """Assert that documents have every listed field, with the types of the list, and no other.

    The list has leaves only: not the objects and lists that they are in. The object `run` at the end is that of
    docs/report.md.
    """
    met: set[str] = set()
    for path, value in (field for document in documents for field in fields(without_run(document), free)):
        met.add(path)
        kinds = listed.get(path, listed.get(f"{path}[]", ""))
        if kinds and not isinstance(value, list):
            assert isinstance(value, tuple(_TYPES[kind] for kind in kinds.split(", "))), (path, value)
    assert {name.removesuffix("[]") for name in listed} <= met
    assert {path for path in met if not any(name.startswith(path) for name in listed)} == set()
