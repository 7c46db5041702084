"""What verify says of brokers in words, against what brokers did with every damaged store.

A `broker` line is about one start. It is taken apart by `CLAIMS`: a sentence, and what must be true of the broker's
answer if it is printed. A sentence that is not in the table fails, so none is printed that is not tested.

A sentence of codes.toml is about all versions. A clause of it that was false of one store must name its condition: the
versions, the setting, or what the scan of startup reaches.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import pytest
from msgspec.structs import replace

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
from tests.support.expected_findings import Expected, expected
from tests.support.sampling import sampled

DAMAGED = [name for name in oracle.cases("crash") if oracle.is_damaged(name)]


class Truth:
    """What a broker did with a store."""

    def __init__(self, name: str) -> None:
        self.name = name
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
        self.version = tuple(int(number) for number in self.answer["opened_by"].split("."))
        before = dict(self.answer["files_before"])
        self.has_segments = any(re.fullmatch(r"commitlog/\d{20}", name) and size for name, size in before.items())

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


truth_of = cache(Truth)


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


LOST = (
    r"(?:no record of the log is cut off|"
    rf"{number('lost')} messages? of {number('topics')} topics? from here on are lost)"
)
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


@pytest.mark.parametrize("name", sampled(DAMAGED, 4))
def test_every_line_is_true(name: str) -> None:
    """All cases take 9 seconds."""
    truth = truth_of(name)
    wrong = [
        (f.code, f.file, f.queue_offset, claim)
        for f, line in _lines(name)
        if line
        for claim in false_claims(truth, f, line)
    ]
    assert not wrong


# --- the sentences of codes.toml ------------------------------------------------------------------

# With a setting that is not the default: the last part of their names.
SPECIAL = re.compile(r"-(checkCRCOnRecover|forceVerifyPropCRC|checkCommitLogOffsetOnRecover)$")
CONDITION = re.compile(r"\b(if|unless|except|up to|may|maybe|with|without|else|in \d)\b|\d\.\d|scan that")
ENDS_THE_LOG = ("CL-MAGIC", "CL-CRC-BODY", "CL-ZERO-INSIDE", "CL-LENGTH")


def _ends(truth: Truth, finding: Expected) -> bool:
    return truth.loaded and truth.end == finding.physical_offset


def _deletes_segments(truth: Truth, finding: Expected) -> bool:
    return truth.loaded and all(base <= (finding.physical_offset or 0) for base in truth.bases)


def _removes(folder: str) -> Callable[[Truth, Expected], bool]:
    return lambda truth, finding: any(file.startswith(folder) for file in truth.removed)


# A claim as a regular expression, and whether it was true of a store with a finding.
EFFECTS: tuple[tuple[str, Callable[[Truth, Expected], bool]], ...] = (
    (r"log ends here|ends the log here|truncates the log here", _ends),
    (r"later segments are deleted|deletes all later", _deletes_segments),
    (r"not start|ends startup", lambda truth, finding: not truth.loaded),
    (r"\bnot noticed at startup|notices? nothing", lambda truth, finding: truth.loaded),
    (r"truncates the queue|queue files are deleted", _removes("consumequeue/")),
    (r"deletes? index files|deletes it", _removes("index/")),
    (r"delete an empty last file", _removes("commitlog/")),
)


def false_clauses(effect: str, truth: Truth, finding: Expected) -> list[str]:
    """Return the clauses that are not true of a store and name no condition."""
    return [
        clause
        for clause in effect.split(";")
        for claim, holds in EFFECTS
        if re.search(claim, clause) and not holds(truth, finding) and not CONDITION.search(clause)
    ]


def test_every_clause_is_true_of_every_store_or_names_its_condition() -> None:
    wrong = {
        (name, finding.code): clauses
        for name in DAMAGED
        for finding in expected("crash", name)
        if (clauses := false_clauses(BY_CODE[finding.code].broker_effect, truth_of(name), finding))
    }
    assert not wrong


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("flip_body_third-5.3.3-c", "the log ends here and all later segments are deleted"),
        ("seg_missing_last-4.7.1-h", "startup leaves it; the broker does not start"),
        ("size_huge_third-4.7.1-c", "not noticed at startup"),
    ],
)
def test_a_clause_that_is_false_is_seen(name: str, effect: str) -> None:
    finding = next(one for one in expected("crash", name) if one.code.startswith(("CL", "CQ")))
    assert false_clauses(effect, truth_of(name), finding)


def is_excepted(truth: Truth, finding: Expected) -> bool:
    """Whether the sentence of CL-LENGTH makes an exception for a store."""
    only_v6 = any("SYSFLAG bit 4" in words for words in oracle.case("crash", truth.name)["damage"])
    data = truth.version <= (4, 3, 1) and not truth.is_clean
    return finding.code == "CL-LENGTH" and (data or (only_v6 and truth.version < (4, 6, 0)))


def test_the_log_ends_at_damage_that_the_scan_reaches_and_only_there() -> None:
    """The condition of the sentences is the right one: whether the scan begins at or before the damage."""
    seen = {True: 0, False: 0}
    for name in DAMAGED:
        truth, findings = truth_of(name), expected("crash", name)
        damage = [one for one in findings if one.code in ENDS_THE_LOG]
        described = oracle.case("crash", name)["expectation_from_document"]
        start = re.search(r"scan starts at (\d{20})", described)
        if not damage or not truth.loaded or start is None or SPECIAL.search(name) or is_excepted(truth, damage[0]):
            continue
        place = damage[0].physical_offset or 0
        reached = int(start[1]) <= place
        assert (truth.end == place) == reached, name
        assert not reached or all(base <= place for base in truth.bases), name
        seen[reached] += 1
    assert min(seen.values()) >= 5


def test_a_startup_that_keeps_index_files_is_a_clean_one_or_finds_them_old() -> None:
    for name in DAMAGED:
        truth = truth_of(name)
        if truth.loaded and truth.is_clean:
            assert not any(file.startswith("index/") for file in truth.removed), name
        elif truth.loaded and any(one.code == "IX-BEYOND" for one in expected("crash", name)):
            assert any(file.startswith("index/") for file in truth.removed), name


def test_units_behind_the_log_stay_only_in_the_versions_that_are_named() -> None:
    cases = 0
    for name in DAMAGED:
        truth = truth_of(name)
        if not truth.loaded or not any(one.code == "CQ-BEYOND" for one in expected("crash", name)):
            continue
        queues = oracle.truth("crash", name)["after_load"]["queues"]
        stay = any(place >= truth.end for queue in queues for _, place, size, _ in queue["units"] if size > 0)
        named = truth.is_clean and truth.version <= ((4, 3, 1) if truth.has_segments else (4, 4, 0))
        assert stay == named, name
        cases += 1
    assert cases > 10
