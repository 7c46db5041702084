"""`show --raw`: bytes as they lie in the log, and nothing else."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

show = runner("show")
FLIPPED = sample("flipped-bit-5.3.3")
SEGMENT = FLIPPED / "commitlog" / "00000000000000065536"
SIZE = 65536


def raw(show: Run, out: Path, *words: object) -> tuple[bytes, str]:
    """Return what was written, and what was said of it."""
    status, printed, err = show(*map(str, words), "--raw", "-o", str(out))
    assert (status, printed) == (0, "")
    return out.read_bytes(), err


@pytest.mark.parametrize(
    ("words", "start", "size"),
    [
        (("--at", "97513"), 31977, 442),  # a sound record
        (("--at", "97600"), 31977, 442),  # any offset inside it
        (("-k", "B98_1"), 31977, 442),
        (("-t", "BatchTopic", "--queue", "1", "--queue-offset", "14"), 31977, 442),
        (("--at", "97187"), 31651, 326),  # a damaged one
        (("--at", "97190", "--size", "5"), 31654, 5),  # a range, whatever lies there
        (("--at", "65536", "--size", "64KiB"), 0, SIZE),
    ],
)
def test_the_bytes_are_those_of_the_file(
    show: Run, tmp_path: Path, words: tuple[str, ...], start: int, size: int
) -> None:
    content, said = raw(show, tmp_path / "record.bin", FLIPPED, *words)
    assert content == SEGMENT.read_bytes()[start : start + size]
    assert hashlib.sha256(content).hexdigest() in said


def test_its_digest_is_that_of_the_evidence(show: Run, tmp_path: Path) -> None:
    content, _ = raw(show, tmp_path / "record.bin", FLIPPED, "-k", "B98_1", "--sums")
    digest = hashlib.sha256(content).hexdigest()
    assert (tmp_path / "record.bin.sha256").read_text() == f"{digest}  record.bin\n"


def test_a_record_in_a_ledger_is_without_its_entry_head(show: Run, tmp_path: Path) -> None:
    store = oracle.store("broker", "dledger-5.3.3")
    _, out, _ = show(str(store), "--at", "48", "-f", "json")
    told = json.loads(out)
    content, _ = raw(show, tmp_path / "record.bin", store, "--at", "48")
    assert len(content) == told["end"] - told["physical_offset"]
    assert content[4:8].hex() in ("daa320a7", "daa320a8")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--at", "97513", "--raw", "--redact", "body"), "not with --redact"),
        (("--at", "97513", "--raw", "-f", "json"), "not with --redact"),
        (("--at", "97513", "--size", "4"), "--size belongs to --raw"),
        (("--at", "131071", "--raw", "--size", "2"), "ends 1 byte earlier"),
    ],
)
def test_what_does_not_fit_is_refused(show: Run, tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    status, _, err = show(str(FLIPPED), *words, "-o", str(tmp_path / "record.bin"))
    assert (status, (tmp_path / "record.bin").exists()) == (2, False)
    assert why in err
