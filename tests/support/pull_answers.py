"""What real stores answered to pulls and time searches beyond those of the truths: `data/README.md` says how."""

import gzip
import json
from functools import cache
from typing import Any, NamedTuple

from rmqinspect.broker.pull import Answer
from rmqinspect.find.pull_answers import Agreed, Given, Refused
from tests.support.oracle import DATA


class PullRow(NamedTuple):
    """One getMessage: what was asked, and the answer."""

    topic: str
    queue_id: int
    offset: int
    asked: int  # messages
    expression: str | None
    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    given: int  # messages
    first: int | None  # physical offset of the first message
    last: int | None


class TimeRow(NamedTuple):
    """One getOffsetInQueueByTime."""

    topic: str
    queue_id: int
    time: int  # ms
    boundary: str | None
    offset: int


class Answers(NamedTuple):
    """The answers of one version about one store."""

    family: Any  # of the oracle; None: the store is described in the test
    case: str
    version: str
    without: str | None  # the second file of this queue folder was removed before
    pulls: list[PullRow]
    times: list[TimeRow]
    size: int = 0  # of each record, for a store that is described

    def __str__(self) -> str:
        return f"{self.version}-on-{self.case}{'-without-file' if self.without else ''}"


@cache
def pull_answers() -> list[Answers]:
    """Return all of them."""
    with gzip.open(DATA / "pull-answers.jsonl.gz", "rt") as lines:
        return [_answers(json.loads(line)) for line in lines]


def _answers(value: dict[str, Any]) -> Answers:
    pulls = [PullRow(*row) for row in value.pop("pulls")]
    times = [TimeRow(*row) for row in value.pop("times")]
    return Answers(pulls=pulls, times=times, **value)


def answer_to(agreed: Agreed[Given | Refused]) -> Answer:
    """Return the answer of a broker that does not refuse."""
    assert isinstance(agreed.answer, Given), agreed.answer
    return agreed.answer.answer
