"""`rmqinspect usage`: its screen, its rows, and what it says of a sample."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.schemas.message import HEADS
from rmqinspect.schemas.places import place_of
from rmqinspect.tables.request import Request
from rmqinspect.tables.usage import USAGE, read_usage, usage_batches
from tests.support import oracle
from tests.support.building import lay, record, write_segment
from tests.support.command import Run, runner
from tests.support.samples import sample
from tests.support.side_tables import broker, rows

run = runner(after=["-j", "1"])
STORE = str(sample("healthy-4.9.7"))
OFFSET_AT = place_of(HEADS[False, False], "physical_offset")
LABELS = ("topic", "tag", "host", "inflow")


def found(run: Run, *words: str, status: int = 0) -> list[dict[str, Any]]:
    """Return the rows that a command prints."""
    code, out, _ = run(*words, "-f", "json")
    assert code == status
    printed: list[dict[str, Any]] = json.loads(out)["rows"]
    return printed


def test_rows_are_those_of_the_table(run: Run, tmp_path: Path) -> None:
    name = "main-5.3.3"
    write_segment(tmp_path / "b" / "commitlog", lay([record()]))
    store = str(oracle.store("broker", name))
    expected = [(row["dimension"], row["value"], row["bytes"]) for row in rows(USAGE, broker(name))]
    assert [(row["dimension"], row["value"], row["bytes"]) for row in found(run, "usage", store)] == expected
    assert {row["store"] for row in found(run, "usage", store, str(tmp_path / "b"))} == {"store", "b"}


def test_a_limit_leaves_the_sums_as_they_are(run: Run) -> None:
    all_rows, few = found(run, "usage", STORE), found(run, "usage", STORE, "-n", "1")
    for dimension in ("kind", "topic", "queue", "tag", "host"):
        sums = [sum(row["bytes"] for row in some if row["dimension"] == dimension) for some in (all_rows, few)]
        assert sums[0] == sums[1]
        covers = [row["covers"] for row in few if row["dimension"] == dimension]
        assert covers in (["value", "others"], ["none", "others"], ["value"])


def test_filters_choose_what_decode_chooses(run: Run) -> None:
    for filters in (["-t", "orders"], ["-t", "T*", "--queue", "1"], ["--no-system-topics"], ["--since", "last-1s"]):
        records = found(run, "decode", STORE, *filters, "--columns", "size")
        content = {row["value"]: row for row in found(run, "usage", STORE, *filters, "--by", "content")}
        assert content["records"]["records"] == len(records) > 0
        assert content["records"]["bytes"] == sum(row["size"] for row in records)


def test_a_screen_has_each_dimension_and_escapes_values(run: Run, tmp_path: Path) -> None:
    evil = record(topic=b"t\x1b[31m", properties={"TAGS": "\x1b]0;x\x07" + "y" * 99})
    write_segment(tmp_path / "commitlog", lay([evil]))
    _, screen, _ = run("usage", str(tmp_path))
    assert "\x1b" not in screen and "t\\x1b[31m" in screen
    lines = run("usage", STORE)[1].splitlines()
    labels = ["store", "content", "kind", *LABELS, "retention", "unconsumed", "next", "total"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == labels


def test_a_screen_fits_a_terminal_and_counts_what_it_leaves_out(run: Run) -> None:
    store = oracle.store("broker", "main-5.3.3")
    lines = run("usage", store)[1].splitlines()
    topics = {row["value"] for row in found(run, "usage", str(store), "--by", "topic")}
    assert len(lines) <= 40
    assert any(line.split()[:2] == [str(len(topics) - 5), "others"] for line in lines)
    *_, last, total = run("usage", store, "--by", "queue,size,segment", "-n", "100")[1].splitlines()
    assert total.startswith("total  ")
    assert "others" not in last and "next" not in last


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((STORE, "--by", "colour"), 2, "no dimension 'colour'"),
        ((STORE, "--retention", "soon"), 2, "not a number of hours"),
        ((STORE, "--retention", "nan"), 2, "not a retention"),
        ((STORE, "--sample", "much"), 2, "is not a size"),
        ((STORE, "-t", "order"), 5, "near: orders"),
        ((str(sample("flipped-bit-5.3.3")),), 0, ""),
    ],
)
def test_what_is_wrong_is_said(run: Run, arguments: tuple[str, ...], status: int, words: str) -> None:
    code, _, told = run("usage", *arguments)
    assert code == status and words in told


def test_lost_records_end_with_status_3(run: Run) -> None:
    store = oracle.store("crash", "magic_third-5.5.0-h")
    code, _, told = run("usage", store)
    assert code == 3 and "gap" in told
    assert run("usage", store, "--fail-on", "never")[0] == 0


def test_a_sample_estimates_the_sums(run: Run, tmp_path: Path) -> None:
    big, small = record(topic="big", body=bytes(4000)), record(topic="small", body=bytes(400))
    log = bytearray()
    for number in range(4000):
        raw = bytearray(big if number % 3 else small)
        raw[OFFSET_AT : OFFSET_AT + 8] = len(log).to_bytes(8, "big")
        log += raw
    write_segment(tmp_path / "commitlog", bytes(log))
    exact = {row["value"]: row for row in found(run, "usage", str(tmp_path), "--by", "topic")}
    estimated = {row["value"]: row for row in found(run, "usage", str(tmp_path), "--by", "topic", "--sample", "4MiB")}
    for topic, row in exact.items():
        guess = estimated[topic]
        assert row["bytes_error"] is None and guess["bytes_error"] is not None
        assert abs(guess["bytes"] - row["bytes"]) <= guess["bytes_error"] + 0.02 * row["bytes"]
        assert abs(guess["messages"] - row["messages"]) < 0.05 * row["messages"]
    assert "estimates" in run("usage", str(tmp_path), "--sample", "4MiB")[1]
    _, screen, told = run("usage", STORE, "--sample")
    assert "exact" in told and "±" not in screen


def test_retentions_say_what_they_free(run: Run) -> None:
    store = str(oracle.store("broker", "main-5.3.3"))
    _, screen, _ = run("usage", store, "--retention", "0.001h", "--retention", "3d")
    assert "0.001 h: frees 393.2 kB, 3 of 4 segments" in screen
    assert "lost to g_half_1 91 messages" in screen
    assert "72 h: frees nothing" in screen
    oldest = "lies in commitlog/00000000000000000000 (g_half_1: LedgerOld queue 0 offset 1)"
    assert oldest in " ".join(screen.split())


def test_hidden_tags_stay_hidden_on_the_screen(run: Run) -> None:
    usage = read_usage(broker("main-5.3.3"), Request())
    hosts = [row["value"] for batch in usage_batches(usage, by=("host",)) for row in batch.to_pylist()]
    _, screen, _ = run("usage", oracle.store("broker", "main-5.3.3"), "--redact", "tags,hosts")
    assert "(hidden)" in screen and "TagA" not in screen and not any(host in screen for host in hosts)


@pytest.mark.parametrize("width", [66, 80])
def test_bars_give_way_on_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("rmqinspect.cli.usage.line_width", lambda: width)
    lines = run("usage", oracle.store("broker", "main-5.3.3"), "--by", "content,kind,topic,tag,host")[1].splitlines()
    assert max(len(line) for line in lines if " % " in line) <= width
