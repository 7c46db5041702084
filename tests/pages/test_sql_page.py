"""docs/sql.md: every question is answered over the samples."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import NAMES, ROOT, sample

run = runner()

TEXT = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
QUESTIONS = dict(re.findall(r"^### (.+?)\n\n(?:[^#`]+\n\n)?```sql\n(.+?)```", TEXT, re.MULTILINE | re.DOTALL))

Rows = list[dict[str, Any]]
FOUND: dict[str, Callable[[Rows], bool]] = {
    "Which brokers lose data": lambda rows: rows[0]["store"] == "flipped-bit-5.3.3" and rows[0]["lost"] == 145,
    "What is in the log": lambda rows: sum(row["messages"] for row in rows) > 1000,
    "Which broker has": lambda rows: {row["store"] for row in rows} >= {"flipped-bit-5.3.3"},
    "Which messages were sent twice": lambda rows: all(row["copies"] > 1 for row in rows),
    "Who sends what": lambda rows: all(row["largest"] >= row["p99_bytes"] for row in rows),
    "How long": lambda rows: all(len(row["ms"]) == 2 for row in rows),
    "How far behind": lambda rows: {row["store"] for row in rows} >= {"killed-4.9.7"},
    "Which topics": lambda rows: all(row["messages"] >= 0 for row in rows),
    "Which records": lambda rows: {row["store"] for row in rows} == {"lost"},
    "What is wrong": lambda rows: {row["code"] for row in rows} >= {"CL-CRC-BODY", "CL-ZERO-INSIDE"},
}


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10
    assert all(any(question.startswith(beginning) for beginning in FOUND) for question in QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered(run: Run, question: str) -> None:
    stores = [f"{name}={sample(name)}" for name in NAMES]
    stores.append(f"lost={oracle.store('crash', 'cq_lost-4.9.7-h')}")
    status, out, err = run("sql", QUESTIONS[question], *stores, "-f", "json")
    assert status in (0, 3), err
    found: Rows = json.loads(out)["rows"]
    (holds,) = [check for beginning, check in FOUND.items() if question.startswith(beginning)]
    assert found and holds(found), found[:5]
