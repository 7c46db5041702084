"""What another store has of the records that a start gives up, and the command that lists what it has not."""

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from rmqinspect.cli import ExitStatus
from rmqinspect.forecast.lost_records import lost_at_start
from rmqinspect.forecast.outcome import InReplica
from rmqinspect.forecast.replica import compare_lost
from rmqinspect.store.discover import open_store
from rmqinspect.tables.lost_records import AskedStart, LostRecords
from tests.broker.damages import flip_bit
from tests.support import oracle
from tests.support.building import lay, pad, write_segment
from tests.support.command import Run, runner

run = runner()
DAMAGED, WHOLE = "flip_body_third-5.3.3-h", "base-5.3.3-halt"
LOST = [put for put in oracle.puts(WHOLE) if put["status"] == "PUT_OK" and put["phys"] >= 97187]


def compared(replica: Path) -> tuple[InReplica, LostRecords]:
    store = open_store([str(oracle.store("crash", DAMAGED))])
    lost = lost_at_start(store, AskedStart("5.3.3")).records
    return compare_lost(store, lost, open_store([str(replica)]), jobs=2)


def test_a_replica_with_the_same_log_has_all_of_it_the_damaged_record_too() -> None:
    found, missing = compared(oracle.store("crash", WHOLE))
    assert (found.there, found.missing, found.by_id, found.unread) == (145, 0, 0, [])
    assert not missing.mask(missing.elsewhere).any()


def test_what_is_damaged_in_the_replica_or_behind_its_end_is_not_there(tmp_path: Path) -> None:
    replica = oracle.copy("crash", WHOLE, tmp_path)
    (replica / "commitlog" / f"{196608:020}").unlink()
    flip_bit(replica, segment=-2, record=5, byte=120, bit=3)
    found, _ = compared(replica)
    behind = Counter[str]()
    for put in LOST:
        behind[put["topic"]] += len(put.get("items", [put])) * (put["phys"] >= 196608)
    assert found.missing == behind.total() + 1
    assert found.there + found.missing == 145
    assert (found.missing_by_topic - behind).total() == 1


def test_the_command_lists_what_the_other_store_has_not(run: Run, tmp_path: Path) -> None:
    replica = oracle.copy("crash", WHOLE, tmp_path)
    (replica / "commitlog" / f"{196608:020}").unlink()
    words = ("forecast", oracle.store("crash", DAMAGED), "--replica", replica)
    _, screen, _ = run(*words)
    told: dict[str, Any] = json.loads(run(*words, "-f", "json")[1])["replica"]
    assert f"has {told['there_messages']} of the 145 lost records" in " ".join(screen.split())
    (line,) = (line for line in screen.splitlines() if line.startswith("list them"))
    assert line.removeprefix("list them").strip() == told["list"]
    program, *listing = shlex.split(told["list"])
    status, rows, remarks = run(*listing)
    assert (program, status) == ("rmqinspect", ExitStatus.DONE)
    assert f"not in {replica}: {told['missing_messages']}" in remarks
    assert Counter(json.loads(row)["topic"] for row in rows.splitlines()) == told["missing_by_topic"]


def test_a_start_that_loses_nothing_is_not_compared(run: Run, tmp_path: Path) -> None:
    whole = oracle.store("crash", WHOLE)
    status, text, _ = run("forecast", whole, "--replica", whole, "-f", "json")
    assert (status, json.loads(text)["replica"]) == (ExitStatus.DONE, None)
    assert run("forecast", whole, "--replica", tmp_path)[0] in (ExitStatus.DONE, ExitStatus.UNREADABLE)
    assert run("forecast", whole, "--replica", whole, "--script")[0] == ExitStatus.USAGE


def test_a_message_of_a_replica_that_went_its_own_way_is_found_by_its_id(tmp_path: Path) -> None:
    sent = [{"topic": "T", "properties": {"UNIQ_KEY": f"id{number}"}} for number in range(10)]
    # Its own message stands between; one of ours has another topic there, and one its body damaged.
    own = {"topic": "T", "properties": {"UNIQ_KEY": "own"}}
    other = [*sent[:4], own, *sent[4:7], {**sent[7], "topic": "U"}, sent[8]]
    write_segment(tmp_path / "a" / "commitlog", pad(lay(sent), 4096))
    log = lay(other)
    body = log.rindex(b"Hello RocketMQ")
    write_segment(tmp_path / "b" / "commitlog", pad(log[:body] + b"J" + log[body + 1 :], 4096))
    store, replica = (open_store([str(tmp_path / name)]) for name in "ab")
    end = len(lay(sent[:2]))
    found, missing = compare_lost(store, LostRecords(end, ((end, True),)), replica)
    assert (found.there, found.by_id, found.missing) == (5, 3, 3)
    places = np.array([len(lay(sent[:number])) for number in range(10)])
    assert places[missing.mask(places)].tolist() == places[7:].tolist()
