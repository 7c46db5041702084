"""What was once wrong, each found by reading the code."""

import os
import shutil
from pathlib import Path

import pytest

from rmqinspect.checks.codes import BY_CODE
from rmqinspect.cli import main
from rmqinspect.cli.status import ExitStatus
from rmqinspect.gaps import find_holes
from rmqinspect.store import Segment, open_store
from rmqinspect.verify import Outcome, Wish, verify
from tests.building import lay, write_segment

SAMPLE = Path(__file__).parents[1] / "samples" / "healthy-5.5.0" / "store"


def _verify(path: Path, *codes: str) -> Outcome:
    return verify(open_store([str(path)]), Wish(codes=frozenset(codes or BY_CODE)))


@pytest.mark.parametrize("name", ["backup", "zz"])
def test_a_link_to_the_log_beside_it_hides_nothing(name: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(SAMPLE, store)
    (store / name).symlink_to("commitlog")
    assert sum(account.records for account in _verify(store).accounts) > 0


def test_a_log_behind_a_link_inside_the_store_is_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(SAMPLE, store)
    (store / "commitlog").rename(store / "a_log")
    (store / "commitlog").symlink_to("a_log")
    assert sum(account.records for account in _verify(store).accounts) > 0


def test_what_was_not_read_is_told_whichever_codes_are_asked_for(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(SAMPLE, store)
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


def test_a_hole_of_a_wrong_name_is_one_range() -> None:
    segments = [Segment("", "", 4096, "segment", base) for base in (0, 1 << 62)]
    assert len(list(find_holes(segments, 4096))) == 1


def test_no_report_is_written_into_a_store_that_only_the_config_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(SAMPLE, store)
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={store}\n")
    evil = store / "commitlog" / "report.json"
    assert main(["verify", "--config", str(config), "--report", str(evil)]) == ExitStatus.REFUSED
    assert not os.path.exists(evil)
    assert "inside" in capsys.readouterr().err
