"""docs/rebuild.md and docs/salvage.md are right about the screen and about every field of the receipt."""

import json
import shlex
from pathlib import Path

import pytest

from rmqinspect.document import page_rows, typed
from rmqinspect.rescue.receipt import Head, Receipt, as_json
from rmqinspect.rescue.salvage_receipt import SalvageReceipt
from tests.support.command import Run, runner
from tests.support.documents import page_of, table_of
from tests.support.samples import ROOT

run = runner()

_PAGES = [("rebuild", 0, Receipt), ("salvage", 3, SalvageReceipt)]


@pytest.mark.parametrize(("name", "expected", "kind"), _PAGES)
def test_the_transcript_is_real(
    name: str, expected: int, kind: type[Head], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, printed = page_of(name).split("```text\n$ rmqinspect ", 1)[1].split("```", 1)[0].split("\n", 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    status, out, _ = run(*shlex.split(command))
    assert status == expected
    assert out.replace("reflinked", "copied") == printed
    document = json.loads((tmp_path / "NEW.receipt.json").read_text())
    assert as_json(typed(document, kind)) == (tmp_path / "NEW.receipt.json").read_bytes()


@pytest.mark.parametrize(("name", "expected", "kind"), _PAGES)
def test_every_field_of_the_receipt_is_listed_as_it_is(name: str, expected: int, kind: type[Head]) -> None:
    listed = [tuple(cells) for cells in table_of(page_of(name), "The receipt")]
    assert listed == [tuple(cell.strip(" `") for cell in row) for row in page_rows(kind)]
