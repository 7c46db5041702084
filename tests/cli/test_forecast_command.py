"""The command `forecast` as a user meets it: formats, options, exit statuses, and what is no store."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqinspect.errors import Unreadable
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.locks import HOLD, OPEN, other_process
from tests.support.samples import ROOT, sample

forecast = runner("forecast", after=("-j", "1"))
salvage = runner("salvage", after=("-j", "1"))

FLIPPED, HEALTHY = sample("flipped-bit-5.3.3"), sample("healthy-4.9.7")


def test_the_exit_status_is_the_verdict(forecast: Run) -> None:
    assert forecast(HEALTHY, "-q") == (0, "", "")
    assert forecast(FLIPPED, "-q") == (3, "", "")
    assert forecast(oracle.store("crash", "size_huge_third-4.7.1-c"), "-q") == (3, "", "")
    assert forecast(FLIPPED / "commitlog", "-q") == (4, "", "")


def test_the_document_says_the_same_as_the_screen(forecast: Run) -> None:
    status, out, _ = forecast(FLIPPED, "-f", "json", "--broker-version", "5.3.3")
    told = json.loads(out)
    assert (status, told["verdict"], told["lost_messages"]) == (3, "STARTS, LOSES DATA", 145)
    assert told["rejected"]["physical_offset"] == told["end_offset"] == 97187
    assert "versions" not in told
    assert len(set(told["deleted_files"])) == len(told["deleted_files"])
    assert sum(told["lost_by_topic"].values()) == 145
    assert "VERDICT    STARTS, LOSES DATA: 145 records" in forecast(FLIPPED, "--broker-version", "5.3.3")[1]
    _, out, _ = forecast(FLIPPED, "-f", "json", "--all-versions")
    assert {one["lost_messages"] for one in json.loads(out)["versions"]} == {254, 145, 0}


def test_the_exit_and_the_version_can_be_given(forecast: Run) -> None:
    assert forecast(FLIPPED, "--exit", "clean")[0] == 0
    assert forecast(FLIPPED, "--broker-version", "5.5.0")[0] == 0
    status, _, errors = forecast(FLIPPED, "--broker-version", "3.2.6")
    assert (status, "3.2.6" in errors) == (2, True)


def test_times_are_in_the_zone_that_was_asked_for(forecast: Run) -> None:
    _, out, _ = forecast(FLIPPED, "--tz", "Asia/Shanghai")
    assert "2026-11-21T16:48:41.617+08:00" in out


def test_settings_come_from_broker_conf(forecast: Run, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\ncheckCRCOnRecover=false\nmappedFileSizeConsumeQueue=400\n")
    status, out, _ = forecast(FLIPPED, "--config", conf)
    assert (status, "no broker.conf" in out) == (0, False)
    conf.write_text("mappedFileSizeCommitLog=1048576\n")
    assert "WILL NOT START" in forecast(FLIPPED, "--config", conf)[1]


@pytest.mark.parametrize(
    "words",
    [
        ("--all-versions", "--broker-version", "5.3.3"),
        ("--script", "-f", "json"),
        ("--script", "--explain"),
        ("--exit", "soon"),
    ],
    ids=" ".join,
)
def test_options_that_contradict_each_other_are_wrong_usage(words: tuple[str, ...], forecast: Run) -> None:
    assert forecast(HEALTHY, *words)[0] == 2


def test_what_is_no_store_is_told(forecast: Run, tmp_path: Path) -> None:
    assert forecast(tmp_path / "missing")[0] == 4
    assert "an empty directory" in forecast(tmp_path)[2]
    for part in ("commitlog", "consumequeue", "checkpoint", "commitlog/" + "0" * 20):
        status, out, _ = forecast(FLIPPED / part)
        assert (status, out.splitlines()[-1].startswith("VERDICT    CANNOT TELL")) == (4, True)
        assert "checkpoint" in out
        told = json.loads(forecast(FLIPPED / part, "-f", "json")[1])
        assert (told["complete"], told["lost_units"], told["lost_bytes"]) == (False, None, None)
        assert (told["verdict"], told["starts"], told["lost_messages"]) == ("CANNOT TELL", None, None)


def test_a_log_that_is_elsewhere_is_asked_for(forecast: Run) -> None:
    root = oracle.store("crash", "log_dir_lost-5.3.3-c")
    assert "if it lies in another folder (storePathCommitLog)" in " ".join(forecast(root)[1].split())


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A healthy store, with the file that its broker locks."""
    store = shutil.copytree(HEALTHY, tmp_path / "used")
    (store / "lock").write_text("lock")
    return store


def test_a_running_broker_is_the_verdict(forecast: Run, used: Path) -> None:
    with other_process(HOLD, used / "lock") as pid:
        status, out, errors = forecast(used)
        assert forecast(used, "-q", "--exit", "clean") == (4, "", "")
        told = json.loads(forecast(used, "-f", "json")[1])
        assert forecast(used, "--all-versions")[1].splitlines()[-1] == out.splitlines()[-1]
        refused = forecast(used, "--script", "-q", "-o", used.parent / "start.sh")
        walked = forecast(used, "--as-copied")
        prepared = forecast(used, "--as-copied", "--script")
    assert status == 4
    assert out.splitlines()[-1] == f"VERDICT    A BROKER RUNS ON THIS STORE (pid {pid}): do not start another"
    assert (f"pid {pid} holds the lock" in errors, "by the rules of" in errors) == (True, False)
    assert (told["complete"], told["lost_messages"]) == (False, None)  # nothing was walked
    assert (told["verdict"], told["starts"], told["lock_holder"]) == ("A BROKER RUNS ON THIS STORE", None, pid)
    assert (refused[:2], (used.parent / "start.sh").exists()) == ((4, ""), False)
    assert "do not start another" in refused[2]
    # What is forecast of the files is what is forecast of them without a broker.
    alone = forecast(used)
    assert (walked[0], walked[1].splitlines()[-1]) == (0, alone[1].splitlines()[-1])
    assert "note       a process holds the lock of the store: this is about the files as they are now" in walked[1]
    assert set(alone[1].splitlines()) < set(walked[1].splitlines())
    assert (prepared[0], prepared[1]) == (0, forecast(used, "--script")[1])


def test_a_broker_that_still_recovers_runs(forecast: Run, used: Path, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(sys.executable)
    with other_process(OPEN, used / "lock", program=java) as pid:
        assert f"A BROKER RUNS ON THIS STORE (pid {pid})" in forecast(used)[1]
    with other_process(OPEN, HEALTHY / "checkpoint", program=java):
        assert forecast(used, "-q")[0] == 0


def test_a_lock_that_cannot_be_asked_for_is_not_taken_for_free(
    forecast: Run, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise Unreadable("lock: permission denied")

    monkeypatch.setattr("rmqinspect.store.reader.open_file", refused)
    status, _, errors = forecast(used, "-q")
    assert (status, "lock: permission denied: whether a broker runs on this store is not known" in errors) == (4, True)


def test_a_long_read_is_announced(forecast: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.cli.forecast.LONG_READ", 1 << 16)
    announced = "up to 327.7 kB to read: the log is read, for what consumers get of it after the start"
    assert announced in forecast(FLIPPED)[2]
    assert "to read" not in forecast(FLIPPED, "-q")[2]


def test_nothing_is_written_into_the_store(forecast: Run, tmp_path: Path) -> None:
    assert forecast(FLIPPED, "--script", "-o", FLIPPED / "start.sh")[0] == 6
    assert forecast(FLIPPED, "--script", "-o", tmp_path / "start.sh") == (3, "", forecast(FLIPPED)[2])
    assert (tmp_path / "start.sh").read_text().startswith("#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", tmp_path / "start.sh"], check=True)


def _start(*words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "rmqinspect", "forecast", str(FLIPPED), *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_reader_that_goes_away_is_no_error() -> None:
    run = _start("-f", "json")
    assert run.stdout is not None
    run.stdout.close()
    _, errors = run.communicate()
    assert run.returncode in (0, 141)
    assert b"Traceback" not in errors


def test_ctrl_c_ends_the_walk(forecast: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("rmqinspect.forecast.versions.forecast", interrupted)
    status, out, errors = forecast(FLIPPED)
    assert (status, out, errors) == (130, "", "rmqinspect: interrupted\n")


def test_an_output_that_exists_is_refused_before_anything_is_walked(
    forecast: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "forecast.json"
    path.touch()
    monkeypatch.setattr("rmqinspect.forecast.versions.forecast", None)
    status, _, errors = forecast(HEALTHY, "-o", path)
    assert (status, "exists already; nothing is overwritten" in errors) == (6, True)


def test_a_conf_without_sizes_is_remedied_by_all_its_lines_at_once(forecast: Run, tmp_path: Path) -> None:
    """4.3.2 ignores files of another length, and starts empty: with one of the lines it would do so again."""
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    store = oracle.store("crash", "base-4.3.2-clean")
    status, out, _ = forecast(store, "--config", conf, "--broker-version", "4.3.2", "-f", "json")
    document = json.loads(out)
    best = document["instead"][0]
    assert (status, document["verdict"]) == (3, "STARTS EMPTY")
    assert (best["better"], best["broker_version"], best["lost_messages"]) == (True, "4.3.2", 0)
    settings = oracle.case("crash", "base-4.3.2-clean")["settings"]
    for name in ("mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum"):
        assert f"{name}={settings[name.replace('maped', 'mapped')]}" in best["way"]


@pytest.mark.parametrize("name", ["zeroed-page-4.7.1", "flipped-bit-5.3.3"])
def test_the_price_of_a_salvage_is_what_that_comes_to(name: str, forecast: Run, salvage: Run, tmp_path: Path) -> None:
    store = sample(name)
    price = json.loads(forecast(store, "--salvage", "-f", "json")[1])["salvage"]
    salvage(store, "-o", tmp_path / "NEW", "-q")
    receipt = json.loads((tmp_path / "NEW.receipt.json").read_text())
    assert price == {
        "broker_version": receipt["broker_version"],
        "lost_offsets": sum(len(one["lost"]) for one in receipt["lost_offsets"]),
        "aside": len(receipt["aside"]),
        "aside_bytes": sum(one["end"] - one["start"] for one in receipt["aside"]),
        "repaired": len(receipt["repaired"]),
        "inexact": 0,
        "refused": None,
    }


def test_a_salvage_that_is_refused_has_no_price(forecast: Run) -> None:
    store = oracle.store("crash", "log_empty-5.2.0-c")
    _, out, _ = forecast(store, "--salvage", "-f", "json")
    assert "nothing to save" in json.loads(out)["salvage"]["refused"]
    assert "salvaged   no new store: " in forecast(store, "--salvage")[1]
    assert forecast(store, "--salvage", "--script")[0] == 2
