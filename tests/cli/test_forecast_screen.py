"""The screens of `forecast`, on outcomes made by hand: what is said, what is folded, what fits."""

from collections.abc import Iterable
from datetime import UTC
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from rmqinspect.cli.forecast import walk_lines
from rmqinspect.cli.forecast_screen import SHORT_REASONS, Look, era_table, screen, verdict_lines
from rmqinspect.forecast.check import REASONS
from rmqinspect.forecast.instead import other_ways
from rmqinspect.forecast.outcome import (
    Alternative,
    Decision,
    Forecast,
    GroupBeyond,
    GroupStart,
    Losses,
    QueueOutcome,
    Remedy,
    Verdict,
)
from rmqinspect.store.discover import open_store
from tests.support.outcomes import LOSES, REFUSAL, REFUSES, SAFE, Told, after
from tests.support.samples import sample

STORE = open_store([str(sample("flipped-bit-5.3.3"))])
LOOK = Look(UTC, queues=False)


def shown(forecast: Forecast, look: Look = LOOK) -> str:
    """Return the screen, no line of which is wider than 100 cells."""
    return text_of(screen(forecast, STORE, look))


def text_of(lines: Iterable[str]) -> str:
    """Return the lines as one text; none is wider than 100 cells."""
    lines = list(lines)
    assert max(map(len, lines)) <= 100
    return "\n".join(lines)


EMPTY = replace(LOSES, verdict=Verdict.EMPTY, min_offset=-1, proofs=["2 segments"])
# As probe_puts of the case stray_ds-4.3.2-c: the first put lies at offset 0, in the segment that is there.
ASIDE = replace(SAFE, verdict=Verdict.EMPTY, ignored_files=["commitlog/.DS_Store", f"commitlog/{0:020}"])
OTHER_SCAN = replace(SAFE, era="5.4.0", scan_start=0)
HOSTILE = replace(LOSES, losses=replace(LOSES.losses, by_topic={"\x1b[31mred": 1}), notes=["a\x1bb"])
OLDER = replace(LOSES, release="5.0.0", era="4.0.0 to 5.0.0", losses=Losses(254))
WAYS = other_ways(LOSES, None, after(Told(SAFE, (OLDER, SAFE))))
BEST = Alternative("the same broker with abort brought to 100 bytes", SAFE, Remedy(costs=("starts without x",)), True)
ADVICE = "before any start: copy the store"
SAVE = "do first:  save what it loses: decode --lost-at-start"
NOTHING_MORE = ["VERDICT    STARTS, LOSES NOTHING MORE"]


class Case(NamedTuple):
    """What a screen tells of outcomes, and what it does not."""

    forecast: Forecast
    told: str  # a text in each line
    not_told: tuple[str, ...] = ()
    verdict: list[str] | None = None


CASES = {
    "a start that loses data says where, why and what": Case(
        Forecast([LOSES]),
        """unclean exit, because the file abort is there
        stops at   97 187 = segment 65536 + 31 651 (0x7ba3): BODYCRC does not match the body
        log        end 217 698 becomes 97 187
        deletes    segment 131072
        31 queue offsets in 1 queue will be used again
        1 group has offsets beyond the new maximum of 1 queue
        billing, TopicA queue 0 (offset 51, maximum 20): skips up to 31 new messages
        TopicA       145   119 633
        144 of the 145 are intact on disk now""",
        verdict=[ADVICE, SAVE, "VERDICT    STARTS, LOSES DATA: 145 records, 31 new messages skipped by groups"],
    ),
    "an empty start": Case(Forecast([EMPTY]), "144 of the 145 are intact on disk now; the broker begins without them"),
    "segments that an empty start leaves aside are not safe": Case(
        Forecast([ASIDE]), "goes over segment 0: do not start it", ("and left",)
    ),
    "a safe start has no table and no advice": Case(
        Forecast([SAFE]), "ends at 217 698: no record is cut off", ("lost",), NOTHING_MORE
    ),
    "a refusal names the file and the remedy": Case(
        Forecast([REFUSES]),
        """refuses    index/1x: the name is no number
        remedy     move index/1x out of the store
        clean exit, as asked for""",
        ("log  ",),
    ),
    "the best way stands below the remedy": Case(
        Forecast([REFUSES], [BEST]),
        "best       the same broker with abort brought to 100 bytes: loses nothing; starts without x",
    ),
    "releases that differ are all shown and the worst decides": Case(
        Forecast([LOSES, SAFE]),
        """broker     5.2.0 to 5.3.3: STARTS, LOSES DATA: 145 records, 31 new messages skipped by groups
        broker     5.5.0: STARTS, LOSES NOTHING MORE""",
        verdict=[
            ADVICE,
            SAVE,
            "VERDICT    STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records, 31 new messages skipped by groups",
        ],
    ),
    "releases that differ in where the scan begins are one block": Case(
        Forecast([OTHER_SCAN, SAFE]),
        """scan       5.4.0: begins in segment 0
                   5.5.0: begins in segment 196608""",
        ("broker  ",),
        NOTHING_MORE,
    ),
    "better ways have a line and others are named": Case(
        Forecast([LOSES], WAYS),
        """the same broker without the file abort  scan from segment 196608: loses nothing
        broker 5.5.0                            scan from segment 196608: loses nothing
        not better: older broker 4.0.0 to 5.0.0 (loses 254 records, 31 new messages""",
    ),
    "no way is better": Case(
        Forecast([LOSES], [Alternative("broker 5.5.0", REFUSES)]), "no choice is better: broker 5.5.0 (will not start)"
    ),
    "copies are named apart from what is lost": Case(
        Forecast([replace(SAFE, losses=Losses(copies=47))]),
        "copies     47 records behind the new end are copies of others: no message is lost by that",
    ),
    "what comes from the store is escaped": Case(Forecast([HOSTILE]), r"\x1b[31mred", ("\x1b",)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_screen_tells(case: Case) -> None:
    text = shown(case.forecast)
    assert [line.strip() for line in case.told.splitlines() if line.strip() not in text] == []
    assert [word for word in case.not_told if word in text] == []
    if case.verdict is not None:
        assert list(verdict_lines(case.forecast)) == case.verdict


def test_thousands_fold() -> None:
    names = [f"topic-{number:04}-{'x' * 200}" for number in range(3000)]
    queues = [QueueOutcome(name, 0, 0, 9, 0, 5, cut=4, given_twice=4) for name in names]
    ones = dict.fromkeys(names, 1)
    losses = Losses(3000, 10**12, 3000, 12000, 3000, 0, 0, ones, ones, ones, ones)
    groups = [GroupBeyond(f"group {number}", name, 0, 9, 5) for number, name in enumerate(names)]
    bases = [number << 30 for number in range(2000)]
    told = [GroupStart(group.group, ((group.topic, 0),), 0, 4, 0) for group in groups]
    outcome = replace(LOSES, losses=losses, queues=queues, groups_beyond=groups, groups=told, deleted_segments=bases)
    text = shown(Forecast([outcome]), Look(UTC, queues=True))
    assert "2990 more topics" in text
    assert "2 980 more queues (-f json lists all)" in text
    assert "and 1 994 more" in text
    assert "and 2 994 more groups (-f json lists all)" in text
    assert len(text.splitlines()) < 80


def test_a_topic_of_200_characters_pushes_nothing_off_the_screen() -> None:
    name = "T" * 200
    file = f"consumequeue/{name}/0/00000000000000000007"
    refuses = replace(REFUSES, refusal=REFUSAL._replace(file=file, why="x", remedy="restore it"), ignored_files=[file])
    way = Alternative(f"the same broker with {file} moved out of the store", SAFE, Remedy((file,)), is_better=True)
    worse = way._replace(is_better=False)
    group = GroupStart(name, ((name, 0),), 1, 2, 3)
    loses = replace(
        LOSES,
        groups=[group],
        groups_beyond=[GroupBeyond(name, name, 0, 9, 5)],
        queues=[QueueOutcome(name, 0, 0, 9, 0, 5, cut=4)],
        decisions=[Decision("load", f"{file} is left", (("file", file),), "A#b")],
        notes=[file],
    )
    for forecast in (Forecast([refuses], [way, worse]), Forecast([loses, refuses])):
        assert name[:90] not in "".join(verdict_lines(forecast))
        text = shown(forecast, Look(UTC, queues=True))  # no line is too wide
        assert "00000000000000000007" in text
        text_of(walk_lines(forecast, UTC))
        text_of(era_table(forecast))


def test_all_versions_are_a_line_each() -> None:
    unknown = replace(REFUSES, era="4.0.0", verdict=Verdict.UNKNOWN, refusal=None, unknown="RocksDB " * 20)
    lines = text_of(era_table(Forecast([unknown, REFUSES, LOSES, SAFE]))).splitlines()
    assert lines[0].endswith("new end   lost   index files deleted   stops because")
    assert [line for line in lines if line.startswith("5.2.0 to 5.3.3   yes")]
    assert [line for line in lines if line.startswith("5.1.4") and line.endswith("index folder")]
    assert "refuses    index/1x: the name is no number" in lines
    assert [line for line in lines if line.startswith("not known  RocksDB")]
    assert [line for line in lines if line.startswith("5.5.0") and line.endswith("not stopped")]


def test_neighbours_that_look_the_same_are_one_line() -> None:
    before = replace(SAFE, era="5.3.1 to 5.4.0", notes=["of the release"])
    lines = text_of(era_table(Forecast([before, SAFE]))).splitlines()
    assert [line.split("   ")[0] for line in lines[1:]] == ["5.3.1 to 5.5.0"]


def test_every_reason_has_few_words() -> None:
    assert SHORT_REASONS.keys() == REASONS.keys()


def test_a_walk_is_explained_with_inputs_and_source() -> None:
    steps = [
        Decision("scan", "ends at 5", (("rule", "third"), ("end", 12345)), "CommitLog#recoverNormally"),
        Decision("cut", "x", (), "A#b"),
        Decision("index", "y", (("index_msg_timestamp", 1795250925095), ("cut_first", "log")), "A#c"),
    ]
    text = text_of(walk_lines(Forecast([replace(LOSES, decisions=steps)]), UTC))
    assert text.startswith("start of 5.3.3 after an unclean exit\n  scan       ends at 5\n")
    assert "from end 12 345 (CommitLog#recoverNormally)" in text
    assert "  cut        x\n             (A#b)" in text
    assert "from index_msg_timestamp 2026-11-21T08:48:45.095Z, what is cut first: the log (A#c)" in text


def test_a_step_that_two_releases_take_alike_is_told_once() -> None:
    scan, cut, other = (Decision(step, text, (), "A#b") for step, text in (("scan", "a"), ("cut", "b"), ("cut", "c")))
    outcomes = [
        replace(LOSES, release="5.3.1", decisions=[scan, cut]),
        replace(LOSES, release="5.3.3", decisions=[scan, other]),
        replace(LOSES, release="5.5.0", decisions=[scan, cut]),
    ]
    lines = [line.rstrip() for line in walk_lines(Forecast(outcomes), UTC)]
    assert [line for line in lines if line.startswith("  ") and "(A#b)" not in line] == [
        "  scan       a",
        "  cut        b",
        "  cut        c",
        "  as 5.3.1   scan",
        "  as 5.3.1   scan, cut",
    ]
