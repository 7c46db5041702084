"""Entries that do not belong where they are: CL-NAME, CQ-NAME, IX-NAME, against what real brokers made of them."""

from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.files import check_names
from rmqinspect.verify.findings import Finding, what_to_do
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle

BASE = "base-4.9.7-clean"
QUEUE = "consumequeue/TopicA/0"
FILE = 400  # bytes of a queue file
VERSIONS = ("4.3.2", "4.7.1", "4.9.2", "5.0.0", "5.1.0", "5.1.4", "5.5.0")

# An entry, its bytes (None: a folder), and one letter for each of VERSIONS: what `DefaultMessageStore` of that version
# did with it (4.9.2 and 5.1.0: in part by their sources). "-": started with all queues and index files; "H": started
# without some; "R": did not start.
SEEN: dict[str, tuple[int | None, str]] = {
    "consumequeue/.DS_Store": (4, "-------"),
    "consumequeue/TopicA/.DS_Store": (4, "-------"),
    "consumequeue/TopicA/old": (None, "-------"),
    f"{QUEUE}/.DS_Store": (4, "HRHRRRR"),
    f"{QUEUE}/zz.tmp": (8, "-R-RRRR"),
    f"{QUEUE}/zz.empty": (0, "-R-RR--"),
    f"{QUEUE}/zz.folder": (None, "-R-R---"),
    f"{QUEUE}/00000000000000000000.bak": (FILE, "RRRRRRR"),
    f"{QUEUE}/00000000000000000777": (FILE, "HHHHHHH"),
    "index/.DS_Store": (4, "-------"),
    "index/20200101000000000": (None, "HHHHRRR"),
    "index/99990101000000000": (None, "----RRR"),
}


def add(root: Path, name: str, size: int | None) -> None:
    if size is None:
        (root / name).mkdir()
        (root / name / ".keep").touch()
    else:
        (root / name).write_bytes(bytes(size))


def found(root: Path) -> list[Finding]:
    return verify(open_store([str(root)]), VerifyOptions(level="quick")).findings.rows


@pytest.mark.parametrize("name", SEEN)
def test_the_severity_is_that_of_what_a_broker_of_the_version_did(name: str, tmp_path: Path) -> None:
    size, seen = SEEN[name]
    root = oracle.copy("crash", BASE, tmp_path)
    assert not [row for row in found(root) if row.code.endswith("-NAME")]
    add(root, name, size)
    for version, what in zip(VERSIONS, seen, strict=True):
        (row,) = check_names(open_store([str(root)]), [version])
        assert (row.code, row.file) == ("IX-NAME" if name.startswith("index") else "CQ-NAME", name)
        assert (version, row.severity) == (version, "info" if what == "-" else "error")
        assert ("the broker does not start" in row.message) == (what == "R")
        assert (what_to_do(row) is None) == (what == "-")


def test_versions_that_differ_are_told_apart(tmp_path: Path) -> None:
    """The store is of 4.9.1 to 4.9.8, of which 4.9.2 alone forgives a folder that sorts last."""
    root = oracle.copy("crash", BASE, tmp_path)
    add(root, "commitlog/backup", None)
    (row,) = [row for row in found(root) if row.code == "CL-NAME"]
    assert row.severity == "error"
    assert row.message.endswith("4.9.1, 4.9.3 to 4.9.8: the broker does not start; 4.9.2: startup skips it")
    assert what_to_do(row) == "copy the store, then move commitlog/backup out of commitlog"


def test_what_info_calls_odd_is_a_finding(tmp_path: Path) -> None:
    root = oracle.copy("crash", BASE, tmp_path)
    for name, (size, _) in SEEN.items():
        add(root, name, size)
    store = open_store([str(root)])
    named = {row.file for row in found(root) if row.code.endswith("-NAME")}
    assert {oddity.name for oddity in store.oddities} | {f"{QUEUE}/00000000000000000777"} == named == SEEN.keys()
