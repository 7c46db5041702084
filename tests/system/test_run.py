"""The object `run`, with which every document ends: all that differs between two runs, and nothing else."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.system import filesystem, output_file
from rmqinspect.system.run import Run as RunPart
from rmqinspect.system.run import tool_digest
from rmqinspect.verify.report import ReportedRun
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import ROOT, sample

run = runner()
STORE = str(sample("killed-4.9.7"))

# A command of each kind that writes a document; {} is the store.
COMMANDS = (
    "info {}",
    "decode {} -n 1",
    "decode {} --table queues",
    "find {} --offset 0",
    "find {} --pull TopicTest 0 0",
    "transactions {}",
    "delays {}",
    "groups {}",
    "usage {}",
    "forecast {}",
    "show {} --at 0",
    "diff {} {}",
    "id C0A8010A1A2B18B4AAC263ABFA530007",
    "explain CL-CRC-BODY",
    "info {} a={}",
)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    output_file.writes_sums = False


def document(run: Run, *words: str) -> dict[str, Any]:
    """Return the document that a command prints."""
    _, out, _ = run(*words)
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("words", COMMANDS)
def test_every_document_ends_with_the_run_and_differs_in_nothing_else(run: Run, words: str) -> None:
    asked = [*words.replace("{}", STORE).split(), "-f", "json"]
    first, again = document(run, *asked), document(run, *asked, "--case", "C-7", "--examiner", "Ä. Meier")
    told, later = first.pop("run"), again.pop("run")
    for one in (*first.pop("stores", ()), *again.pop("stores", ())):  # of several stores, each has its own
        assert one.pop("run", None) is not None or "hits" in one
    assert first == again
    assert told.keys() == later.keys() == set(RunPart.__struct_fields__)
    assert (told["case"], later["case"], later["examiner"]) == (None, "C-7", "Ä. Meier")
    assert (told["host"], told["folder"]) == (platform.node(), os.getcwd())
    assert set(told["stores"]) == ({STORE} if STORE in asked else set())
    assert told["arguments"] == asked


def test_the_report_of_verify_has_it_too(run: Run, tmp_path: Path) -> None:
    report = tmp_path / "R.json"
    run("verify", STORE, "--report", str(report), "--case", "C-7", "-q")
    told = json.loads(report.read_bytes())["run"]
    assert told.keys() == set(ReportedRun.__struct_fields__)
    assert (told["case"], told["stores"], told["outputs"]) == ("C-7", [STORE], [str(report)])


def test_redacted_it_names_no_host_no_user_no_path_and_no_value(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    words = ["find", STORE, "-kSECRET-1", "--key", "SECRET-2", "--key=SECRET-3", "--redact", "body", "--case", "C-7"]
    run(*words, "-f", "json", "-o", str(out))
    told = json.loads(out.read_bytes())["run"]
    hidden = "(hidden)"
    assert told["arguments"][:6] == [hidden, hidden, f"-k{hidden}", "--key", hidden, f"--key{hidden}"]
    said = json.dumps(told)
    for value in ("SECRET", STORE, str(tmp_path), os.getcwd()):
        assert value not in said
    assert (told["host"], told["user"], told["stores"], told["case"]) == (None, None, [], "C-7")


def test_the_digest_of_the_tool_is_that_of_coreutils() -> None:
    command = (ROOT / "docs" / "report.md").read_text("utf-8").split("```sh\nfind -L ")[1].split("\n```")[0]
    printed = subprocess.run(["bash", "-c", f"find -L {command}"], cwd=ROOT, capture_output=True, check=True, text=True)
    assert printed.stdout.split() == [tool_digest(), "-"]


# --- access times -------------------------------------------------------------------------------------------


def test_access_times_are_kept(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a file system that is mounted noatime: there the flag is all that can be seen."""
    store = tmp_path / "store"
    shutil.copytree(STORE, store)
    files = [path for path in store.rglob("*") if path.is_file()]
    for path in files:
        os.utime(path, (1_000_000_000, path.stat().st_mtime))
    flags: dict[str, int] = {}
    real = os.open

    def watched(path: Any, flag: int, *more: Any, **named: Any) -> int:
        flags[str(path)] = flag
        return real(path, flag, *more, **named)

    monkeypatch.setattr(os, "open", watched)
    run("verify", str(store), "--hash", "sha256", "--report", str(tmp_path / "R.json"), "-q")
    assert {path for path in flags if path.startswith(f"{store}/")} == {str(path) for path in files}
    assert all(flags[str(path)] & os.O_NOATIME for path in files)
    assert {int(path.stat().st_atime) for path in files} == {1_000_000_000}
    assert json.loads((tmp_path / "R.json").read_bytes())["run"]["access_times"] == "kept"


@pytest.mark.skipif(sys.platform != "linux", reason="O_NOATIME is of Linux")
def test_what_belongs_to_another_user_is_opened_all_the_same_and_that_is_told(tmp_path: Path) -> None:
    """The system itself refuses the flag: EPERM, open(2)."""
    foreign = Path("/etc/passwd") if os.geteuid() else tmp_path / "file"
    if not os.geteuid():
        foreign.write_bytes(b"content")
        for folder in (tmp_path, *tmp_path.parents):
            if folder != Path("/") and not folder.stat().st_mode & 1:
                folder.chmod(folder.stat().st_mode | 0o11)
    child = os.fork()
    if not child:
        status = 1
        try:
            if not os.geteuid():
                os.setuid(65534)
            filesystem.opened.clear()
            os.read(filesystem.open_evidence(str(foreign)), 1)
            status = 0 if filesystem.access_times() == "may have changed" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- digests beside the files -------------------------------------------------------------------------------


def check(list_: Path, folder: Path) -> str:
    """Return what `sha256sum -c` prints of a list."""
    words = ["sha256sum", "-c", str(list_)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
    return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", ["a.json", "a b.json", "back\\slash.json", "line\nend.json"])
def test_sha256sum_takes_the_list_beside_a_file(run: Run, tmp_path: Path, name: str) -> None:
    assert run("info", STORE, "-f", "json", "-o", str(tmp_path / name), "--sums")[0] == 0
    assert check(tmp_path / f"{name}.sha256", tmp_path).endswith(": OK\n")
    (tmp_path / name).write_bytes(b"changed")
    assert check(tmp_path / f"{name}.sha256", tmp_path).startswith("1: ")


def test_nothing_lies_beside_a_file_unless_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    run("info", STORE, "-o", str(tmp_path / "info.txt"))
    assert os.listdir(tmp_path) == ["info.txt"]


def test_an_earlier_list_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    earlier = tmp_path / "R.json.sha256"
    earlier.write_text("mine")
    status, _, err = run("verify", STORE, "--report", str(tmp_path / "R.json"), "--sums")
    assert (status, os.listdir(tmp_path), earlier.read_text()) == (6, ["R.json.sha256"], "mine")
    assert "exists already" in err


def test_the_digests_of_the_files_are_a_list_for_sha256sum(run: Run, tmp_path: Path) -> None:
    store = oracle.copy("broker", "main-4.7.1", tmp_path / "copy")
    (store / "a name\nwith \\ all").write_bytes(b"1")
    run("verify", str(store), "--hash", "sha256", "--report", str(tmp_path / "R.json"), "--sums", "-q")
    printed = check(tmp_path / "R.json.files.sha256", store)
    assert printed.count(": OK\n") == sum(path.is_file() for path in store.rglob("*"))
    assert check(tmp_path / "R.json.sha256", tmp_path) == "R.json: OK\n"
    assert {path.name for path in tmp_path.glob("R.*")} == {"R.json", "R.json.sha256", "R.json.files.sha256"}
