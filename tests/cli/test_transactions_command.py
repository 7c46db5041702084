"""`rmqinspect transactions`: what the screen counts and lists, and that other formats have the rows of the table."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from rmqinspect.broker.transactions import STATES
from tests.support import oracle
from tests.support.building import fill, lay, pad, write_segment
from tests.support.command import Run, runner
from tests.support.samples import ROOT
from tests.tables.test_transaction_states import SIZE, commit, half, op, place_of

run = runner()
PAGE = (ROOT / "docs" / "transactions.md").read_text(encoding="utf-8")


def store(name: str) -> str:
    return str(oracle.store("broker", name))


@pytest.mark.parametrize("name", ["main-4.7.1", "halt-5.3.3", "rocksdb-5.4.0"])
def test_the_screen_counts_what_the_producers_saw(name: str, run: Run) -> None:
    told = Counter(row["expected_state"] for row in oracle.truth("broker", name)["transactions"])
    status, out, _ = run("transactions", store(name))
    assert status == 0
    (line,) = re.findall(r"^TPG_1 +\S+ +(.*)$", out, re.MULTILINE)
    assert dict(zip(STATES, map(int, line.split()), strict=True)) == {state: told[state] for state in STATES}
    pending = [
        row["msg_id"] for row in oracle.truth("broker", name)["transactions"] if row["expected_state"] == "pending"
    ]
    assert re.findall(r"TPG_1 +([0-9A-F]{32})", out) == pending  # in the order in which they were sent


def test_the_page_shows_what_the_command_prints(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    command, printed = block.split("\n", 1)
    monkeypatch.chdir(Path(store("halt-5.3.3")).parent)
    assert run(*command.split()[2:]) == (0, printed, "")


def test_other_formats_have_the_rows_of_the_table(run: Run) -> None:
    name = store("halt-5.3.3")
    chosen = ("--state", "pending", "--state", "given_up")
    rows = json.loads(run("transactions", name, "-f", "json", *chosen)[1])["rows"]
    decoded = json.loads(run("decode", name, "--table", "transactions", "-f", "json")[1])["rows"]
    assert rows == [row for row in decoded if row["state"] == "pending"]
    assert run("transactions", name, "--columns", "state", "-n", "1")[1].split() == ["state", "rolled_back"]


def test_filters_choose_by_real_topic_and_by_the_time_of_the_newest_copy(tmp_path: Path, run: Run) -> None:
    late = half("B", 1, checks=1) | {"store_timestamp": 1716193900000}
    late["properties"] |= {"REAL_TOPIC": "Bills"}
    write_segment(tmp_path / "commitlog", pad(lay([half("A"), late]), SIZE))

    def listed(*words: str) -> list[str]:
        return re.findall(r" g +([AB]) ", run("transactions", tmp_path, *words)[1])

    assert listed() == ["A", "B"]
    assert listed("-n", "1") == ["A"]
    assert listed("-t", "B*") == listed("--since", "1716193900000") == ["B"]
    assert listed("--until", "1716193900000") == ["A"]
    assert listed("--state", "committed") == []
    assert run("transactions", tmp_path, "-t", "bill")[0] == 5
    assert "near: Bills" in run("transactions", tmp_path, "-t", "bill")[2]
    assert run("transactions", tmp_path, "--since", "yesterday")[0] == 2


def test_a_store_without_half_messages_says_so(run: Run) -> None:
    assert run("transactions", store("ext-4.9.7"))[:2] == (
        0,
        "transactions  no half messages (1 segment, 131 072 bytes)\n",
    )


def test_two_stores_have_a_screen_each(tmp_path: Path, run: Run) -> None:
    for name, key in (("one", "A"), ("two", "B")):
        write_segment(tmp_path / name / "commitlog", pad(lay([half(key)]), SIZE))
    out = run("transactions", tmp_path / "one", tmp_path / "two")[1]
    assert re.findall(r"^store +(\w+)|^ +0 .* ([AB]) ", out, re.MULTILINE) == [
        *(("one", ""), ("", "A")),
        *(("two", ""), ("", "B")),
    ]
    (tmp_path / "other").mkdir()
    (tmp_path / "two").rename(tmp_path / "other" / "one")
    out = run("transactions", tmp_path / "one", tmp_path / "other" / "one")[1]
    assert re.findall(r"^store +(\S+)", out, re.MULTILINE) == [f"{tmp_path.name}/one", "other/one"]


def test_lost_records_end_the_command_with_the_status_of_damage(tmp_path: Path, run: Run) -> None:
    pieces = [half("A", 0), half("B", 1)]
    pieces += [commit(place_of(pieces, 1), "B"), op(b"1,")]
    write_segment(tmp_path / "commitlog", fill(lay(pieces), SIZE))
    write_segment(tmp_path / "commitlog", pad(lay([op(b"0,"), half("C", 2)], 2 * SIZE), SIZE), 2 * SIZE)
    status, out, err = run("transactions", tmp_path)
    assert status == 3
    assert "3 half messages: 1 pending, 1 committed, 1 rolled back" in out
    assert "1: op present, commit not found" in out
    assert "1 gap in the log: " in err
    assert run("transactions", tmp_path, "--fail-on", "never")[0] == 0


def test_settings_of_a_broker_conf_say_when_a_message_is_given_up(tmp_path: Path, run: Run) -> None:
    write_segment(tmp_path / "store" / "commitlog", pad(lay([half("A", 0, checks=4)]), SIZE))
    conf = tmp_path / "broker.conf"
    conf.write_text("transactionCheckMax=4\n")
    assert "asked about again" in run("transactions", tmp_path / "store")[1]
    assert "given up at the next check: checked 4 times" in run("transactions", tmp_path / "store", "--config", conf)[1]


def test_many_producer_groups_are_folded(tmp_path: Path, run: Run) -> None:
    pieces = []
    for number in range(15):
        one = half(f"K{number}", number)
        one["properties"] |= {"PGROUP": f"group{number:02}"}
        pieces.append(one)
    write_segment(tmp_path / "commitlog", pad(lay(pieces), SIZE))
    assert "5 more: -v shows all" in run("transactions", tmp_path, "-n", "0")[1]
    assert run("transactions", tmp_path, "-n", "0", "-v")[1].count("group") == 1 + 15  # with the heading
