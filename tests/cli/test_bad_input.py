"""Whatever is given, and whatever the system says: one clear line or a finding, the right exit status.

Never a traceback, never a change to what was given.
"""

import errno
import json
import lzma
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqinspect.verify.run
from rmqinspect.store.discover import open_store
from rmqinspect.text import count
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.broken_disk import broken_disk
from tests.support.building import fill, lay, write_segment
from tests.support.command import Run, runner
from tests.support.samples import sample

HEALTHY = sample("healthy-5.5.0")
SEGMENT = "00000000000000000000"

# Each command that reads a store, as it is called on one.
COMMANDS = {
    "info": ("info", "{}"),
    "decode": ("decode", "{}", "-j", "1"),
    "verify": ("verify", "{}", "-j", "1"),
    "show": ("show", "{}", "--at", "0"),
    "forecast": ("forecast", "{}", "-j", "1"),
}


run = runner()


def call(run: Run, command: str, path: Path) -> tuple[int, str, str]:
    return run(*(word.format(path) for word in COMMANDS[command]))


# --- what is no store at all --------------------------------------------------------------------------------


def _put(path: Path, raw: bytes = b"hello\n" * 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def _junk(path: Path) -> Path:
    return _put(path, random.Random(1).randbytes(100_000))


def _fifo(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def _link(path: Path, target: str | Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def _folder(root: Path, *folders: str) -> Path:
    for folder in ("", *folders):
        (root / folder).mkdir(parents=True)
    return root


def _tar(root: Path) -> Path:
    with tarfile.open(root / "ticket.tar.gz", "w:gz") as tar:
        tar.add(_put(root / SEGMENT))
    return root / "ticket.tar.gz"


def _zip(root: Path) -> Path:
    with zipfile.ZipFile(root / "ticket.zip", "w") as file:
        file.write(_put(root / SEGMENT))
    return root / "ticket.zip"


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing": (lambda root: root / "gone", "no such file or directory"),
    "a dangling link": (lambda root: _link(root / "store", "gone"), "a dangling link"),
    "an empty folder": (lambda root: _folder(root / "store"), "an empty directory"),
    "a folder of other things": (
        lambda root: _put(_folder(root / "letters", "old") / "a.txt").parent,
        "not a store: no commitlog",
    ),
    "two stores in one folder": (
        lambda root: _folder(root / "both", "a/commitlog", "b/commitlog"),
        "holds 2 stores (a, b); give one",
    ),
    "a text": (lambda root: _put(root / "notes.txt"), "not a file of a store (600 bytes)"),
    "a text named like a segment": (
        lambda root: _put(root / SEGMENT),
        "named like a segment, but without a commit-log record",
    ),
    "an empty file named like a segment": (
        lambda root: _put(root / SEGMENT, b""),
        "named like a segment, but without a commit-log record",
    ),
    "random bytes": (lambda root: _junk(root / "disk.img"), "not a file of a store (100 000 bytes)"),
    "a tar.gz": (_tar, "tar -xSzf ticket.tar.gz -C DIR"),
    "a zip": (_zip, "unzip ticket.zip -d DIR"),
    "a tar.xz": (lambda root: _put(root / "ticket.tar.xz", lzma.compress(b"hello")), "tar -xSJf ticket.tar.xz -C DIR"),
    "a FIFO": (lambda root: _fifo(root / "pipe"), "neither a directory nor a regular file"),
    "a device": (lambda root: Path(os.devnull), "neither a directory nor a regular file"),
    "a name with a comma": (lambda root: _put(root / "a, b,c"), "a, b,c: not a file of a store"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_store_is_refused_in_one_line(run: Run, tmp_path: Path, what: str, command: str) -> None:
    make, words = REFUSED[what]
    path = make(tmp_path)
    status, out, err = call(run, command, path)
    assert (status, out) == (4, "")
    assert err.startswith(f"rmqinspect: {path}: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_store_that_may_not_be_listed_is_refused_in_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Simulated, since root may list everything."""
    folder = _folder(tmp_path / "store")

    def refuse(path: str) -> object:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "scandir", refuse)
    for command in COMMANDS:
        assert call(run, command, folder) == (4, "", f"rmqinspect: {folder}: Permission denied\n")


# --- stores with something in them that is none of a store --------------------------------------------------


class Inside(NamedTuple):
    """What stands in the place of the only segment of a store, and what comes of it."""

    make: Callable[[Path], object]
    verify: int
    decode: int
    show: int
    forecast: int
    words: str  # in what verify prints


def _sparse(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(1 << 30)


INSIDE = {
    "a text": Inside(_put, 3, 3, 3, 0, "CL-MAGIC"),
    "random bytes": Inside(_junk, 3, 3, 3, 0, "CL-MAGIC"),
    "nothing but zeros": Inside(_sparse, 0, 0, 5, 0, "WHOLE, 1 WARNING at level deep"),
    "an empty file": Inside(lambda path: _put(path, b""), 3, 0, 5, 3, "CL-SIZE"),
    "a FIFO": Inside(_fifo, 4, 4, 4, 4, "INCOMPLETE: 1 place not read, no damage so far"),
    "a dangling link": Inside(lambda path: _link(path, "gone"), 4, 4, 4, 4, "gone, which does not exist"),
    "a link out of the store": Inside(
        lambda path: _link(path, HEALTHY / "commitlog" / SEGMENT), 4, 4, 4, 4, "not followed; to read it there"
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", INSIDE)
def test_what_stands_in_the_place_of_a_segment_is_judged(run: Run, tmp_path: Path, what: str, command: str) -> None:
    INSIDE[what].make(tmp_path / "store" / "commitlog" / SEGMENT)
    status, out, err = call(run, command, tmp_path / "store")
    assert status == {"info": status, **INSIDE[what]._asdict()}[command]
    assert status in (0, 3, 4, 5)
    assert out or err
    if command == "verify":
        assert INSIDE[what].words in " ".join(out.split())


# --- the system refuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "start", "end"), [(65536, 20000, 20512), (0, 0, 4096), (65536, 0, 65536), (196608, 0, 65536)]
)
def test_bytes_that_cannot_be_read_leave_the_rest_to_be_judged(
    run: Run, monkeypatch: pytest.MonkeyPatch, base: int, start: int, end: int
) -> None:
    with broken_disk(monkeypatch, lambda path: path.name == f"{base:020}", start, end):
        outcome = verify(open_store([str(HEALTHY)]), VerifyOptions())
        status, out, _ = call(run, "verify", HEALTHY)
    # Queue files of the same name are on the same broken disk; nothing but that is said of them.
    assert {row.code for row in outcome.findings.rows} <= {"ST-UNCHECKED", "ST-IO"}
    (finding,) = [row for row in outcome.findings.rows if row.file == f"commitlog/{base:020}"]
    assert finding.offset is not None
    assert finding.length is not None
    # All that cannot be read, and no more than a block around each end.
    assert start - 4096 < finding.offset <= start
    assert end <= finding.offset + finding.length < end + 4096 or finding.offset + finding.length == 65536
    assert "Input/output error" in finding.message
    places, errors = count(len(outcome.unread), "place"), count(len(outcome.unread), "error")
    verdict = f"INCOMPLETE: {places} not read, no damage so far"
    assert (outcome.complete, outcome.verdict) == (False, verdict)
    assert status == 4
    last = out.splitlines()[-1]
    # What is printed as an error is counted as one.
    assert last.startswith(f"VERDICT      {verdict} at level deep: {errors} (not read), 0 warnings in ")
    others = [account for account in outcome.accounts if account.segment.base != base]
    assert sum(account.records for account in others) == {0: 181, 65536: 171, 196608: 195}[base]


def test_damage_counts_more_than_what_cannot_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sample("flipped-bit-5.3.3")
    with broken_disk(monkeypatch, lambda path: path.name == f"{131072:020}", 30000, 30512):
        status, out, _ = call(run, "verify", store)
    assert status == 3
    assert "CL-CRC-BODY" in out
    assert "VERDICT      INCOMPLETE: 1 place not read, DAMAGED at level deep: 2 errors (1 of them not read)," in out


def test_a_segment_that_may_not_be_opened_leaves_the_rest_to_be_judged(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ = os.open

    def refuse(path: str, *others: int) -> int:
        if path.endswith("00000000000000065536"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return open_(path, *others)

    monkeypatch.setattr(os, "open", refuse)
    status, out, _ = call(run, "verify", HEALTHY)
    assert status == 4
    assert "commitlog/00000000000000065536: Permission denied; 65 536 bytes not read" in out
    assert "INCOMPLETE: 1 place not read, no damage so far" in out
    status, out, err = call(run, "decode", HEALTHY)
    assert status == 4
    assert "Permission denied" in err
    assert len(out.splitlines()) == 1 + 171  # the records of the three other segments


def test_a_checkpoint_that_cannot_be_read_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken_disk(monkeypatch, lambda path: path.name == "checkpoint", 0, 4096):
        status, out, _ = call(run, "verify", HEALTHY)
    assert status == 4
    assert "checkpoint at 0 (0x0): Input/output error" in out


# --- the user goes away -------------------------------------------------------------------------------------

_SLOW_VERIFY = """
import sys, time
import rmqinspect.verify.run
check = rmqinspect.verify.run.check_split

def check_slowly(split, **others):
    if split.segment.base == 131072:
        print("reached", file=sys.stderr, flush=True)
        for _ in range(6000):
            time.sleep(0.01)  # a signal that comes just before one long sleep is handled only after it
    return check(split, **others)

rmqinspect.verify.run.check_split = check_slowly
from rmqinspect.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_ends_verify_with_what_was_found_so_far(tmp_path: Path) -> None:
    store, document = sample("flipped-bit-5.3.3"), tmp_path / "report.json"
    words = ["verify", str(store), "-j", "1", "--report", str(document)]
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW_VERIFY, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while "reached" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "CL-CRC-BODY" in out
    verdict = out.splitlines()[-1]
    assert verdict.startswith("VERDICT      INCOMPLETE: 40 % read, DAMAGED at level deep: 1 error, ")
    assert verdict.endswith("; interrupted at physical offset 131 072")
    reported = json.loads(document.read_text())
    assert (reported["complete"], reported["verdict"]) == (False, "INCOMPLETE: 40 % read, DAMAGED")
    assert [segment["base"] for segment in reported["segments"]] == [0, 65536]


def test_ctrl_c_ends_the_other_threads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", 4 << 10)
    seen: list[int] = []

    def progress(size: int) -> None:
        seen.append(size)
        if len(seen) == 3:
            raise KeyboardInterrupt

    outcome = verify(open_store([str(HEALTHY)]), VerifyOptions(jobs=2), progress=progress)
    assert re.fullmatch(r"INCOMPLETE: \d % read, no damage so far", outcome.verdict)
    assert outcome.interrupted_at == sum(seen)


@pytest.mark.parametrize("words", [("decode", "-f", "jsonl"), ("verify", "-f", "jsonl", "--no-progress")])
def test_a_reader_that_has_seen_enough_ends_the_command_in_silence(words: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqinspect", *words, "-q", str(sample("flipped-bit-5.3.3"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything was written
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=300) in (0, 3, 141)


@pytest.mark.parametrize(("command", "status"), [("verify", 3), ("forecast", 3), ("info", 0)])
def test_a_screen_that_nobody_reads_to_its_end_has_the_status_of_its_answer(command: str, status: int) -> None:
    """Whether the reader has left when the last line is written is chance."""
    store = sample("flipped-bit-5.3.3")
    with subprocess.Popen(
        [sys.executable, "-m", "rmqinspect", command, "-q", "--color", "always", str(store)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()  # before anything was written
        assert process.wait() == status


# --- random damage ------------------------------------------------------------------------------------------

MUTATIONS = 60
DAMAGED_CASES = ("base-5.5.0-clean", "base-4.7.1-halt", "none-5.2.0-p")
TABLES = ("messages", "messages", "gaps", "segments", "queue_units", "index_entries", "checkpoint")


def _mutate(dice: random.Random, raw: bytes) -> bytes | None:
    """Return the bytes of a file after some random accident; None: it is gone."""
    start, size = dice.randrange(len(raw)), dice.choice((1, 4, 100, 5000, 40000))
    end = min(start + size, len(raw))
    match dice.choice(("random", "random", "random", "zeros", "zeros", "cut", "grow", "moved", "moved", "gone")):
        case "random":
            return raw[:start] + dice.randbytes(end - start) + raw[end:]
        case "zeros":
            return raw[:start] + bytes(end - start) + raw[end:]
        case "cut":
            return raw[:start]
        case "grow":
            return raw + dice.randbytes(size)
        case "moved":
            there = dice.randrange(len(raw) - (end - start) + 1)
            return raw[:there] + raw[start:end] + raw[there + end - start :]
    return None


@pytest.mark.parametrize("case", DAMAGED_CASES)
def test_random_damage_never_breaks_verify_or_decode(run: Run, tmp_path: Path, case: str, all_cases: bool) -> None:
    store = oracle.copy("crash", case, tmp_path)
    sound = {path: path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file() and path.stat().st_size}
    log = [path for path in sound if path.parent.name == "commitlog"]
    for seed in range(MUTATIONS // len(DAMAGED_CASES) // (1 if all_cases else 4)):
        dice = random.Random(f"{case} {seed}")
        chosen = {dice.choice(log if dice.random() < 0.7 else list(sound)) for _ in range(dice.randint(1, 3))}
        now = {path: _mutate(dice, sound[path]) for path in chosen}
        for path, raw in now.items():
            path.unlink() if raw is None else path.write_bytes(raw)

        outcome = verify(open_store([str(store)]), VerifyOptions())
        for account in outcome.accounts:
            assert account.total == account.segment.size, (seed, account)
        status, out, _ = run("verify", store, "-f", "json", "-j", "1")
        assert status == (3 if outcome.errors else 0), seed
        json.loads(out)
        status, out, _ = run("decode", store, "-f", "csv", "--table", dice.choice(TABLES), "-j", "1")
        assert status in (0, 3), seed

        for path, before in now.items():
            assert (path.read_bytes() if path.exists() else None) == before, seed
            path.write_bytes(sound[path])
    assert {path: path.read_bytes() for path in sorted(store.rglob("*")) if path in sound} == sound


def test_a_log_cut_anywhere_is_whole_up_to_there(tmp_path: Path) -> None:
    """Its records are a prefix. What is left of the next one is told, unless it is nothing but zeros."""
    pieces = [{"queue_offset": number, "body": b"%d" % number} for number in range(5)]
    raw = fill(lay(pieces), 700)
    ends = [len(lay(pieces[:number])) for number in range(6)]
    for end in range(1, len(raw)):
        segment = write_segment(tmp_path / "commitlog", raw[:end])
        outcome = verify(open_store([str(tmp_path / "commitlog")]), VerifyOptions())
        (account,) = outcome.accounts
        assert account.total == segment.size
        whole = max(number for number, place in enumerate(ends) if place <= end)
        assert account.records == whole
        if not any(raw[ends[whole] : end]):
            assert outcome.findings.rows == [], end
        else:
            (finding,) = outcome.findings.rows
            assert finding.physical_offset == ends[whole], end
            torn = ("CL-TORN-TAIL", "CL-MAGIC", "CL-LENGTH") if end < ends[-1] + 8 else ("CL-BLANK-SIZE",)
            assert finding.code in torn, end
