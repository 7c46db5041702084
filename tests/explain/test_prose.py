"""The tables of prose: each row has every column and no other, of the right type, under one name."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.choices import LEVELS
from rmqinspect.explain.log_values import LOG_DESCRIBE
from rmqinspect.explain.lookup import LogLine
from rmqinspect.explain.names import DESCRIBE
from rmqinspect.prose import load_prose
from rmqinspect.verify.codes import BY_CODE, CODES, MENDS, Code

PACKAGE = Path(__file__).parents[2] / "rmqinspect"
CODES_TOML = load_prose("rmqinspect.verify", "codes.toml")
TEXTS = {"severity", "level", "rule", "broker_effect", "next", "cause"}


@pytest.mark.parametrize("code", CODES_TOML["codes"])
def test_a_code_has_every_column_and_no_other(code: str) -> None:
    row = CODES_TOML["codes"][code]
    assert row.keys() - {"do", "client", "mend"} == TEXTS | {"eras"}
    assert row.get("mend", "rebuild") in MENDS
    assert all(isinstance(text, str) and text == text.strip() for column, text in row.items() if column != "eras")
    assert row["severity"] in ("error", "warning", "info")
    assert row["level"] in LEVELS
    assert all(map(is_era, BY_CODE[code].eras))


def is_era(era: Any) -> bool:
    return isinstance(era, tuple) and len(era) == 2 and all(isinstance(text, str) for text in era)


def test_a_code_with_an_unknown_or_a_missing_column_is_refused() -> None:
    row = CODES_TOML["codes"]["CL-MAGIC"]
    with pytest.raises(TypeError, match="Unexpected keyword argument 'colour'"):
        Code(code="CL-MAGIC", **row | {"colour": "red"})
    with pytest.raises(TypeError, match="Missing required argument 'cause'"):
        Code(code="CL-MAGIC", **{column: text for column, text in row.items() if column != "cause"})


def test_every_code_is_there_once() -> None:
    text = (PACKAGE / "verify" / "codes.toml").read_text(encoding="utf-8")
    assert [code.code for code in CODES] == list(BY_CODE) == list(CODES_TOML["codes"])
    with pytest.raises(tomllib.TOMLDecodeError, match="Cannot declare"):
        tomllib.loads(f"{text}\n[codes.CL-MAGIC]\n")


def test_every_shared_row_is_used() -> None:
    named = {era for row in CODES_TOML["codes"].values() for era in row["eras"] if isinstance(era, str)}
    assert named == CODES_TOML["shared"].keys()


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_prose("rmqinspect.verify", "none.toml")


# --- the tables of explain ------------------------------------------------------------------------


def document(name: str) -> dict[str, Any]:
    return load_prose("rmqinspect.explain", f"{name}.toml")


LINES = document("log_lines")["line"]
# (rows, columns that each row has, columns that it may have)
TABLES: dict[str, tuple[Iterable[dict[str, Any]], str, str]] = {
    "log lines": (LINES, "template source seen alarm meaning", "phrases pattern values quirks next see judge tells"),
    "values": (
        [value for line in LINES for value in line.get("values", ())],
        "name",
        "meaning describe pattern fills",
    ),
    "fields": (
        [row for section in document("fields").values() for row in section.values()],
        "name meaning",
        "also describe eras see",
    ),
    "properties": (document("names")["property"].values(), "since meaning", "describe see"),
    "topics": (document("names")["topic"].values(), "meaning", "prefix see"),
    "words": (document("names")["word"].values(), "where meaning next", "see"),
    "files": (document("names")["file"].values(), "meaning next", "see"),
    "bits": (document("names")["bits"].values(), "where meaning next bits", "also"),
}
ONE_NEXT = ("words", "files", "bits")  # their column next is one command
LISTS = {"phrases", "values", "quirks", "next", "see", "also", "eras", "bits"}


@pytest.mark.parametrize("table", TABLES)
def test_a_row_has_every_column_and_no_other(table: str) -> None:
    rows, always, sometimes = TABLES[table]
    for row in rows:
        assert set(always.split()) <= row.keys() <= {*always.split(), *sometimes.split()}, row
        for column, value in row.items():
            expected = tuple if column in LISTS and not (table in ONE_NEXT and column == "next") else str
            assert type(value) is (bool if column == "prefix" else expected), (row, column)
            assert value != "" and value != (), (row, column)
        assert all(map(is_era, (*row.get("quirks", ()), *row.get("eras", ()))))


def test_names_toml_has_no_other_section() -> None:
    assert document("names").keys() == {"property", "topic", "sys_flag", "bits", "file", "word"}


def test_templates_are_unique_and_every_function_is_used() -> None:
    templates = [line["template"] for line in LINES]
    assert len(set(templates)) == len(templates)
    used = {row["describe"] for rows, _, _ in TABLES.values() for row in rows if "describe" in row}
    assert used == DESCRIBE.keys() | LOG_DESCRIBE.keys() | {"running_flags"}


def test_a_row_with_an_unknown_column_is_refused() -> None:
    with pytest.raises(TypeError, match="Unexpected keyword argument 'colour'"):
        LogLine(**LINES[0] | {"colour": "red"})
