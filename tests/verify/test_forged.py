"""Intact is not untampered: a forged body with a right checksum is WHOLE, and what from before or from elsewhere tells.

docs/evidence.md says so; this proves both halves on a store that a broker wrote.
"""

import os
import shutil
import zlib
from pathlib import Path

import pytest

from rmqinspect.schemas.message import CRC_MASK
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from rmqinspect.verify.report import NOT_PROVED
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()
BODY_CRC = 8  # position in a record: size and magic stand before it


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """Return two copies of a store: one to forge, and its replica."""
    for name in ("store", "replica"):
        shutil.copytree(sample("healthy-4.9.7"), tmp_path / name)
    return tmp_path / "store", tmp_path / "replica"


def forge(store: Path) -> int:
    """Change one byte of a body, and write the CRC of the new one; size and times stay. Return the record's place."""
    batches = TABLES["messages"].rows(open_store([str(store)]), Request(raw_body=True))
    row = next(one for batch in batches for one in batch.to_pylist() if one["topic"] == "orders" and one["body"])
    place, body = row["physical_offset"], row["body"]
    path = sorted((store / "commitlog").iterdir())[0]
    status, raw = path.stat(), bytearray(path.read_bytes())
    at = raw.index(body, place, place + row["size"])
    forged = bytes([body[0] ^ 1]) + body[1:]
    raw[at : at + len(body)] = forged
    raw[place + BODY_CRC : place + BODY_CRC + 4] = (zlib.crc32(forged) & CRC_MASK).to_bytes(4, "big")
    path.write_bytes(raw)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return int(place)


def test_a_forged_body_is_whole_and_digests_and_a_replica_tell(
    run: Run, stores: tuple[Path, Path], tmp_path: Path
) -> None:
    store, replica = map(str, stores)
    before = str(tmp_path / "before.json")
    assert run("verify", store, "--hash", "sha256", "--report", before)[0] == 0
    place = forge(stores[0])
    status, out, _ = run("verify", store, "--hash", "sha256", "--report", str(tmp_path / "after.json"))
    assert (status, "VERDICT      WHOLE" in out) == (0, True)
    assert f"not proved {NOT_PROVED}" in " ".join(out.split())
    # Digests from before: times and sizes are as they were.
    status, out, _ = run("verify", store, "--against", before)
    assert (status, out.count("sha256"), "DIFFERENT" in out) == (3, 1, True)
    # A replica: where the first byte differs.
    status, out, _ = run("diff", store, replica)
    assert status == 3
    assert f"{place + BODY_CRC:,}".replace(",", " ") in out
