"""Files that seem to have a terabyte: a hole is zeros, and numbers no broker can have are not searched."""

import os
from pathlib import Path

import pytest

from rmqinspect.index.geometry import read_index_files
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.properties.test_hidden import small

TERABYTE = 1 << 40


@pytest.mark.parametrize(
    ("pattern", "codes"),
    [("commitlog/*", {"CL-SIZE"}), ("consumequeue/orders/0/*", {"CQ-SIZE"}), ("index/*", {"IX-SIZE"})],
)
def test_a_hole_is_accounted_for_and_not_read(pattern: str, codes: set[str], tmp_path: Path) -> None:
    store = small(tmp_path / "store")
    path = max(store.glob(pattern))
    os.truncate(path, TERABYTE)
    found = verify(open_store([str(store)]), VerifyOptions(level="deep"))
    assert found.complete
    assert codes <= {row.code for row in found.findings.rows if row.file == str(path.relative_to(store))}
    assert all(account.total == account.segment.size for account in found.accounts)


def test_no_geometry_is_guessed_for_an_index_that_no_broker_can_map(tmp_path: Path) -> None:
    store = small(tmp_path / "store")
    for path in (store / "index").iterdir():
        os.truncate(path, TERABYTE)
    assert [index.geometry for index in read_index_files(open_store([str(store)]))] == [None] * len(
        [*(store / "index").iterdir()]
    )


def test_an_index_of_the_usual_length_with_a_wrong_header_is_judged(tmp_path: Path) -> None:
    store = small(tmp_path / "store")
    config = tmp_path / "broker.conf"
    config.write_text("maxHashSlotNum=7\nmaxIndexNum=24\n")
    path = min((store / "index").iterdir())
    raw = bytearray(path.read_bytes())
    raw[:40] = bytes.fromhex("7f") * 40
    path.write_bytes(raw)
    opened = open_store([str(store)], config=str(config))
    assert read_index_files(opened)[0].geometry is not None
    found = verify(opened, VerifyOptions(level="deep"))
    assert "IX-HEADER" in found.findings.counts
    assert "ST-UNCHECKED" not in found.findings.counts
