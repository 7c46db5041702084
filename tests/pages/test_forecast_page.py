"""docs/forecast.md lists the fields of the document and the verdicts as the code has them."""

import re

from rmqinspect.cli.forecast import STATUSES
from rmqinspect.forecast.document import listed_fields
from rmqinspect.forecast.outcome import Verdict
from tests.support.samples import ROOT

PAGE = (ROOT / "docs" / "forecast.md").read_text(encoding="utf-8")


def test_every_field_is_listed_as_it_is() -> None:
    table = PAGE.split("\n## The JSON document\n", 1)[1]
    listed = re.findall(r"^(\| `.+)$", table, re.MULTILINE)
    assert listed == [f"| `{path}` | {kind} | {meaning} |" for path, kind, meaning in listed_fields()]


def test_every_verdict_has_its_status() -> None:
    rows = re.findall(r"^\| `([A-Z, ]+)` \| (\d) \|", PAGE, re.MULTILINE)
    assert rows == [(verdict.value, str(int(STATUSES[verdict]))) for verdict in Verdict]
