"""Chain of custody and the manners of long runs: digests, changes, comparison, Ctrl-C, announcements."""

import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import rmqinspect.cli.verify as command
import rmqinspect.verify.run
from rmqinspect.cli.terminal import LONG_READ, Progress
from rmqinspect.document import page_rows
from rmqinspect.errors import Unreadable
from rmqinspect.store.discover import open_store
from rmqinspect.store.reader import FileReader
from rmqinspect.system.interrupt import raise_interrupt
from rmqinspect.text import count
from rmqinspect.times import format_nanos
from rmqinspect.verify.custody import Digests, Watch
from rmqinspect.verify.next_start import VERSION_FIELDS
from rmqinspect.verify.report import Report
from rmqinspect.verify.result import VerifyResult
from tests.support import oracle
from tests.support.building import STORED, lay, pad, write_segment
from tests.support.command import Run, runner
from tests.support.documents import fields
from tests.support.samples import ROOT, sample

FLIPPED = sample("flipped-bit-5.3.3")
HEALTHY = sample("healthy-5.5.0")
SIZE = 16384
QUEUE = "consumequeue/TopicTest/0/" + "0" * 20
QUEUE_SIZE = 200


run = runner("verify")


def write_queue(root: Path, units: Sequence[tuple[int, int]], size: int) -> None:
    """Write the one queue file of the store: an offset and a length for each unit."""
    packed = [struct.pack(">qiq", offset, length, 0) for offset, length in units]
    (root / QUEUE).parent.mkdir(parents=True, exist_ok=True)
    (root / QUEUE).write_bytes(b"".join(packed).ljust(size, b"\0"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a whole small store that a test may change."""
    root = tmp_path / "S"
    log = lay([{}])
    write_segment(root / "commitlog", pad(log, SIZE))
    write_queue(root, [(0, len(log))], QUEUE_SIZE)
    (root / "checkpoint").write_bytes(struct.pack(">3q", STORED, STORED, STORED).ljust(4096, b"\0"))
    return root


class Reports:
    """Runs verify with a report, under a new name each time."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.folder, self.number = run, folder, 0
        self.status = -1
        self.out = self.err = ""

    def __call__(self, *words: str | Path) -> dict[str, Any]:
        self.number += 1
        self.path = self.folder / f"report-{self.number}.json"
        self.status, self.out, self.err = self.run(*words, "--report", self.path)
        document: dict[str, Any] = json.loads(self.path.read_text())
        return document


@pytest.fixture
def report(run: Run, tmp_path: Path) -> Reports:
    return Reports(run, tmp_path)


HASH = ("--hash", "sha256")
REFUSED = "seg_long_mid-5.3.3-h"  # a segment is too long: the broker does not start


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen while verify runs: after the names were listed, before anything is read."""
    real = rmqinspect.verify.run.verify

    def acted(*words: Any, **named: Any) -> VerifyResult:
        act()
        return real(*words, **named)

    monkeypatch.setattr("rmqinspect.verify.run.verify", acted)


# --- the report and its page --------------------------------------------------------------------------------

TYPES: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
FREE = ("counts", "loss.messages", "run.libraries")  # objects whose names the evidence decides


def documented() -> dict[str, str]:
    """Return the type of each field as the page has it."""
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    rows: list[tuple[str, str]] = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \| .+ \|$", page, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_the_page_says_of_every_field_what_its_struct_says() -> None:
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \| (.+) \|$", page, re.MULTILINE))
    assert rows == set(page_rows(Report))
    section = page.split("\n## The next start\n", 1)[1].split("\n| field |", 1)[0]
    assert tuple(re.findall(r"`(\w+)`", section.split("is null:", 1)[1])) == VERSION_FIELDS


def with_loss(root: Path) -> Path:
    """Add a queue whose second unit is of a record behind the log's end."""
    write_segment(root / "commitlog", pad(lay([{}, {"queue_offset": 1}]), SIZE))
    size = len(lay([{}]))
    write_queue(root, [(at, size) for at in (0, size, 2 * size)], 400)
    return root


def test_the_page_has_every_field_of_the_report_and_no_other(
    report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_loss(store)
    os.mkfifo(store / "fifo")
    documents = [report(FLIPPED, "--level", "deep", *HASH), report(store), report(FLIPPED, "--level", "quick")]
    documents.append(report(oracle.store("crash", REFUSED), "--level", "quick"))
    report(FLIPPED)
    documents.append(report(FLIPPED, "--since", report.path, "--reread", "100%"))
    meanwhile(monkeypatch, lambda: (store / "new").touch())
    documents.append(report(store, *HASH))
    types = documented()
    seen = set()
    for path, value in (field for document in documents for field in fields(document, FREE)):
        if path.startswith("next_start.versions[]."):
            continue  # as in the document of forecast
        seen.add(path)
        assert any(TYPES[kind](value) for kind in types[path].split(" or ")), (path, value)
    assert seen == types.keys()


def test_two_runs_differ_in_the_object_run_alone(report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when several threads share many splits and many files."""
    monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", 8192)
    first, again = (report(FLIPPED, "--level", "deep", *HASH, "-j", jobs) for jobs in ("1", "3"))
    assert [first.pop("run")["jobs"], again.pop("run")["jobs"]] == [1, 3]
    assert json.dumps(first) == json.dumps(again)


def test_the_digest_of_the_report_is_told(report: Reports, store: Path) -> None:
    report(store)
    digest = hashlib.sha256(report.path.read_bytes()).hexdigest()
    assert report.err.splitlines()[-1] == f"{report.path}  sha256 {digest}"
    report(store, "-q")
    assert report.err == ""


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_read(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").write_text("mine")
    before = sorted(os.listdir(store))
    meanwhile(monkeypatch, lambda: pytest.fail("the store was read"))
    for option in ("--report", "-o"):
        for path in (tmp_path / "there", store / "report.json"):
            status, out, err = run(store, option, path)
            assert (status, out, err.count("\n")) == (6, "", 1)
    assert ((tmp_path / "there").read_text(), sorted(os.listdir(store))) == ("mine", before)


# --- digests ------------------------------------------------------------------------------------------------


def digests(document: dict[str, Any]) -> dict[str, str]:
    return {entry["file"]: entry["sha256"] for entry in document["custody"]["files"]}


def others(document: dict[str, Any]) -> dict[str, str]:
    return {entry["file"]: entry["what"] for entry in document["custody"]["others"]}


@pytest.mark.parametrize("name", ["healthy-5.5.0", "killed-4.9.7", "zeroed-page-4.7.1"])
def test_every_file_of_a_real_store_has_its_digest_size_and_time(report: Reports, name: str) -> None:
    root = sample(name)
    document = report(root, *HASH)
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    assert digests(document) == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    for entry in document["custody"]["files"]:
        status = files[entry["file"]].stat()
        assert (entry["size"], entry["mtime"]) == (status.st_size, format_nanos(status.st_mtime_ns))
    assert (document["custody"]["changed"], document["complete"]) == ([], True)
    size = sum(path.stat().st_size for path in files.values())
    screen = re.sub(r"\s+", " ", report.out)
    totals = f"{count(len(files), 'file')}, {count(size, 'byte')}"
    assert f"custody {totals}: sha256, size and time of each are in {report.path} opened" in screen
    assert "opened for reading only; sizes and times the same before and after the run" in screen


def test_what_no_store_holds_is_listed_and_nothing_is_followed_or_opened(
    report: Reports, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    deep = store.joinpath(*"abcdefghij")
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"deep")
    (store / "hidden\n\x1b[31m").write_bytes(b"odd")
    (store / "out").symlink_to(tmp_path / "outside")
    (store / "in").symlink_to("checkpoint")
    (store / "up").symlink_to("..")
    (store / "empty").mkdir()
    os.mkfifo(store / "fifo")
    document = report(store, *HASH)
    found = digests(document)
    assert found.keys() == {"checkpoint", f"commitlog/{0:020}", QUEUE, "a/b/c/d/e/f/g/h/i/j/file", "hidden\n\x1b[31m"}
    assert found["a/b/c/d/e/f/g/h/i/j/file"] == hashlib.sha256(b"deep").hexdigest()
    assert others(document) == {
        "out": f"a link to {tmp_path}/outside",
        "in": "a link to checkpoint",
        "up": "a link to ..",
        "empty/": "an empty folder",
        "fifo": "neither a folder nor a regular file",
    }
    assert report.run(store, "--against", report.path)[0] == 0


def test_loose_files_and_several_folders_are_listed_under_names_of_their_own(report: Reports, tmp_path: Path) -> None:
    segments = [write_segment(tmp_path / name, pad(lay([{}]), SIZE)) for name in ("a", "b")]
    document = report(*(segment.path for segment in segments), *HASH)
    assert list(digests(document)) == [f"{0:020}", f"{0:020} (2)"]
    document = report(tmp_path / "a", tmp_path / "b", *HASH)
    assert list(digests(document)) == [f"a/{0:020}", f"b/{0:020}"]
    assert document["custody"]["files"][0]["sha256"] == hashlib.sha256(Path(segments[0].path).read_bytes()).hexdigest()


def test_a_hole_is_hashed_as_the_zeros_it_reads_as_and_is_not_read(store: Path) -> None:
    path = store / "sparse"
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(8 << 20)
        file.write(b"end")
        file.truncate(20 << 20)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no holes")
    watch = Watch(open_store([str(store)]))
    before = FileReader.bytes_read
    with_digest = watch.take_digests(["sparse"], 1)
    with_digest.wait(lambda raw: None)
    assert FileReader.bytes_read - before < 3 << 20
    assert watch.conclude().digests == {"sparse": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_the_digests_report_their_progress_to_the_last_byte(store: Path) -> None:
    watch = Watch(open_store([str(store)]))
    reported: list[int] = []
    watch.take_digests(watch.before.exhibits, 2).wait(reported.append)
    assert sum(reported) == watch.conclude().size == SIZE + QUEUE_SIZE + 4096


def test_a_file_that_cannot_be_opened_has_no_digest_and_the_verdict_is_incomplete(
    report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "odd").write_bytes(b"odd")
    real = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(path).endswith("/odd"):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    document = report(store, *HASH)
    assert (report.status, document["verdict"], document["unread"]) == (
        4,
        "INCOMPLETE: 1 place not read, no damage so far",
        ["odd: Permission denied"],
    )
    assert digests(document)["odd"] is None
    assert "sha256 of 3, size and time of each" in re.sub(r"\s+", " ", report.out)


def test_a_hash_needs_a_report_to_be_written_into(run: Run, store: Path) -> None:
    status, out, err = run(store, *HASH)
    assert (status, out) == (2, "")
    assert "--report" in err


# --- changes while the run reads ----------------------------------------------------------------------------


def replace_file(path: Path) -> None:
    """Put another file with the same content, size and time in the place of a file."""
    status = path.stat()
    shutil.copy2(path, path.with_name("twin"))
    os.replace(path.with_name("twin"), path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def link_file(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


CHANGES: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "grown": (
        lambda root: (root / "checkpoint").write_bytes(bytes(5000)),
        "checkpoint",
        "changed",
        "5 000 bytes, was 4 096",
    ),
    "written": (
        lambda root: os.utime(root / "checkpoint", (1, 1)),
        "checkpoint",
        "changed",
        "written 1970-01-01T00:00:01.000000000Z, before that ",
    ),
    "replaced": (
        lambda root: replace_file(root / "checkpoint"),
        "checkpoint",
        "changed",
        "another file under the same name",
    ),
    "added": (lambda root: (root / "new").touch(), "new", "added", "was not there"),
    "gone": (lambda root: (root / "odd").unlink(), "odd", "gone", "is not there any more"),
    "filled": (lambda root: (root / "empty" / "first").touch(), "empty/first", "added", "was not there"),
    "a folder": (lambda root: (root / "folder").mkdir(), "folder/", "added", "was not there"),
    "linked": (lambda root: link_file(root / "odd", "x"), "odd", "changed", "a link to x, was a file"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_it_was_read_makes_the_outcome_incomplete(
    report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (store / "odd").touch()
    (store / "empty").mkdir()
    act, name, kind, what = CHANGES[change]
    meanwhile(monkeypatch, lambda: act(store))
    document = report(store, *HASH, "--fail-on", "error", "--skip", "ST-CHECKPOINT")
    (reported,) = document["custody"]["changed"]
    assert (reported["file"], reported["kind"]) == (name, kind)
    assert reported["what"].startswith(what)
    verdict = f"INCOMPLETE: {count(len(document['unread']), 'place')} not read, no damage so far"
    assert (report.status, document["complete"], document["verdict"]) == (4, False, verdict)
    assert document["unread"][-1] == f"{name}: changed while it was read: {reported['what']}"
    assert f"changed while it was read: {name}: " in report.out
    assert report.out.splitlines()[-1].endswith("; 1 file changed while being read")
    assert "the same before and after" not in report.out


def test_without_a_hash_no_change_is_looked_for(report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, lambda: (store / "new").touch())
    document = report(store)
    assert (report.status, document["complete"]) == (0, True)
    assert document["custody"]["algorithm"] is None
    assert set(digests(document).values()) == {None}
    assert "custody" not in report.out


# --- against a report ---------------------------------------------------------------------------------------


def test_files_that_are_the_same_are_said_to_be(report: Reports, store: Path, tmp_path: Path) -> None:
    ended = report(store, *HASH)["run"]["ended"]
    moment = re.sub(r"\.\d+Z$", "Z", ended)
    words = f"3 files as recorded on {moment}: same names, sizes, sha256"
    assert report.run(store, "--against", report.path) == (0, words + "\n", "")
    # A copy is the same, whatever its times; and so is one seen through a folder around it.
    copy = shutil.copytree(store, tmp_path / "around" / "copy")
    os.utime(copy / "checkpoint", (1, 1))
    assert report.run(copy, "--against", report.path) == (0, words + "; 1 with another time\n", "")
    assert report.run(tmp_path / "around", "--against", report.path)[0] == 0
    assert report.run(store, "--against", report.path, "-q") == (0, "", "")


def test_every_difference_is_named(report: Reports, store: Path) -> None:
    for name in ("goes", "grows", "turns"):
        (store / name).write_bytes(b"12345")
    report(store, *HASH)
    was = hashlib.sha256(b"12345").hexdigest()
    (store / "goes").unlink()
    (store / "grows").write_bytes(b"123456")
    os.utime((store / "turns"), (1, 1))
    (store / "turns").write_bytes(b"12346")
    now = hashlib.sha256(b"12346").hexdigest()
    (store / "comes").touch()
    status, out, err = report.run(store, "--against", report.path)
    assert (status, err) == (3, "")
    *lines, last = out.splitlines()
    assert lines == [
        "added    comes: was not there",
        "gone     goes: is not there any more",
        "changed  grows: 6 bytes, was 5",
        f"changed  turns: sha256 {now}, was",
        f"         {was}",
    ]
    assert last.startswith("DIFFERENT from the 6 files recorded on ")
    assert last.endswith(": 1 added, 2 changed, 1 gone")
    assert report.run(store, "--against", report.path, "--fail-on", "never")[0] == 0
    assert report.run(store, "--against", report.path, "-q") == (3, "", "")


def test_a_single_flipped_bit_is_a_difference(report: Reports, store: Path) -> None:
    report(store, *HASH)
    segment = store / "commitlog" / f"{0:020}"
    raw, times = bytearray(segment.read_bytes()), segment.stat()
    raw[-1] ^= 1
    segment.write_bytes(raw)
    os.utime(segment, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert report.run(store, "--against", report.path)[0] == 3


def test_without_digests_sizes_and_times_are_compared_and_that_is_said(report: Reports, store: Path) -> None:
    report(store)
    status, out, _ = report.run(store, "--against", report.path)
    assert status == 0
    assert out.endswith(": same names, sizes, times; no digests to compare\n")
    os.utime(store / "checkpoint", (1, 1))
    status, out, _ = report.run(store, "--against", report.path)
    assert status == 3
    assert out.startswith("changed  checkpoint: written 1970-01-01T00:00:01.000000000Z, before that\n")


def test_only_what_a_digest_decides_is_read(report: Reports, store: Path) -> None:
    (store / "grows").write_bytes(bytes(1000))
    report(store, *HASH)
    (store / "grows").write_bytes(bytes(1 << 20))
    (store / "new").write_bytes(bytes(1 << 20))
    before = FileReader.bytes_read
    assert report.run(store, "--against", report.path)[0] == 3
    assert FileReader.bytes_read - before == SIZE + QUEUE_SIZE + 4096


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "[]",
        "{}",
        '{"verdict": "WHOLE", "run": {}, "custody": null, "schema_version": 1}',
        '{"verdict": "WHOLE", "run": {"ended": ""}, "custody": {"files": [{}], "others": []}, "schema_version": 1}',
        '{"verdict": "WHOLE", "run": {"ended": ""}, "custody": {"files": [], "others": []}, "schema_version": 2}',
    ],
)
def test_what_is_no_report_is_wrong_usage(run: Run, store: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "report").write_text(text)
    status, out, err = run(store, "--against", tmp_path / "report")
    assert (status, out) == (2, "")
    assert "--against" in err


def test_a_report_or_a_file_that_cannot_be_read_ends_with_4(
    report: Reports, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = report.run(store, "--against", tmp_path / "absent")
    assert (status, out, err.count("\n")) == (4, "", 1)
    report(store, *HASH)
    real = FileReader.read_into

    def fail(self: FileReader, buffer: Any, offset: int) -> int:
        if self.file.name == "checkpoint":
            raise Unreadable(f"checkpoint at {offset}: Input/output error")
        return real(self, buffer, offset)

    monkeypatch.setattr(FileReader, "read_into", fail)
    status, out, err = report.run(store, "--against", report.path)
    assert (status, err) == (4, "checkpoint at 0: Input/output error\n")
    assert out.startswith("INCOMPLETE: 1 place unreadable or changed meanwhile: ")


@pytest.mark.parametrize("words", [("--report", "x"), HASH, ("-f", "json"), ("-o", "x"), ("--check", "CL-MAGIC")])
def test_what_needs_checks_does_not_go_with_against(report: Reports, store: Path, words: tuple[str, str]) -> None:
    report(store)
    assert report.run(store, "--against", report.path, *words)[:2] == (2, "")
    assert not Path("x").exists()


# --- Ctrl-C -------------------------------------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGINT)
    return []


def twice(*_: object, **__: object) -> Any:
    """Press Ctrl-C, and again while the verdict is made."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT)
        raise


# Where it comes, and what the verdict then says of a store with one error that its names show.
RUN = "rmqinspect.verify.run.VerifyRun"
PLACES = {
    "names": (
        "rmqinspect.verify.run.check_files",
        "INCOMPLETE: 0 % read, no damage so far",
        "; interrupted at physical offset 0",
    ),
    "surveys": (f"{RUN}.survey", "INCOMPLETE: 0 % read, DAMAGED", "; interrupted at physical offset 0"),
    "log": (f"{RUN}.read_log", "INCOMPLETE: 0 % read, DAMAGED", "; interrupted at physical offset 0"),
    "judgement": (f"{RUN}.result", "INCOMPLETE: 0 % read, DAMAGED", "; interrupted at physical offset 0"),
    "digests": ("rmqinspect.verify.custody.Digests.wait", "INCOMPLETE: 100 % read, DAMAGED", ""),
}


@pytest.mark.parametrize("press", [interrupt, twice])
@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_leaves_a_partial_verdict_and_a_report(
    report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch, place: str, press: Callable[..., Any]
) -> None:
    (store / "commitlog" / "x.bak").touch()
    where, verdict, words = PLACES[place]
    monkeypatch.setattr(where, press)
    document = report(store, *HASH)
    last = report.out.splitlines()[-1]
    assert (report.status, document["verdict"], document["complete"]) == (130, verdict, False)
    assert last.startswith(f"VERDICT      {verdict} at level deep: ")
    assert last.endswith(words)
    assert "Traceback" not in report.err
    assert signal.getsignal(signal.SIGINT) is raise_interrupt


def test_ctrl_c_while_digests_are_taken_keeps_those_that_are_there(
    report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Digests.digest_of

    def stop_at_checkpoint(self: Digests, file: Any) -> str | None:
        if file.name != "checkpoint":
            return real(self, file)
        assert self._stopped.wait(20)
        return None

    def wait(self: Digests, progress: Callable[[int], None]) -> None:
        for name in (f"commitlog/{0:020}", QUEUE):
            self._futures[name].result()
        interrupt()

    monkeypatch.setattr(Digests, "digest_of", stop_at_checkpoint)
    monkeypatch.setattr(Digests, "wait", wait)
    document = report(store, *HASH, "-j", "2")
    assert report.status == 130
    assert [name for name, digest in digests(document).items() if digest] == [f"commitlog/{0:020}", QUEUE]
    assert report.out.endswith("; interrupted while the digests were taken: 2 of 3 files\n")
    # What was recorded serves, and what was not is compared by its time.
    monkeypatch.undo()
    status, out, _ = report.run(store, "--against", report.path)
    assert status == 0
    assert out.endswith(": same names, sizes, sha256; 1 without a digest: same times\n")


def test_ctrl_c_before_the_files_are_listed_says_that_nothing_was_judged(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "scandir", interrupt)
    status, out, _ = run(store, "--report", tmp_path / "report.json")
    assert (status, out) == (
        130,
        "VERDICT      INCOMPLETE: nothing read, interrupted while the files were listed, at level deep\n",
    )
    assert run(store, "-q")[1] == ""


def test_ctrl_c_ends_a_comparison_with_what_was_compared(
    report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(store, *HASH)
    (store / "new").touch()
    monkeypatch.setattr(Digests, "wait", interrupt)
    status, out, _ = report.run(store, "--against", report.path)
    assert status == 130
    assert out.startswith("added    new: was not there\nINCOMPLETE: interrupted, ")
    assert re.search(
        r"INCOMPLETE: interrupted, [0-3] of 3 files read: DIFFERENT from the 3 files recorded on .*\n$", out
    )


def test_ctrl_c_while_modules_are_imported_ends_quietly() -> None:
    """It comes as soon as anything of the command line is imported."""
    program = (
        "import os, signal, sys\n"
        "name = sys.argv[1]\n"
        "class Finder:\n"
        "    def find_spec(self, module, *_):\n"
        "        if module == name: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv[1:] = ['verify', 'S']\n"
        "from rmqinspect.__main__ import main\n"
        "sys.exit(main())\n"
    )
    for name in ("rmqinspect.cli", "click", "rmqinspect.cli.verify", "numpy"):
        ended = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "rmqinspect: interrupted\n"), name


def test_an_ignored_ctrl_c_stays_ignored(report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell starts what runs in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        meanwhile(monkeypatch, interrupt)
        assert report(store)["complete"] is True
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# --- long runs ----------------------------------------------------------------------------------------------


def test_a_long_read_is_announced_with_the_reason_and_the_cheaper_way(
    run: Run, report: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(HEALTHY)[2].count("\n") == 1
    monkeypatch.setattr(command, "LONG_READ", 100_000)
    said = run(HEALTHY)[2].splitlines()
    assert said == [
        "4 segments, 13 queues, 3 index files, 286.1 kB to read: every record is checked against queues and index, "
        "and they against the log. --level quick reads 65.5 kB",
        "quick part done in 0 s: 0 errors; next start: STARTS with 5.5.0; what consumers lose by it was not counted",
    ]
    assert run(HEALTHY, "-q")[2] == ""
    report(HEALTHY, *HASH)
    assert re.search(r"against the log; \d+\.\d kB to hash, from the page cache\. --level", report.err)


def test_the_quick_part_tells_its_errors_at_once(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LONG_READ", 1000)
    for number in range(5):
        (store / "commitlog" / f".x{number}").touch()
    said = run(store)[2]
    words = ", ".join(f"CL-NAME commitlog/.x{number}" for number in range(3))
    assert f"quick part done in 0 s: 5 errors: {words}, …; next start: STARTS EMPTY with 4.9.2: " in said


def test_ctrl_c_after_the_quick_part_keeps_what_it_found(
    report: Reports, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LONG_READ", 1000)
    (store / "commitlog" / ".x").touch()
    monkeypatch.setattr(
        "rmqinspect.verify.run.VerifyRun.survey", lambda run: run.options.level == "quick" or interrupt()
    )
    document = report(store)
    assert (report.status, document["verdict"], document["errors"]) == (130, "INCOMPLETE: 0 % read, DAMAGED", 1)
    assert [row["code"] for row in document["findings"]] == ["CL-NAME"]


def test_a_broker_that_runs_is_told_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.store.reader.lock_holder", lambda store: 4711)
    first = run(HEALTHY)[2].splitlines()[0]
    running = "a broker runs on this store (pid 4711 holds the lock): the files may change while they are read"
    assert first == running


def test_a_long_read_tells_its_rate_once_where_no_terminal_shows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("rmqinspect.cli.terminal.time.monotonic", lambda: clock[0])
    line = "20 %  800.0 MB  80.0 MB/s  ETA 40 s"
    for total, forced, quiet, lines in (
        (4_000_000_000, None, False, [line]),
        (4_000_000_000, False, False, []),
        (4_000_000_000, None, True, []),
        (LONG_READ, None, False, []),
    ):
        clock[0] = 0.0
        with Progress(total, forced, quiet=quiet) as progress:
            for clock[0] in (9.0, 10.0, 20.0, 30.0):
                progress(400_000_000)
        assert capsys.readouterr().err.splitlines() == lines


# --- the configuration --------------------------------------------------------------------------------------


def test_a_size_in_the_configuration_that_is_none_is_told(run: Run, store: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(
        "brokerName = a\nmappedFileSizeCommitLog = 1G\x1b\nmaxIndexNum=0\nmaxHashSlotNum = 5000000\n"
        f"mappedFileSizeConsumeQueue = {'9' * 5000}\n"
    )
    status, _, err = run(store, "--config", config, "-q")
    assert status == 3  # no segment has the size that counts without these lines: the broker does not start
    assert err.splitlines() == [
        f"{config}: mappedFileSizeCommitLog = 1G\\x1b: not a positive number, ignored",
        f"{config}: mappedFileSizeConsumeQueue = {'9' * 80}: not a positive number, ignored",
        f"{config}: maxIndexNum = 0: not a positive number, ignored",
    ]
    config.write_text(f"mappedFileSizeCommitLog = {SIZE}\nmappedFileSizeConsumeQueue = {QUEUE_SIZE}\n")
    assert run(store, "--config", config, "-q", "--broker-version", "5.3.3") == (0, "", "")
