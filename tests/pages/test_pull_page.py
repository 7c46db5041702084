"""docs/pull.md is right about its transcript, the statuses and every field of the JSON document."""

import json
import re
import shlex

import pytest

from rmqinspect.broker.pull import STATUSES
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.documents import fields
from tests.support.samples import ROOT, sample

run = runner()

PAGE = (ROOT / "docs" / "pull.md").read_text(encoding="utf-8")
TYPES = {"text": str, "number": int, "boolean": bool, "null": type(None)}


def rows_of(heading: str) -> dict[str, str]:
    """Return the second cells of the table of a section by their first cell, without its quotes."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `(.+?)` \| (.*?) \|", section, re.MULTILINE))


def test_every_status_is_listed() -> None:
    assert tuple(rows_of("Statuses")) == STATUSES


def test_every_field_of_the_document_is_listed(run: Run) -> None:
    flipped, retention = sample("flipped-bit-5.3.3"), oracle.store("broker", "retention-4.9.7")
    answers = (
        run("find", flipped, "--pull", "orders", "1", "0", "--tag", "TagA", "-f", "json", "--redact", "hosts"),
        run("find", flipped, "--offset-by-time", "orders", "1", "0", "-f", "json"),
        run("find", retention, "--offset-by-time", "PalletLog", "0", "0", "-f", "json"),
    )
    listed = rows_of("The JSON document")
    met: set[str] = set()
    for _, out, _ in answers:
        for path, value in fields(json.loads(out), ()):
            met.add(path)
            kinds = listed.get(path)
            if kinds is not None:
                assert isinstance(value, tuple(TYPES[kind] for kind in kinds.split(", "))), (path, value)
    assert {name.removesuffix("[]") for name in listed} <= met
    assert {path for path in met if not any(name.startswith(path) for name in listed)} == set()


def test_the_transcript_is_real(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, printed = re.findall(r"```text\n\$ rmqinspect (.*?)\n(.*?)```", PAGE, re.DOTALL)[0]
    assert run(*shlex.split(command))[1] == printed
