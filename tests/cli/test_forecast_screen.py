"""The screens of `forecast`, on outcomes made by hand: what is said, what is folded, what fits."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC

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
    Outcome,
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


def test_a_start_that_loses_data_says_where_why_and_what() -> None:
    text = shown(Forecast([LOSES]))
    assert "unclean exit, because the file abort is there" in text
    assert "stops at   97 187 = segment 65536 + 31 651 (0x7ba3): BODYCRC does not match the body" in text
    assert "log        end 217 698 becomes 97 187\n" in text
    assert "deletes    segment 131072" in text
    assert "31 queue offsets in 1 queue will be used again" in text
    assert "1 group has offsets beyond the new maximum of 1 queue" in text
    assert "billing, TopicA queue 0 (offset 51, maximum 20): skips up to 31 new messages" in text
    assert "  TopicA       145   119 633" in text
    assert "144 of the 145 are intact on disk now" in text
    empty = shown(Forecast([replace(LOSES, verdict=Verdict.EMPTY, min_offset=-1, proofs=["2 segments"])]))
    assert "144 of the 145 are intact on disk now; the broker begins without them" in empty
    assert list(verdict_lines(Forecast([LOSES]))) == [
        "before any start: copy the store",
        "VERDICT    STARTS, LOSES DATA: 145 records",
    ]


def test_a_safe_start_has_no_table_and_no_advice() -> None:
    forecast = Forecast([SAFE])
    assert "ends at 217 698: no record is cut off" in shown(forecast)
    assert "lost" not in shown(forecast)
    assert list(verdict_lines(forecast)) == ["VERDICT    STARTS, LOSES NOTHING MORE"]


def test_a_refusal_names_the_file_and_the_remedy() -> None:
    text = shown(Forecast([REFUSES]))
    assert "refuses    index/1x: the name is no number (index_folder)" in text
    assert "remedy     move index/1x out of the store" in text
    assert "clean exit, as asked for" in text
    assert "log  " not in text


def test_releases_that_differ_are_all_shown_and_the_worst_decides() -> None:
    forecast = Forecast([LOSES, SAFE])
    text = shown(forecast)
    assert "broker     5.2.0 to 5.3.3: STARTS, LOSES DATA: 145 records" in text
    assert "broker     5.5.0: STARTS, LOSES NOTHING MORE" in text
    assert list(verdict_lines(forecast)) == [
        "before any start: copy the store",
        "VERDICT    STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records",
    ]


def test_releases_that_differ_in_where_the_scan_begins_are_one_block() -> None:
    other = replace(SAFE, era="5.4.0", scan_start=0)
    text = shown(Forecast([other, SAFE]))
    assert "broker  " not in text
    assert "scan       5.4.0: begins in segment 0\n           5.5.0: begins in segment 196608" in text
    assert text.count("log  ") == 1
    assert list(verdict_lines(Forecast([other, SAFE]))) == ["VERDICT    STARTS, LOSES NOTHING MORE"]


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
        text_of(walk_lines(forecast))
        text_of(era_table(forecast))


def test_what_comes_from_the_store_is_escaped() -> None:
    losses = replace(LOSES.losses, by_topic={"\x1b[31mred": 1})
    text = shown(Forecast([replace(LOSES, losses=losses, notes=["a\x1bb"])]))
    assert "\x1b" not in text
    assert r"\x1b[31mred" in text


def test_better_ways_have_a_line_and_others_are_named() -> None:
    other = replace(LOSES, release="5.0.0", era="4.0.0 to 5.0.0", losses=Losses(254))
    ways = other_ways(LOSES, None, after(Told(SAFE, (other, SAFE))))
    text = shown(Forecast([LOSES], ways))
    assert "  the same broker without the file abort  scan from segment 196608: loses nothing" in text
    assert "  broker 5.5.0                            scan from segment 196608: loses nothing" in text
    assert "  not better: older broker 4.0.0 to 5.0.0 (loses 254 records)" in text
    assert "  no way is better: broker 5.5.0 (will not start)" in shown(Forecast([LOSES], [way(REFUSES)]))


def way(outcome: Outcome) -> Alternative:
    """Return a way that is not better."""
    return Alternative("broker 5.5.0", outcome)


def test_all_versions_are_a_line_each() -> None:
    unknown = replace(REFUSES, era="4.0.0", verdict=Verdict.UNKNOWN, refusal=None, unknown="RocksDB " * 20)
    lines = text_of(era_table(Forecast([unknown, REFUSES, LOSES, SAFE]))).splitlines()
    assert lines[0].endswith("new end   lost   index files deleted   stops because")
    assert [line for line in lines if line.startswith("5.2.0 to 5.3.3   yes")]
    assert [line for line in lines if line.startswith("5.1.4") and line.endswith("index_folder")]
    assert "refuses    index/1x: the name is no number (index_folder)" in lines
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
        Decision("scan", "ends at 5", (("end", 12345),), "CommitLog#recoverNormally"),
        Decision("cut", "x", (), "A#b"),
    ]
    text = text_of(walk_lines(Forecast([replace(LOSES, decisions=steps)])))
    assert text.startswith("walk of 5.3.3 after an unclean exit\n  scan       ends at 5\n")
    assert "from end 12 345 (CommitLog#recoverNormally)" in text
    assert "  cut        x\n             (A#b)" in text


def test_the_best_way_stands_below_the_remedy() -> None:
    best = Alternative(
        "the same broker with abort brought to 100 bytes", SAFE, Remedy(costs=("starts without x",)), True
    )
    assert "best       the same broker with abort brought to 100 bytes: loses nothing; starts without x" in shown(
        Forecast([REFUSES], [best])
    )


def test_a_step_that_two_releases_take_alike_is_told_once() -> None:
    scan, cut, other = (Decision(step, text, (), "A#b") for step, text in (("scan", "a"), ("cut", "b"), ("cut", "c")))
    outcomes = [
        replace(LOSES, release="5.3.1", decisions=[scan, cut]),
        replace(LOSES, release="5.3.3", decisions=[scan, other]),
        replace(LOSES, release="5.5.0", decisions=[scan, cut]),
    ]
    lines = [line.rstrip() for line in walk_lines(Forecast(outcomes))]
    assert [line for line in lines if line.startswith("  ") and "(A#b)" not in line] == [
        "  scan       a",
        "  cut        b",
        "  cut        c",
        "  as 5.3.1   scan",
        "  as 5.3.1   scan, cut",
    ]


def test_copies_are_named_apart_from_what_is_lost() -> None:
    text = shown(Forecast([replace(SAFE, losses=Losses(copies=47))]))
    assert "copies     47 records behind the new end are copies of others: no message is lost by that" in text


def test_segments_that_an_empty_start_leaves_aside_are_not_safe() -> None:
    """As probe_puts of the case stray_ds-4.3.2-c: the first put lies at offset 0, in the segment that is there."""
    empty = replace(SAFE, verdict=Verdict.EMPTY, ignored_files=["commitlog/.DS_Store", f"commitlog/{0:020}"])
    text = shown(Forecast([empty]))
    assert "goes over segment 0: do not start it" in text
    assert "and left" not in text
