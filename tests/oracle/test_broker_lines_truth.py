"""Every `broker` line that verify prints about a damaged store, against what a broker did with that store.

A line is taken apart by `CLAIMS`: a sentence, and what must be true of the broker's answer if it is printed. A sentence
that is not in the table fails, so none is printed that is not tested.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest

from rmqinspect.forecast.versions import ForecastRequest
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.verify.broker_lines import BrokerLines
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.next_start import next_start
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle

CASES = [name for name in oracle.cases("crash") if oracle.is_damaged(name)]


class Truth:
    """What a broker did with a store."""

    def __init__(self, name: str) -> None:
        self.root = oracle.store("crash", name)
        self.case = oracle.case("crash", name)
        self.answer: Mapping[str, Any] = oracle.truth("crash", name)
        self.loaded: bool = self.answer["load_ok"]
        self.is_clean = not self.answer["abort_before"]
        state = "after_dispatch" if self.loaded else "after_load"
        self.state = self.answer[state]
        # A broker that does not start may delete `abort` when it shuts down.
        files = f"files_{state}" if self.loaded else "files_after_shutdown"
        self.removed = frozenset(self.answer[files]["removed"])
        self.end: int = self.state["max_phy"]
        self.bases = [base for base, *_ in self.state["commitlog_files"]]
        self.index = {file["name"]: file for file in self.answer[f"index_{state}"]}

    @cached_property
    def queues(self) -> Mapping[tuple[str, int], Mapping[str, Any]]:
        """The queues after the start."""
        before = {(one["topic"], one["queue_id"]): one["units"] for one in self.answer["after_load"]["queues"]}
        queues = {(one["topic"], one["queue_id"]): one for one in self.state["queues"]}
        return {
            key: one if one["units"] != "same_as_after_load" else one | {"units": before[key]}
            for key, one in queues.items()
        }

    def queue(self, finding: Finding) -> Mapping[str, Any]:
        """The queue of a finding; one that the broker does not have is empty."""
        none = {"min_offset": 0, "max_offset": 0, "units": []}
        return self.queues.get((str(finding.topic), finding.queue_id or 0), none)

    @cached_property
    def scan_start(self) -> int | None:
        """The segment where the scan began, by the rules that agree with the broker's answers."""
        found = re.search(r"scan starts at (\d{20})", self.case["expectation_from_document"])
        return int(found[1]) if found and self.case["agrees"] is True else None

    @cached_property
    def new_index_files(self) -> list[Mapping[str, Any]]:
        """The headers of the index files that the start made."""
        before = {name for name, _ in self.answer["files_before"]}
        return [file for name, file in self.index.items() if f"index/{name}" not in before]

    @property
    def deleted_index_files(self) -> int:
        """How many index files the start deleted."""
        return sum(name.startswith("index/") for name in self.removed)


Said = Mapping[str, int]  # the numbers of a sentence by name
Claim = Callable[[Truth, Finding, Said], bool]


def _place(finding: Finding) -> int:
    assert finding.physical_offset is not None
    return finding.physical_offset


def _name(finding: Finding) -> str:
    return str(finding.file).rpartition("/")[2]


def _begins(truth: Truth, said: Said) -> bool:
    """Whether the scan began where it was said to begin."""
    return "begin" not in said or truth.scan_start in (None, said["begin"])


def _stays(truth: Truth, finding: Finding, said: Said) -> bool:
    """Whether a place is part of the log after the start."""
    return truth.loaded and truth.end > _place(finding) and _begins(truth, said)


def _file_stays(truth: Truth, finding: Finding, said: Said) -> bool:
    return truth.loaded and finding.file not in truth.removed


def _unit_on_disk(truth: Truth, finding: Finding) -> tuple[int, int]:
    assert finding.file is not None and finding.offset is not None
    path = truth.root / finding.file
    raw = path.read_bytes()[finding.offset : finding.offset + 12] if path.exists() else bytes(12)
    offset, size = struct.unpack(">qi", raw)
    return offset, size


def _unit_stays(truth: Truth, finding: Finding, said: Said) -> bool:
    units = {at: (offset, size) for at, offset, size, _ in truth.queue(finding)["units"]}
    return truth.loaded and units.get(finding.queue_offset or 0) == _unit_on_disk(truth, finding)


def _units(truth: Truth, finding: Finding) -> set[int]:
    return {offset for _, offset, *_ in truth.queue(finding)["units"]}


def _cut(truth: Truth, finding: Finding, said: Said) -> bool:
    """Whether a queue ends where it was said to end."""
    end = said.get("cut", 0) + said.get("written", 0)
    return _given_twice(truth, finding, said) and truth.queue(finding)["max_offset"] == end


def _given_twice(truth: Truth, finding: Finding, said: Said) -> bool:
    """Whether the next message got the queue offset that was said."""
    put = next(
        (
            put["queue_offset"]
            for put in truth.answer["probe_puts"]
            if (put["topic"], put["queue_id"]) == (finding.topic, finding.queue_id)
        ),
        None,
    )
    return truth.loaded and ("twice" not in said or put == said.get("next", 0))


def number(name: str) -> str:
    """Return a pattern for a number with grouped digits, which `Said` has by this name."""
    return rf"(?P<{name}>\d+(?: \d{{3}})*)"


LOST = rf"(?:no message is lost by it|{number('lost')} messages? of {number('topics')} topics? from here on are lost)"
TWICE = (
    rf"(?:; (?:the queue starts again at 0|it goes on at {number('next')}):"
    rf" {number('twice')} queue offsets? given out twice)?"
)
CUT = (
    rf"this start (?:empties the queue|cuts the queue at {number('cut')})"
    rf"(?: and writes {number('written')} units? behind that)?(?:, {number('gone')} units? lost)?{TWICE}"
)
SCAN = rf"(?:its scan begins at segment {number('begin')}|it loads no segment)"

# A sentence as a regular expression, and what is true if it is said.
CLAIMS: tuple[tuple[str, Claim], ...] = (
    (rf"this start ends the log here: {LOST}", lambda truth, f, said: truth.loaded and truth.end == _place(f)),
    (
        rf"this start ends the log at {number('end')}, within these bytes: {LOST}",
        lambda truth, f, said: (
            truth.loaded and truth.end == said["end"] and _place(f) < truth.end < _place(f) + (f.length or 0)
        ),
    ),
    ("read by this start, and not noticed", _stays),
    ("not noticed by this start: it goes on with the segment behind it", _stays),
    (rf"not read by this start: its scan begins behind it, at segment {number('begin')}", _stays),
    (rf"not scanned by this start, which begins at segment {number('begin')}; its dispatch reads it", _stays),
    (
        rf"not read by this start: the log ends before it, at {number('end')}",
        lambda truth, f, said: truth.loaded and truth.end == said["end"] and truth.end < _place(f),
    ),
    (
        "not read by this start: its segment is not loaded",
        lambda truth, f, said: truth.loaded and int(_name(f)) not in truth.bases if f.file else not truth.bases,
    ),
    (
        rf"deleted by this start with its segment: it ends the log before it, at {number('end')}",
        lambda truth, f, said: (
            truth.loaded and truth.end == said["end"] and truth.end < _place(f) and f.file in truth.removed
        ),
    ),
    ("deleted by this start", lambda truth, f, said: truth.loaded and f.file in truth.removed),
    ("deleted by this start, which then fails", lambda truth, f, said: not truth.loaded and f.file in truth.removed),
    (rf"not loaded by this start(?:, with {number('others')} other files?)?", _file_stays),
    ("not touched by this start", _file_stays),
    ("the broker does not start: .*", lambda truth, f, said: not truth.loaded),
    ("the broker does not start, because of .*", lambda truth, f, said: not truth.loaded),
    (
        rf"this start deletes the file, and indexes again only records from {number('begin')} on",
        lambda truth, f, said: (
            f.file in truth.removed and all(file["begin_phy"] >= said["begin"] for file in truth.new_index_files)
        ),
    ),
    (
        "this start deletes the file, and indexes nothing again",
        lambda truth, f, said: f.file in truth.removed and not truth.new_index_files,
    ),
    ("this start keeps the file as it is", lambda truth, f, said: truth.loaded and _name(f) in truth.index),
    (
        "this start does not load the file",
        lambda truth, f, said: _file_stays(truth, f, said) and _name(f) not in truth.index,
    ),
    ("this start deletes the file of the unit", lambda truth, f, said: truth.loaded and f.file in truth.removed),
    (
        "this start does not load the file of the unit",
        lambda truth, f, said: truth.loaded and truth.queue(f)["max_offset"] <= (f.queue_offset or 0),
    ),
    (CUT, _cut),
    (f"{CUT}; the units before that are kept as they are", _cut),
    ("kept by this start as it is", _unit_stays),
    (
        rf"kept by this start, before the queue's minimum {number('minimum')}: not served",
        lambda truth, f, said: (
            truth.loaded and truth.queue(f)["min_offset"] == said["minimum"] and said["minimum"] > (f.queue_offset or 0)
        ),
    ),
    (
        f"this start adds no unit to the queue{TWICE}",
        lambda truth, f, said: _given_twice(truth, f, said) and _place(f) not in _units(truth, f),
    ),
    (
        rf"this start adds {number('added')} units? to the queue, which then ends at {number('end')}{TWICE}",
        lambda truth, f, said: _given_twice(truth, f, said) and truth.queue(f)["max_offset"] == said["end"],
    ),
    (
        "this start does not index it",
        lambda truth, f, said: truth.loaded and not any(i["begin_phy"] <= _place(f) for i in truth.new_index_files),
    ),
    (
        "this start reads it again, and indexes it unless an index file that stays ends behind it",
        lambda truth, f, said: (
            truth.loaded and truth.end > _place(f) and any(one["end_phy"] >= _place(f) for one in truth.index.values())
        ),
    ),
    (
        f"this start counts as unclean: {SCAN}(?:, and it deletes {number('deleted')} index files?)?",
        lambda truth, f, said: (
            not truth.is_clean and _begins(truth, said) and truth.deleted_index_files == said.get("deleted", 0)
        ),
    ),
    (f"used by this start: {SCAN}", lambda truth, f, said: not truth.is_clean and _begins(truth, said)),
    ("not used by this start: the last stop counts as clean", lambda truth, f, said: truth.is_clean),
)


def false_claims(truth: Truth, finding: Finding, line: str) -> Iterator[str]:
    """Yield what a line says that is not true, or that no claim covers."""
    client = BY_CODE[finding.code].client
    if line == client:
        return
    said = line.removesuffix(f"; {client}") if client else line
    matches = [(found, holds) for words, holds in CLAIMS if (found := re.fullmatch(words, said))]
    if not matches:
        yield f"untested: {said}"
    for found, holds in matches:
        numbers = {name: int(text.replace(" ", "")) for name, text in found.groupdict().items() if text is not None}
        if not holds(truth, finding, numbers):
            yield f"false: {said}"


def _store(name: str) -> Store:
    """Return the store of a case with the settings of the broker that opened it."""
    return replace(
        open_store([str(oracle.store("crash", name))]), settings=oracle.case("crash", name)["settings"], has_conf=True
    )


def _lines(name: str) -> Iterator[tuple[Finding, str | None]]:
    store, release = _store(name), oracle.case("crash", name)["opened_by"]
    options = VerifyOptions(broker_version=release)
    lines = BrokerLines(next_start(store, ForecastRequest(release)))
    return ((finding, lines.line(finding)) for finding in verify(store, options).findings.rows)


@pytest.mark.parametrize("name", CASES)
def test_every_line_is_true(name: str) -> None:
    """All cases take 9 seconds."""
    truth = Truth(name)
    wrong = [
        (f.code, f.file, f.queue_offset, claim)
        for f, line in _lines(name)
        if line
        for claim in false_claims(truth, f, line)
    ]
    assert not wrong
