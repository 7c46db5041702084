"""docs/find.md, docs/pull.md and docs/forecast.md are right about words, statuses and every field of a document."""

import json
import shlex
from typing import Any

import pytest

from rmqinspect.broker.pull import STATUSES as PULL_STATUSES
from rmqinspect.cli.forecast import STATUSES
from rmqinspect.find import REASONS
from rmqinspect.forecast.document import listed_fields
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.tables.messages import SCHEMA
from tests.support import oracle, traced
from tests.support.command import Run, runner
from tests.support.documents import check_listed, page_of, table_of
from tests.support.samples import ROOT, sample

find = runner("find", after=("-f", "json", "-j", "1", "--redact", "hosts"))
run = runner()

FIND, PULL, FORECAST = map(page_of, ("find", "pull", "forecast"))
FLIPPED = sample("flipped-bit-5.3.3")


def test_every_reason_status_and_verdict_is_listed() -> None:
    assert dict(table_of(FIND, "Questions")) == REASONS
    assert tuple(name for name, *_ in table_of(PULL, "Statuses")) == PULL_STATUSES
    verdicts = [line.split(" | ")[:2] for line in FORECAST.splitlines() if line.startswith("| `")]
    expected = [[f"| `{verdict.value}`", str(int(STATUSES[verdict]))] for verdict in Verdict]
    assert [row for row in verdicts if row[0].isupper()] == expected


@pytest.fixture
def documents(find: Run, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return documents of `find` that together have every field."""
    monkeypatch.setattr("rmqinspect.find.life_records.MOST_READ", 1 << 10)  # of a life, some is left unread
    popped, damaged = oracle.store("broker", "halt-5.3.3"), oracle.store("crash", "seg_missing_mid-4.9.7-c")
    answers = (
        find(FLIPPED, "-k", "B98_0", "-k", "K98", "--id", "K97"),
        find(FLIPPED, "-k", "B98_0", "-k", "K98", "--scan"),
        find(damaged, "-k", "nothing"),
        find(FLIPPED, "--id", "7F000001000055970000000000038270"),
        find(popped, "-k", "pop-3", "-k", "txkey-rollback"),
        find(oracle.store("crash", "base-4.2.0-clean"), "--offset", "415"),  # a prepared message
        find(traced.store("files-5.3.3"), "-k", "X2"),  # a transaction whose clients traced it
    )
    return [json.loads(out) for _, out, _ in answers]


def test_every_field_of_find_is_listed(documents: list[dict[str, Any]]) -> None:
    rows = [row for document in documents for row in document.pop("rows")]
    assert all(set(SCHEMA.names) <= row.keys() for row in rows)
    assert len({tuple(row) for row in rows}) == 1
    listed = {path: kinds for path, kinds, _ in table_of(FIND, "The JSON document")}
    assert listed.pop("rows[].*", None) is not None
    listed |= {
        f"misses[].searched.{name.removeprefix('stores[].')}": kinds
        for name, kinds in listed.items()
        if name.startswith("stores[].") and name not in ("stores[].name", "stores[].hits")
    }
    check_listed(documents, listed, ("stores[].statuses", "misses[].searched.statuses"))


def test_every_field_of_find_pull_is_listed(run: Run) -> None:
    retention = oracle.store("broker", "retention-4.9.7")
    answers = (
        run("find", FLIPPED, "--pull", "orders", "1", "0", "--tag", "TagA", "-f", "json", "--redact", "hosts"),
        run("find", FLIPPED, "--offset-by-time", "orders", "1", "0", "-f", "json"),
        run("find", retention, "--offset-by-time", "PalletLog", "0", "0", "-f", "json"),
    )
    listed = {path: kinds for path, kinds, *_ in table_of(PULL, "The JSON document")}
    check_listed([json.loads(out) for _, out, _ in answers], listed, ())


def test_the_transcript_of_find_pull_is_real(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, printed = PULL.split("```text\n$ rmqinspect ", 1)[1].split("```", 1)[0].split("\n", 1)
    assert run(*shlex.split(command))[1] == printed


def test_every_field_of_forecast_is_listed_as_it_is() -> None:
    listed = [tuple(cells) for cells in table_of(FORECAST, "The JSON document")]
    assert listed == [tuple(cell.strip(" `") for cell in row) for row in listed_fields()]
