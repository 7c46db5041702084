"""The command `groups`: one screen, the rows of its table, and the messages that a group has not consumed."""

import json
from pathlib import Path

import pytest

from rmqinspect.cli import main
from tests.support import oracle
from tests.support.building import record
from tests.support.command import Run, runner
from tests.support.side_tables import units_of, write

run = runner("groups")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Write a topic of two queues with four messages each, and groups at, behind and beyond its ends."""
    root, log = tmp_path / "orders", b""
    for queue_id in range(2):
        units = []
        for number in range(4):
            time = 1_795_250_000_000 + 1000 * number
            raw = record(len(log), topic="T", queue_id=queue_id, queue_offset=number, store_timestamp=time)
            units.append((len(log), len(raw), 0))
            log += raw
        write(root, f"consumequeue/T/{queue_id}/00000000000000000000", units_of(*units))
    write(root, "commitlog/00000000000000000000", log)
    write(root, "consumequeue/%DLQ%dead/0/00000000000000000000", units_of((0, 100, 0)))
    offsets = {"T@busy": {"0": 1, "1": 3}, "T@done": {"0": 4, "1": 4}, "T@P@broadcast-1": {"0": 4}}
    write(root, "config/consumerOffset.json", json.dumps({"offsetTable": offsets}).encode())
    return root


def test_the_screen_says_who_is_behind_and_what_nobody_consumes(run: Run, store: Path) -> None:
    status, screen, _ = run(store)
    lines = screen.splitlines()
    assert status == 0
    assert lines[0].split(";")[0].split(maxsplit=2)[2] == "3 groups with offsets in 2 queues of 1 topic"
    (busy,) = (line.split() for line in lines if line.startswith("busy"))
    assert busy == ["busy", "T", "2", "4", "2026-11-21T08:33:21.000Z", "7", "200"]
    assert "and 2 lines of 2 groups without lag (-v)" in lines
    assert "%DLQ%dead: 1 message" in screen
    assert lines[-2].endswith("--unconsumed busy")
    assert lines[-1].split(maxsplit=1) == ["lag", "4 messages not consumed by 1 group"]
    status, screen, _ = run(store, "-v")
    assert [line.split()[0] for line in screen.splitlines() if " T " in line] == ["busy", "P@broadcast-1", "done"]


def test_filters_choose_groups_topics_and_states(run: Run, store: Path) -> None:
    assert [line.split()[0] for line in run(store, "--group", "d*")[1].splitlines() if " T " in line] == ["done"]
    status, screen, said = run(store, "--group", "nobody*")
    assert (status, "dead" in screen, "no group matches nobody*" in said) == (5, False, True)
    assert run(store, "--group", "dead")[0] == 0  # has dead letters alone
    assert run(store, "-t", "X")[0] == 5
    assert "in 1 queue of" in run(store, "--queue", "1")[1]
    status, rows, _ = run(store, "--status", "behind_min", "-f", "csv", "--columns", "group")
    assert (status, rows.split()) == (0, ["group"])
    status, rows, _ = run(store, "--group", "busy", "-f", "csv", "--columns", "group,queue_id,lag")
    assert rows.split() == ["group,queue_id,lag", "busy,0,3", "busy,1,1"]


def test_offsets_beyond_the_end_are_damage(run: Run, store: Path) -> None:
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{"T@far":{"0":9,"1":2}}}')
    status, screen, _ = run(store)
    assert status == 3
    assert "offsets 5 messages beyond the end of their queue by 1 group" in " ".join(screen.split())
    assert run(store, "--fail-on", "never")[0] == 0


def test_offsets_in_queues_that_are_not_there_are_told(run: Run, store: Path) -> None:
    write(store, "config/topics.json", b'{"topicConfigTable": {"T": {"readQueueNums": 2, "writeQueueNums": 2}}}')
    (store / "consumequeue/T/1/00000000000000000000").unlink()
    (store / "consumequeue/T/1").rmdir()
    status, screen, _ = run(store)
    assert status == 3
    # Such a queue ends at 0: of busy (3) and done (4) all lies beyond it.
    assert "offsets 7 messages beyond the end of their queue by 2 groups" in " ".join(screen.split())
    assert "2 offsets of 2 groups stand in queues that are not there" in screen


@pytest.mark.parametrize(("kept", "unserved"), [("", 4), ("first", 2), ("all", 0)])
def test_a_lag_that_the_log_does_not_hold_is_told(kept: str, unserved: int, run: Run, store: Path) -> None:
    log = store / "commitlog" / ("0" * 20)
    if kept == "first":  # queue 0 lies before queue 1: busy has 3 messages left there, and 1 of queue 1
        whole = log.read_bytes()
        write(store, f"commitlog/{'0' * 20}", whole[: len(whole) // 8 * 3])  # records 0 to 2 of queue 0
    elif not kept:
        log.unlink()
    screen = run(store)[1]
    told = [line.strip() for line in screen.splitlines() if "the log is not here" in line]
    words = f"the log is not here: {unserved} messages of the lag cannot be served"
    assert told == ([words] if unserved else [])


def test_a_long_name_is_cut_where_it_popped(run: Run) -> None:
    _, screen, _ = run(oracle.store("broker", "main-5.3.3"))
    assert "  0 in flight" in screen
    assert all(len(line) <= 100 for line in screen.splitlines() if not line.startswith("next"))


def test_a_broken_file_is_replaced_by_its_copy_and_both_are_told(run: Run, store: Path) -> None:
    offsets = store / "config/consumerOffset.json"
    offsets.rename(offsets.with_suffix(".json.bak"))
    offsets.write_bytes(b'{"offsetTable":{"T@bu')
    status, screen, said = run(store)
    assert status == 0
    assert "not JSON at byte" in said
    assert "config/consumerOffset.json.bak is used instead" in said
    assert "consumed since then comes again, at most 4 messages" in " ".join(screen.split())
    offsets.with_suffix(".json.bak").write_bytes(b"")
    status, screen, said = run(store)
    assert (status, "none: no consumerOffset.json that can be read" in screen) == (4, True)


def test_what_a_group_has_not_consumed_is_printed_as_messages(run: Run, store: Path) -> None:
    status, rows, said = run(store, "--unconsumed", "busy", "-f", "csv", "--columns", "queue_id,queue_offset")
    assert (status, rows.split()[1:]) == (0, ["0,1", "0,2", "0,3", "1,3"])
    assert run(store, "--unconsumed", "busy", "--queue", "1", "-f", "csv")[1].count("\n") == 2
    assert run(store, "--unconsumed", "done", "-f", "csv")[:2] == (
        0,
        run(store, "--unconsumed", "done", "-f", "csv")[1],
    )
    assert run(store, "--unconsumed", "busy", "--group", "x")[0] == 2
    status, _, said = run(store, "--unconsumed", "bsuy")
    assert (status, "near: busy" in said) == (5, True)


def test_without_a_config_folder_there_is_nothing_to_tell(run: Run, store: Path) -> None:
    status, screen, _ = run(store / "commitlog")
    assert (status, "none: no config folder was given" in screen) == (0, True)


def test_several_stores_have_a_screen_each(run: Run, store: Path) -> None:
    popped = oracle.store("broker", "main-5.3.3")
    assert run(popped, popped)[0] == 2  # two of one name
    status, screen, _ = run(popped, store)
    assert (status, screen.count("offsets  ")) == (0, 2)
    assert "popped to the end" in screen
    assert "in flight" in screen


def test_without_queues_no_lag_is_known(run: Run) -> None:
    config = oracle.store("broker", "main-5.3.3") / "config"
    _, screen, _ = run(config)
    assert "lag           not known: no consume queue was given" in screen
    assert "without lag" not in screen and "0 messages" not in screen


@pytest.mark.parametrize("words", ["groups", "groups --unconsumed busy", "transactions", "usage"])
def test_offsets_that_cannot_be_read_are_not_taken_for_none(
    capsys: pytest.CaptureFixture[str], words: str, store: Path
) -> None:
    (store / "config/consumerOffset.json").write_text("[" * 1000)
    command, *rest = words.split()
    assert main([command, str(store), *rest]) == 4
    assert "nested deeper" in capsys.readouterr().err
