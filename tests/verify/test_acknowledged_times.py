"""ST-CHECKPOINT of a time that no record has: what is gone behind the log's end, or a wrong clock."""

from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support.outcome_stores import copy_of_case, outcome_store

_NEWEST = 1_795_827_455_866  # ms, store time of the log's last record, 2026-11-28T00:57:35.866Z


def _messages(root: Path) -> list[str]:
    found = verify(open_store([str(root)]), VerifyOptions(level="standard")).findings
    return [one.message for one in found if one.code == "ST-CHECKPOINT"]


def test_a_disk_that_was_full_took_acknowledged_messages() -> None:
    (message,) = (one for one in _messages(outcome_store("s08")) if "physic_msg_timestamp" in one)
    assert "acknowledged messages of the 12.4 s behind its last record" in message and "copy them again" in message


@pytest.mark.parametrize(
    ("lead", "words"),
    [
        (500, None),  # the clock was corrected by little
        (60_000, "acknowledged messages of the 60.0 s behind its last record"),
        (3 * 24 * 3_600_000, "the clock was wrong"),
    ],
)
def test_how_far_a_time_leads_says_what_it_proves(lead: int, words: str | None, tmp_path: Path) -> None:
    root = copy_of_case("s08", tmp_path / "case")
    (root / "checkpoint").write_bytes((_NEWEST + lead).to_bytes(8, "big") * 3 + bytes(4072))
    messages = _messages(root)
    assert bool(messages) == (words is not None)
    assert all(words in message for message in messages if words is not None)
