"""The command `delays`: its screen, its filters and its exit status."""

import json
import re
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()
MAIN = str(oracle.store("broker", "main-5.3.3"))


def states_of(run: Run, *words: str) -> list[tuple[str, str]]:
    status, text, _ = run("delays", MAIN, "-f", "jsonl", "--columns", "real_topic,state", "-j", "1", *words)
    assert status == 0
    return [(row["real_topic"], row["state"]) for row in map(json.loads, text.splitlines())]


def test_filters_choose_rows(run: Run) -> None:
    rows = states_of(run)
    assert len(rows) == 81
    assert states_of(run, "--state", "cancelled", "--state", "delete_mark") == [
        row for row in rows if row[1] in ("cancelled", "delete_mark")
    ]
    assert states_of(run, "-t", "Voucher*") == [row for row in rows if row[0] == "VoucherTimer"]
    assert states_of(run, "--no-system-topics") == [row for row in rows if not row[0].startswith("rmq_sys_")]
    assert {state for _, state in states_of(run, "--pending")} == {"pending"}
    assert len(states_of(run, "-n", "3")) == 3
    assert states_of(run, "--since", "2026-11-21T09:00Z", "--no-system-topics") == [
        ("InvoiceLater", "pending"), ("InvoiceLater", "pending"), *[("VoucherTimer", "pending")] * 3,
    ]  # fmt: skip


def test_the_time_given_decides_what_is_overdue(run: Run) -> None:
    rows = states_of(run, "--pending", "--at", "2026-11-21T09:30Z", "-t", "VoucherTimer")
    assert sorted(state for _, state in rows) == ["overdue", "pending", "pending"]
    status, _, errors = run("delays", MAIN, "--at", "soon")
    assert status == 2
    assert "--at" in errors


def test_the_screen_counts_what_the_rows_are(run: Run) -> None:
    rows = states_of(run, "--no-system-topics")
    status, screen, _ = run("delays", MAIN, "-j", "1")
    assert status == 0
    assert f"{len(rows)} delayed messages" in screen
    assert "not counted: 54 messages to topics of the broker" in screen
    assert re.search(r"timer +pending 3, delivered 5, cancelled 2", screen)
    assert f"{len(states_of(run))} delayed messages" in run("delays", MAIN, "-j", "1", "--system-topics")[1]


def test_two_stores_have_two_screens(run: Run, tmp_path: Path) -> None:
    other = oracle.copy("broker", "main-4.7.1", tmp_path)
    other.rename(tmp_path / "other")
    status, screen, _ = run("delays", MAIN, tmp_path / "other", "--pending")
    assert status == 0
    assert screen.count("that wait") == 2


@pytest.mark.parametrize(("options", "status"), [((), 3), (("--fail-on", "never"), 0), (("--pending",), 0)])
def test_gaps_in_the_log_end_with_a_status(run: Run, options: tuple[str, ...], status: int) -> None:
    store = sample("zeroed-page-4.7.1")
    assert run("delays", store, "-j", "1", *options)[0] == status
    assert run("delays", store, "-j", "1", "-f", "csv", *options)[0] == status


def test_lost_messages_are_shown_with_their_reason(run: Run, tmp_path: Path) -> None:
    store = oracle.copy("broker", "main-5.3.3", tmp_path)
    (log,) = (store / "timerlog").iterdir()
    log.unlink()
    _, screen, _ = run("delays", store, "-j", "1")
    assert "lost: the broker has passed it, and the log holds no delivered copy" in screen
    assert f"rmqinspect delays {store} --state lost -f jsonl" in screen
    assert re.match(r"total .* lost \d", screen.splitlines()[-1])


def test_queues_alone_tell_what_waits(run: Run) -> None:
    """A folder of queues alone: the records of what waits are not there, so nothing is called lost."""
    status, screen, _ = run("delays", f"{MAIN}/consumequeue", "--pending")
    assert status == 0
    assert "nothing tells the last activity" in screen
    assert "14 delayed messages that wait" in screen
    assert "its record is gone" not in screen


@pytest.mark.parametrize(("part", "words"), [
    ("commitlog", "81 delayed messages of the log, whose queues were not read"),
    ("consumequeue", "no commit log was given"),
])  # fmt: skip
def test_a_part_of_a_store_is_not_taken_for_all_of_it(run: Run, part: str, words: str) -> None:
    status, screen, _ = run("delays", f"{MAIN}/{part}", "-j", "1")
    assert status == 0 and words in " ".join(screen.split())
    assert " in 49" not in screen  # hours since 1970
    if part == "commitlog":
        assert words in run("decode", f"{MAIN}/{part}", "--table", "delays", "-j", "1")[2]
        assert "no consume queue was given" in run("delays", f"{MAIN}/{part}", "--pending")[1]


def test_messages_in_no_queue_are_told(run: Run) -> None:
    _, screen, _ = run("delays", oracle.store("crash", "cq_tail_zero_all-5.3.3-c"), "-j", "1")
    assert "3 delayed messages of the log in no queue" in screen
    assert "not known" not in run("delays", MAIN, "-j", "1")[1]


def test_a_topic_that_is_not_there_is_told_with_near_names(run: Run) -> None:
    for more in ((), ("-f", "jsonl")):
        status, _, told = run("delays", MAIN, "-t", "InvoiceLate", "-j", "1", *more)
        assert status == 5 and "no topic matches InvoiceLate; near: InvoiceLater" in told
