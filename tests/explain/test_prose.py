"""The tables of prose: each row has every column and no other, of the right type, under one name."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.prose import load_prose
from rmqinspect.verify.codes import BY_CODE, CODES, LEVELS, Code

PACKAGE = Path(__file__).parents[2] / "rmqinspect"
CODES_TOML = load_prose("rmqinspect.verify", "codes.toml")
TEXTS = {"severity", "level", "rule", "broker_effect", "next", "cause"}


@pytest.mark.parametrize("code", CODES_TOML["codes"])
def test_a_code_has_every_column_and_no_other(code: str) -> None:
    row = CODES_TOML["codes"][code]
    assert row.keys() == TEXTS | {"eras"}
    assert all(isinstance(row[column], str) and row[column] == row[column].strip() for column in TEXTS)
    assert row["severity"] in ("error", "warning", "info")
    assert row["level"] in LEVELS
    assert all(map(is_era, BY_CODE[code].eras))


def is_era(era: Any) -> bool:
    return isinstance(era, tuple) and len(era) == 2 and all(isinstance(text, str) for text in era)


def test_a_code_with_an_unknown_or_a_missing_column_is_refused() -> None:
    row = CODES_TOML["codes"]["CL-MAGIC"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Code(code="CL-MAGIC", **row | {"colour": "red"})
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'cause'"):
        Code(code="CL-MAGIC", **{column: text for column, text in row.items() if column != "cause"})


def test_every_code_is_there_once() -> None:
    text = (PACKAGE / "verify" / "codes.toml").read_text(encoding="utf-8")
    assert [code.code for code in CODES] == list(BY_CODE) == list(CODES_TOML["codes"])
    with pytest.raises(tomllib.TOMLDecodeError, match="Cannot declare"):
        tomllib.loads(f"{text}\n[codes.CL-MAGIC]\n")


def test_every_shared_row_is_used() -> None:
    named = {era for row in CODES_TOML["codes"].values() for era in row["eras"] if isinstance(era, str)}
    assert named == CODES_TOML["shared"].keys()


def test_a_missing_file_is_told_by_name() -> None:
    with pytest.raises(FileNotFoundError):
        load_prose("rmqinspect.verify", "none.toml")
