"""The screens of `forecast`, on outcomes made by hand: what is said, what is folded, what fits."""

import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from rmqinspect.cli.forecast_explain import walk_lines
from rmqinspect.cli.forecast_screen import SHORT_REASONS, Look, era_table, screen, verdict_lines
from rmqinspect.cli.forecast_script import script
from rmqinspect.errors import BadOption
from rmqinspect.forecast.check import REASONS
from rmqinspect.forecast.instead import Tell, other_ways
from rmqinspect.forecast.outcome import (
    Alternative,
    Decision,
    Forecast,
    GroupBeyond,
    Losses,
    Outcome,
    QueueOutcome,
    Verdict,
)
from rmqinspect.store.discover import open_store
from tests.support.outcomes import LOSES, REFUSES, SAFE, told_of
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
    assert "end 217 698 becomes 97 187; segment 131072 is deleted" in text
    assert "next queue offsets are given out a second time in 1 queue (31 offsets)" in text
    assert "billing in TopicA queue 0: 51, the maximum becomes 20" in text
    assert "  TopicA       145   119 633" in text
    assert "144 of the 145 are intact on disk now" in text
    (line,) = verdict_lines(Forecast([LOSES]))
    assert line == "VERDICT    STARTS, LOSES DATA: 145 records. Copy the store before you start anything."


def test_a_safe_start_has_no_table_and_no_advice() -> None:
    forecast = Forecast([SAFE])
    assert "ends at 217 698: no record is cut off" in shown(forecast)
    assert "lost" not in shown(forecast)
    assert list(verdict_lines(forecast)) == ["VERDICT    SAFE TO START"]


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
    assert "broker     5.5.0: SAFE TO START" in text
    assert list(verdict_lines(forecast)) == [
        "first      Copy the store before you start anything.",
        "VERDICT    STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records",
    ]


def test_releases_that_differ_in_where_the_scan_begins_are_one_block() -> None:
    other = replace(SAFE, era="5.4.0", scan_start=0)
    text = shown(Forecast([other, SAFE]))
    assert "broker  " not in text
    assert "scan       5.4.0: begins in segment 0\n           5.5.0: begins in segment 196608" in text
    assert text.count("log  ") == 1
    assert list(verdict_lines(Forecast([other, SAFE]))) == ["VERDICT    SAFE TO START"]


def test_thousands_fold() -> None:
    names = [f"topic-{number:04}-{'x' * 200}" for number in range(3000)]
    queues = [QueueOutcome(name, 0, 0, 9, 0, 5, cut=4, given_twice=4) for name in names]
    ones = dict.fromkeys(names, 1)
    losses = Losses(3000, 10**12, 3000, 12000, 3000, 0, 0, ones, ones, ones, ones)
    groups = [GroupBeyond(f"group {number}", name, 0, 9, 5) for number, name in enumerate(names)]
    bases = [number << 30 for number in range(2000)]
    outcome = replace(LOSES, losses=losses, queues=queues, groups_beyond=groups, deleted_segments=bases)
    text = shown(Forecast([outcome]), Look(UTC, queues=True))
    assert "2990 more topics" in text
    assert "2 980 more queues (-f json lists all)" in text
    assert "and 1 994 more are deleted" in text
    assert "and 2 994 more (-f json lists all)" in text
    assert len(text.splitlines()) < 80


def test_what_comes_from_the_store_is_escaped() -> None:
    losses = replace(LOSES.losses, by_topic={"\x1b[31mred": 1})
    text = shown(Forecast([replace(LOSES, losses=losses, notes=["a\x1bb"])]))
    assert "\x1b" not in text
    assert r"\x1b[31mred" in text


def test_better_ways_have_a_line_and_others_are_named() -> None:
    other = replace(LOSES, release="5.0.0", era="4.0.0 to 5.0.0", losses=Losses(254))
    ways = other_ways(LOSES, told_of(SAFE), lambda: [other, SAFE], told_of_nothing)
    text = shown(Forecast([LOSES], ways))
    assert "  the same broker without the file abort  scan from segment 196608: loses nothing" in text
    assert "  broker 5.5.0                            scan from segment 196608: loses nothing" in text
    assert "  not better: older broker 4.0.0 to 5.0.0 (loses 254 records)" in text
    assert "  no way is better: broker 5.5.0 (will not start)" in shown(Forecast([LOSES], [way(REFUSES)]))


def told_of_nothing(_: object) -> Tell:
    """Stand for a walk that nobody asks for."""
    raise AssertionError


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


# --- the script -----------------------------------------------------------------------------------------


@pytest.fixture
def laid(tmp_path: Path) -> Path:
    """A store in a folder whose name a shell would take apart."""
    root = tmp_path / "a store; 'of' $HOME"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(bytes(1024))
    (root / "abort").touch()
    (root / "index").mkdir()
    (root / "index" / "1x").touch()
    return root


def test_the_script_copies_first_and_prepares_each_better_way(laid: Path, tmp_path: Path) -> None:
    ways = other_ways(REFUSES, told_of(SAFE), lambda: [SAFE], lambda _: told_of(SAFE))
    text = script(Forecast([REFUSES], ways), open_store([str(laid)]))
    broker = tmp_path / "home" / "bin" / "mqbroker"
    broker.parent.mkdir(parents=True)
    broker.write_text('#!/bin/sh\necho started "$@"\n')
    broker.chmod(0o755)
    file = tmp_path / "start.sh"
    file.write_text(text)

    def run(*words: str) -> str:
        environment = {"PATH": "/usr/bin:/bin", "ROCKETMQ_HOME": str(tmp_path / "home"), "BROKER_CONF": "b.conf"}
        return subprocess.run(
            ["bash", file, *words], env=environment, capture_output=True, check=True, text=True
        ).stdout

    assert "with index/1x moved out of the store: SAFE TO START" in run()
    assert sorted(path.name for path in laid.iterdir()) == ["abort", "commitlog", "index"]
    number = next(line[0] for line in run().splitlines() if "1x" in line)
    assert run(number) == "started -c b.conf\n"
    copy = laid.with_name(laid.name + ".before-start")
    assert (copy / "index" / "1x").exists()
    assert not (laid / "index" / "1x").exists()
    assert subprocess.run(["bash", file, "copy"], capture_output=True, check=False).returncode == 1


def test_the_script_offers_no_way_that_is_not_better(laid: Path) -> None:
    store = open_store([str(laid)])
    worse = Alternative("broker 4.0.0", replace(LOSES, losses=Losses(999)))
    text = script(Forecast([LOSES], [worse]), store)
    assert "4.0.0" not in text
    assert "1     start it as it is: STARTS, LOSES DATA: 145 records, with 5.2.0 to 5.3.3" in text
    assert f"store={shlex.quote(str(laid))}" in text
    with pytest.raises(BadOption, match="one folder"):
        script(Forecast([LOSES]), open_store([str(laid / "commitlog")]))
