"""docs/runbook.md: its commands run one after the other, and its recipe chooses what real brokers' stores hold."""

import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqinspect.cli import ExitStatus, main
from rmqinspect.topics import HALF_TOPIC
from tests.support import oracle
from tests.support.samples import ROOT, sample

TEXT = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
DELAYED = ("delay", "timer")
KEPT = {"__SHARDINGKEY"}  # the producer chose it: the order of messages


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def recipe() -> dict[str, Any]:
    """The functions of the page."""
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "docs/runbook.md", "exec"), names)
    return names


def test_every_command_runs_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sample("flipped-bit-5.3.3"), "STORE")
    Path("REPLICA").symlink_to(oracle.store("crash", "base-5.3.3-halt"))
    sizes = oracle.case("crash", "flip_body_third-5.3.3-h")["settings"]
    Path("broker.conf").write_text("".join(f"{name}={value}\n" for name, value in sizes.items()))
    Path("store.log").write_text("2026-11-21 08:48:41 INFO main - load over, and the max phy offset = 97187\n")
    done = Counter[str]()
    for line in "".join(blocks("sh")).splitlines():
        program, *words = line.split()
        done[program] += 1
        if program == "rmqinspect":
            status = main(words)
            assert status in (ExitStatus.DONE, ExitStatus.DAMAGE), (line, capsys.readouterr().err)
        elif program in ("cp", "bash"):
            subprocess.run([program, *words], check=True, capture_output=True)
        else:  # the start itself
            assert line.endswith("bash start.sh 1")
    assert done["rmqinspect"] >= 10
    assert pq.read_table("lost.parquet").num_rows == 145


def test_the_commands_between_the_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"COPY": str(oracle.store("broker", "main-5.3.3")), "OFFSET": "0"}
    values["GROUP"] = oracle.truth("broker", "main-5.3.3")["groups"][0]["group"]
    found = re.findall(r"`rmqinspect ([^`]+)`", TEXT)
    assert found
    for line in found:
        assert main([values.get(word, word) for word in line.split()]) in (ExitStatus.DONE, ExitStatus.DAMAGE), line


def test_the_recipe_knows_every_property_of_clients_and_brokers(recipe: dict[str, Any]) -> None:
    names = tomllib.loads((ROOT / "rmqinspect" / "explain" / "names.toml").read_text(encoding="utf-8"))
    known = names["property"].keys()
    assert known - KEPT <= recipe["OWN_PROPERTIES"]


def test_the_recipe_sends_what_consumers_could_get(recipe: dict[str, Any], tmp_path: Path) -> None:
    """Of a store of a real broker with all kinds of messages, as if all of it were lost."""
    root, file = oracle.store("broker", "main-5.3.3"), tmp_path / "all.parquet"
    main(["decode", str(root), "-o", str(file), "-q"])
    sends, others = recipe["sorted_out"](file)
    rows = pq.read_table(file).to_pylist()
    assert len(sends) + len(others) == len(rows)
    assert not any(send["topic"].startswith(("RMQ_SYS", "rmq_sys", "SCHEDULE", "%DLQ%")) for send in sends)
    ids = Counter(send["properties"]["LOST_MSG_ID"] for send in sends if not send["topic"].startswith("%RETRY%"))
    whole = {row["msg_id"] for row in rows if row["transaction"] == "commit"}
    halves = {row["msg_id"] for row in rows if row["topic"] == HALF_TOPIC} - whole
    assert whole and halves and whole <= ids.keys() and halves.isdisjoint(ids)
    assert all(ids[one] == 1 for one in whole)
    delivered = [one["msg_id"] for one in oracle.truth("broker", "main-5.3.3")["sent"] if one["kind"] in DELAYED]
    assert delivered and all(ids[one] <= 1 for one in delivered)
    assert Counter(reason for _, reason in others).keys() >= {"half: ask the producer", "delayed, and delivered"}
    text = next(send for send in sends if send["body"] and send["tags"] and send["body"].isascii())
    command = recipe["as_mqadmin"](text, "localhost:9876")
    assert command.startswith(f"mqadmin sendMessage -n localhost:9876 -t {text['topic']} -p ")
