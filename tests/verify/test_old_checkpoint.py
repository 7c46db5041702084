"""ST-CHECKPOINT: a checkpoint that is older than a stop in order leaves it, and those of real stops, which are not."""

import struct
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle

_CLEAN: tuple[tuple[oracle.Family, str], ...] = (
    ("crash", "base-4.2.0-clean"),
    ("crash", "base-5.3.3-clean"),
    ("crash", "base-5.5.0-clean"),
    ("broker", "main-4.9.7"),
    ("broker", "main-5.4.0"),
    ("broker", "main-5.5.0"),
)


def of_checkpoint(root: Path) -> list[Finding]:
    rows = verify(open_store([str(root)]), VerifyOptions(level="standard", jobs=1)).findings.rows
    return [row for row in rows if row.code == "ST-CHECKPOINT"]


def older(root: Path, by: int) -> Path:
    """Set the times of the checkpoint back by so many milliseconds."""
    file = root / "checkpoint"
    raw = file.read_bytes()
    file.write_bytes(struct.pack(">3q", *(time - by for time in struct.unpack(">3q", raw[:24]))) + raw[24:])
    return root


@pytest.mark.parametrize(("family", "name"), _CLEAN)
def test_a_checkpoint_of_an_hour_before_is_of_another_time(family: oracle.Family, name: str, tmp_path: Path) -> None:
    found = of_checkpoint(older(oracle.copy(family, name, tmp_path), 3_600_000))
    assert {row.severity for row in found} == {"warning"}
    # 5.5.0, which may have written the store of 5.4.0 as well, writes the time of the last thorough flush: only that of
    # the index tells.
    assert [row.offset for row in found] == ([16] if name.endswith(("5.5.0-clean", "5.4.0", "5.5.0")) else [8, 16])
    assert all("older than a stop in order leaves it" in row.message for row in found)


@pytest.mark.parametrize("name", ["base-5.3.3-halt", "base-4.2.0-halt"])
def test_a_stop_out_of_order_may_leave_any_time(name: str, tmp_path: Path) -> None:
    assert of_checkpoint(older(oracle.copy("crash", name, tmp_path), 3_600_000)) == []


def test_a_checkpoint_that_a_start_made_anew_has_no_times_yet(tmp_path: Path) -> None:
    """Of a store without messages since: all but the time of the log is 0."""
    root = oracle.copy("broker", "main-4.9.7", tmp_path)
    raw = (root / "checkpoint").read_bytes()
    (root / "checkpoint").write_bytes(raw[:8] + bytes(len(raw) - 8))
    assert of_checkpoint(root) == []
