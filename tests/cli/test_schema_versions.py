"""Every JSON document says which version of its fields it has, as docs/report.md promises."""

import json
from pathlib import Path
from typing import Any

import pytest

from docs.build.commands import commands
from rmqinspect.cli import VERBS
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()
STORE = str(sample("healthy-4.9.7"))
DAMAGED = str(sample("flipped-bit-5.3.3"))

# The words of each command that has JSON documents.
ASKS: dict[str, list[str]] = {
    "info": [STORE],
    "decode": [STORE, "-n", "1"],
    "find": [STORE, "-k", "K1"],
    "transactions": [STORE],
    "delays": [STORE],
    "groups": [STORE],
    "usage": [STORE],
    "verify": [DAMAGED],
    "forecast": [DAMAGED],
    "sql": ["SELECT 1 AS one", STORE],
    "show": [STORE, "--at", "0"],
    "diff": [STORE, STORE],
    "id": ["7F000001000055970000000000038270"],
    "explain": ["CL-CRC-BODY"],
}
# Those that write a document into what they make, which is its name there; `{}` is the output.
MAKES = {
    "rebuild": ([STORE], "{}.receipt.json"),
    "salvage": ([STORE], "{}.receipt.json"),
    "export": ([STORE, "--engine", "local"], "{}/_manifest.json"),
}


# Documents of which a field has got another meaning; those of all others have version 1.
VERSIONS = {"forecast": 2}


def check(document: Any, verb: str = "") -> None:
    assert isinstance(document, dict)
    assert document["schema_version"] == VERSIONS.get(verb, 1) and type(document["schema_version"]) is int
    assert next(iter(document)) == "schema_version"


def test_every_command_is_asked() -> None:
    with_json = {one.name for one in commands() for option in one.options if "--format" in option.names}
    assert with_json == ASKS.keys()
    assert ASKS.keys() | MAKES.keys() == VERBS.keys() - {"report"}  # a page


@pytest.mark.parametrize("verb", ASKS)
def test_a_document_begins_with_its_version(run: Run, verb: str) -> None:
    _, printed, _ = run(verb, *ASKS[verb], "-f", "json")
    document = json.loads(printed)
    check(document, verb)
    assert document["tool"].startswith("rmqinspect ")


@pytest.mark.parametrize("verb", MAKES)
def test_a_document_beside_what_was_made_begins_with_its_version(run: Run, tmp_path: Path, verb: str) -> None:
    words, place = MAKES[verb]
    made = tmp_path / "made"
    status, _, _ = run(verb, *words, "-o", made)
    assert status == 0
    check(json.loads(Path(place.format(made)).read_text(encoding="utf-8")))


def test_a_report_of_verify_and_of_several_begins_with_its_version(run: Run, tmp_path: Path) -> None:
    for name, stores in (("one", [DAMAGED]), ("two", [f"a={DAMAGED}", f"b={STORE}"])):
        report = tmp_path / f"{name}.json"
        run("verify", *stores, "--level", "quick", "--report", report)
        check(json.loads(report.read_text(encoding="utf-8")))
