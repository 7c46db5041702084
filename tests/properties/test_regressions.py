"""What was once wrong, each found by reading the code."""

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from rmqinspect.cli import ExitStatus, main
from rmqinspect.commitlog.missing import absent_in
from rmqinspect.store.discover import open_store
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import lay, write_segment
from tests.support.samples import sample
from tests.support.sampling import sampled

SAMPLE = sample("healthy-5.5.0")


def _verify(path: Path, *codes: str) -> VerifyResult:
    return verify(open_store([str(path)]), VerifyOptions(codes=frozenset(codes or BY_CODE)))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return shutil.copytree(SAMPLE, tmp_path / "store")


@pytest.mark.parametrize("name", ["backup", "zz"])
def test_a_link_to_the_log_beside_it_hides_nothing(name: str, store: Path) -> None:
    (store / name).symlink_to("commitlog")
    assert sum(account.records for account in _verify(store).accounts) > 0


def test_a_log_behind_a_link_inside_the_store_is_read(store: Path) -> None:
    (store / "commitlog").rename(store / "a_log").with_name("commitlog").symlink_to("a_log")
    assert sum(account.records for account in _verify(store).accounts) > 0


def test_what_was_not_read_is_told_whichever_codes_are_asked_for(store: Path) -> None:
    (store / "commitlog" / "00000000000000900000").symlink_to("nowhere")
    assert not _verify(store, "CL-HOLE").complete


def test_a_record_without_a_topic_is_a_finding_and_no_bug(tmp_path: Path) -> None:
    topics = (b"", b"TopicTest")
    write_segment(tmp_path, lay([{"topic": topics[n % 2], "queue_id": 0, "queue_offset": n // 2} for n in range(4)]))
    outcome = _verify(tmp_path)
    assert outcome.findings.counts["CL-FIELD"] == 2
    assert "CL-QUEUE-OFFSET" not in outcome.findings.counts


def test_a_later_jump_back_is_not_healed_by_an_earlier_one(tmp_path: Path) -> None:
    offsets = [*range(10), *range(20, 60), *range(10, 20)]
    write_segment(tmp_path, lay([{"queue_offset": offset} for offset in offsets]))
    assert _verify(tmp_path).findings.counts["CL-QUEUE-OFFSET"] == 2


def test_a_hole_of_a_wrong_name_is_one_range(tmp_path: Path) -> None:
    for base in (0, 1 << 62):
        write_segment(tmp_path / "commitlog", bytes(4096), base)
    assert len(absent_in(open_store([str(tmp_path)]))) == 1


def test_no_report_is_written_into_a_store_that_only_the_config_names(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={store}\n")
    evil = store / "commitlog" / "report.json"
    assert main(["verify", "--config", str(config), "--report", str(evil)]) == ExitStatus.REFUSED
    assert not os.path.exists(evil)
    assert "inside" in capsys.readouterr().err


def test_a_missing_segment_is_a_gap_of_decode_too(capsys: pytest.CaptureFixture[str]) -> None:
    store = str(oracle.store("crash", "seg_missing_mid-5.4.0-h"))
    assert main(["decode", store, "-f", "csv", "--columns", "physical_offset"]) == ExitStatus.DAMAGE
    assert "1 gap" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["index", "config", "timerlog", "consumequeue"])
def test_a_folder_without_its_log_is_judged_by_what_it_says_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = oracle.store("broker", "main-5.3.3")
    assert main(["verify", str(store / name), "--level", "deep"]) == ExitStatus.DONE
    printed = capsys.readouterr().out
    assert "checked on their own" in printed
    assert "no commit log" in printed


def test_verify_gives_no_verdict_on_what_it_does_not_judge(capsys: pytest.CaptureFixture[str]) -> None:
    store = oracle.store("broker", "main-5.3.3")
    assert main(["verify", str(store / "checkpoint")]) == ExitStatus.UNREADABLE
    assert "give the whole store" in capsys.readouterr().err


def test_a_verdict_says_when_checks_were_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", str(SAMPLE), "--skip", "CL-CRC-BODY"])
    assert f", {len(BY_CODE) - 1} of {len(BY_CODE)} checks" in capsys.readouterr().out


def test_consumer_offsets_alone_are_compared_with_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    offsets = oracle.store("broker", "main-5.3.3") / "config" / "consumerOffset.json"
    assert main(["decode", str(offsets), "-f", "csv"]) == ExitStatus.DONE
    assert "no_queue" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("store", "name", "words", "size"),
    [
        ("main-5.3.3", "config/consumerFilter.json", "SQL filters of consumer groups", ""),
        ("main-5.3.3", "config/timercheck", "the timer checkpoint", "4 096 bytes"),
        ("main-5.3.3", "config/timermetrics.bak", "counted by topic", ""),
        ("main-5.3.3", "timerwheel", "the timer wheel", "38 707 200 bytes"),
        ("main-5.3.3", "timerlog", "the timer log", "1 048 576 bytes"),
        ("main-5.3.3", f"timerlog/{0:020}", "the timer log", "1 048 576 bytes"),
        ("main-5.3.3", "lock", "the lock file", "4 bytes"),
        ("main-5.3.3", "abort.bak", "says nothing about a crash", "0 bytes"),
        ("compaction-5.3.3", "compaction", "a compacted copy", "6 files"),
        ("dledger-5.3.3", "dledger-n0/index", "the DLedger index", "1 file"),
        ("dledger-5.3.3", "dledger-n0/checkpoint", "state of the DLedger node", "1 file"),
        ("rocksdb-5.4.0", "consumequeue", "a RocksDB database", ""),
        ("ext-4.9.7", "consumequeue_ext", "consume queue extensions", "29 files"),
    ],
)
def test_a_path_that_no_table_shows_is_named(
    store: str, name: str, words: str, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", str(oracle.store("broker", store) / name)]) == ExitStatus.UNREADABLE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert size in printed.err
    assert "No table shows it; for the whole store: rmqinspect" in printed.err


def test_the_folder_of_a_dledger_node_is_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    store = oracle.store("broker", "dledger-5.3.3")
    rows = []
    for path in (store, store / "dledger-n0"):
        assert main(["decode", str(path), "-f", "jsonl", "-j", "2"]) == ExitStatus.DONE
        rows.append(capsys.readouterr().out)
    assert rows[0] == rows[1] != ""


@pytest.mark.parametrize("name", ["main-4.7.1", "main-5.3.3", "lmq-4.9.7", "retention-5.3.3"])
def test_a_subscription_of_a_queue_without_messages_is_no_damage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`%RETRY%` queues have no files before the first retry, and retention may overtake a group."""
    assert main(["decode", str(oracle.store("broker", name)), "--table", "groups"]) == ExitStatus.DONE
    assert "no_queue" in capsys.readouterr().out


def test_a_backup_of_the_consumer_offsets_is_read_with_a_remark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    (root / "config" / "consumerOffset.json").write_bytes(bytes(100))
    assert main(["decode", str(root), "--table", "groups"]) == ExitStatus.DONE
    printed = capsys.readouterr()
    assert "config/consumerOffset.json.bak is used instead of config/consumerOffset.json" in printed.err
    assert len(printed.out.splitlines()) > 10


@pytest.mark.parametrize(
    ("command", "redirection"), sampled(product(("info", "verify", "decode"), (">/dev/full", ">&-", "2>&-")), 4)
)
def test_a_full_or_closed_output_is_no_bug(command: str, redirection: str) -> None:
    line = f'exec "$0" -m rmqinspect {command} "$1" {redirection}'
    ended = subprocess.run(["sh", "-c", line, sys.executable, str(SAMPLE)], capture_output=True, text=True)
    assert "bug" not in ended.stderr
    assert ended.returncode == (ExitStatus.REFUSED if redirection == ">/dev/full" else ExitStatus.DONE)
