"""Stores behind URIs: the same answers as from a local copy, nothing written, and every way it can fail ends."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyarrow import fs

from rmqinspect.cli import ExitStatus, main
from rmqinspect.errors import NotAStore, Unreachable, Unreadable
from rmqinspect.store.discover import open_store
from rmqinspect.store.reader import RemoteReader
from rmqinspect.system import read_ahead as ranges
from rmqinspect.system import remote
from rmqinspect.system.read_ahead import AHEAD, CHUNK, ReadAhead
from rmqinspect.system.uri import is_below, join, shown, without_secrets
from tests.support import oracle
from tests.support.s3_server import BUCKET, CREDENTIALS, Server, Way, gate, serving
from tests.support.samples import NAMES, ROOT, sample
from tests.support.sampling import sampled

# Nothing wrong but that the broker was killed, with all that a broker writes; a torn record, a flipped bit, a
# lost segment.
CASES = ("killed-4.9.7", "torn_last-5.2.0-h", "flip_body_third-5.3.3-h", "seg_missing_mid-4.9.7-c")
DAMAGED = "flip_body_third-5.3.3-h"
SEGMENT = "00000000000000065536"  # of the damaged one, with the damage
# As they stand in a request; no file can be called so.
ODD = ("commitlog/a%3Fb", "commitlog//x", "commitlog/a%252Fb", "commitlog/..", "commitlog/%1B[31m", "abort/")
FOLDER, NUMBER = "a folder in the place of a file", "the name is not a number"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, serving() as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        for name in CASES:
            server.upload(store(name), f"{name}/store")
        server.upload(store(DAMAGED) / "commitlog", "odd/commitlog")
        for key in ODD:
            url = f"http://127.0.0.1:{server.port}/{BUCKET}/odd/{key}"
            urlopen(Request(url, b"abc", method="PUT")).close()
        before = listing(server)
        yield server
        assert listing(server) == before


def store(name: str) -> Path:
    return sample(name) if name in NAMES else oracle.store("crash", name)


def listing(server: Server) -> list[tuple[str, int, object]]:
    selector = fs.FileSelector(BUCKET, recursive=True)
    return [(info.path, info.size, info.mtime) for info in server.filesystem().get_file_info(selector)]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def run_main(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        arguments = [str(word) for word in words]
        if words[0] in ("decode", "verify"):
            arguments += ["-j", "1"]
        monkeypatch.setattr(sys, "argv", ["rmqinspect", *arguments])
        status = main(arguments)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run_main


def both(server: Server, name: str) -> tuple[Path, str]:
    return store(name), server.uri(f"{name}/store")


# --- the same answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sampled(CASES, 4))
def test_info_tells_the_same_facts(server: Server, run: Run, name: str) -> None:
    local, uri = both(server, name)
    here, there = (run("info", path, "-q", "-f", "json") for path in (local, uri))
    documents = [json.loads(out) for _, out, _ in (here, there)]
    for document in documents:
        del document["bytes_read"], document["run"]  # holes are read there
    assert [document["stop"].pop("lock_seen") for document in documents] == [True, False]
    assert documents[0] == documents[1]
    assert (here[0], here[2]) == (there[0], there[2])
    assert "a lock holder would not be visible from here" in run("info", uri)[1]


@pytest.mark.parametrize("name", sampled(CASES, 3))
def test_decode_prints_the_same_rows(server: Server, run: Run, name: str) -> None:
    local, uri = both(server, name)
    for words in (("-f", "jsonl"), ("--table", "queue_units", "-f", "csv"), ("--table", "queues")):
        here, there = (run("decode", path, *words) for path in (local, uri))
        assert here[1].count("\n") > 10
        assert here == there


@pytest.mark.parametrize("name", sampled(CASES, 4))
def test_verify_reports_the_same(server: Server, run: Run, tmp_path: Path, name: str) -> None:
    documents: list[dict[str, Any]] = []
    screens = []
    for path in both(server, name):
        report = tmp_path / f"{len(documents)}.json"
        status, out, err = run("verify", path, "--level", "deep", "--hash", "sha256", "--report", report)
        screens.append((status, err.splitlines()[0], [line for line in out.splitlines() if line.startswith("VERDICT")]))
        document = json.loads(report.read_text().replace(shown(str(path)), "STORE"))
        del document["run"]
        for file in document["custody"]["files"]:
            assert file.pop("mtime").endswith("Z")
        documents.append(document)
    assert len(documents[1]["custody"]["files"]) > 10
    assert documents[0] == documents[1]
    assert screens[0] == screens[1]


def test_an_uploaded_copy_is_what_was_recorded(server: Server, run: Run, tmp_path: Path) -> None:
    local, report = oracle.copy("crash", DAMAGED, tmp_path), tmp_path / "report.json"
    (local / "empty").mkdir()  # which no object store can have
    assert run("verify", local, "--hash", "sha256", "--report", report)[0] == ExitStatus.DAMAGE
    status, out, _ = run("verify", server.uri(f"{DAMAGED}/store"), "--against", report)
    assert (status, "same names, sizes, sha256" in out) == (ExitStatus.DONE, True)
    status, out, _ = run("verify", server.uri(f"{DAMAGED}/store/index"), "--against", report)
    assert (status, "gone     commitlog/" in out) == (ExitStatus.DAMAGE, True)


def test_two_threads_open_the_files_by_themselves(server: Server, run: Run) -> None:
    local, uri = both(server, DAMAGED)
    for words in (("decode", "-f", "jsonl"), ("verify", "--level", "deep", "-q", "-f", "csv")):
        ended = subprocess.run(
            [sys.executable, "-m", "rmqinspect", words[0], uri, *words[1:], "-j", "2"],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        here = run(words[0], local, *words[1:])
        assert here[0] == ExitStatus.DAMAGE
        assert (ended.returncode, ended.stdout.replace(shown(uri), str(local)), ended.stderr) == here


def test_a_record_is_shown_and_a_copy_is_compared_with_its_original(server: Server, run: Run) -> None:
    local, uri = both(server, DAMAGED)
    assert run("show", uri, "--at", "97187") == run("show", local, "--at", "97187")
    status, out, _ = run("diff", uri, local)
    assert status == ExitStatus.DONE
    assert f"A            s3://{BUCKET}/{DAMAGED}/store: 5 segments" in out
    status, out, _ = run("diff", local, server.uri("seg_missing_mid-4.9.7-c/store"))
    assert status == ExitStatus.DAMAGE


def test_pieces_are_found_as_they_are_here(server: Server, run: Run) -> None:
    local, uri = both(server, "killed-4.9.7")
    segment, queue = "commitlog/00000000000000131072", "consumequeue/%RETRY%g_retry_1/0/00000000000000000000"
    for piece in (segment, "commitlog", "consumequeue/OrderWork", queue, "index", "config/topics.json"):
        here = run("decode", local / piece, "-f", "jsonl")
        assert here[1]
        assert run("decode", join(uri, piece), "-f", "jsonl") == here


def test_stores_here_and_there_are_one_table(server: Server, run: Run) -> None:
    local = store("killed-4.9.7")
    uri = server.uri("seg_missing_mid-4.9.7-c")  # one level above the store, which is found
    words = ("--table", "segments", "--columns", "store,base", "-f", "csv")
    status, out, err = run("decode", local, uri, *words)
    assert (status, err.count("\n")) == (ExitStatus.DAMAGE, 2)  # a segment is missing there
    assert {line.split(",")[0] for line in out.splitlines()[1:]} == {"store", "seg_missing_mid-4.9.7-c"}


@pytest.mark.parametrize("verb", ["info", "forecast", "verify"])
def test_stores_here_and_there_have_a_line_each(server: Server, run: Run, verb: str) -> None:
    local, uri = both(server, "killed-4.9.7")
    words = ("-q", "--level", "quick") if verb == "verify" else ("-f", "jsonl")
    missing = server.uri("nowhere/store")
    status, out, _ = run(verb, f"here={local}", f"there={uri}", f"gone={missing}", *words)
    assert status == ExitStatus.UNREADABLE
    if verb != "verify":
        here, there, gone = map(json.loads, out.splitlines())
        assert gone == {"store": "gone", "error": f"{shown(missing)}: no such file or directory"}
        assert here["next_start" if verb == "info" else "queues"] == there["next_start" if verb == "info" else "queues"]


def test_a_file_uri_is_a_path(run: Run, tmp_path: Path) -> None:
    local = oracle.copy("crash", DAMAGED, tmp_path / "a b")
    uri = f"file://{tmp_path}/a%20b/store"
    assert run("decode", uri, "-f", "jsonl") == run("decode", local, "-f", "jsonl")
    status, _, err = run("decode", uri, "-o", f"{uri}/x.csv")
    assert (status, "lies inside the store" in err) == (ExitStatus.REFUSED, True)
    assert run("decode", uri, "-n", "1", "-o", f"file://{tmp_path}/o%20ut.csv")[0] == ExitStatus.DONE
    assert (tmp_path / "o ut.csv").is_file()


def test_only_what_reads_is_asked_for(server: Server, run: Run, tmp_path: Path) -> None:
    asked: list[str] = []

    def judge(request: str) -> Way:
        asked.append(request.split(" ")[0])
        return "pass"

    with gate(server, judge) as way:
        uri = way.uri(f"{DAMAGED}/store")
        run("info", uri)
        run("decode", uri)
        run("verify", join(uri, "commitlog"), "--report", tmp_path / "report.json", "--hash", "sha256")
        status, _, err = run("decode", uri, "-o", join(uri, "rows.csv"))
    assert (status, "only export writes to object storage" in err) == (ExitStatus.REFUSED, True)
    assert {*asked} == {"GET", "HEAD"}


def test_odd_keys_are_told_and_hide_nothing(server: Server, run: Run) -> None:
    status, out, _ = run("decode", server.uri("odd"), "-f", "jsonl")
    assert (status, out) == run("decode", store(DAMAGED) / "commitlog", "-f", "jsonl")[:2]
    odd = json.loads(run("info", server.uri("odd"), "-f", "json")[1])["oddities"]
    names = ["abort", "commitlog/\x1b[31m", "commitlog/a%2Fb", "commitlog/a?b"]
    assert odd == [[name, FOLDER if name == "abort" else NUMBER] for name in names]
    assert "commitlog/\\x1b[31m" in run("verify", server.uri("odd"))[1]


# --- what breaks --------------------------------------------------------------------------------------

PATIENCE = 2  # seconds: enough for this machine when it is busy
SAID = {"refuse": "permission denied", "stall": "Timeout was reached", "cut": "partial file"}


def one_line(outcome: tuple[int, str, str], beginning: str, words: str) -> None:
    status, out, err = outcome
    assert (status, out) == (ExitStatus.UNREADABLE, "")
    assert err.startswith(f"rmqinspect: s3://{beginning}"), err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("command", "way"), [("info", "refuse"), ("decode", "stall"), ("verify", "cut")])
def test_a_server_that_fails_from_the_start_ends_in_one_line(server: Server, run: Run, command: str, way: Way) -> None:
    requests: list[str] = []

    def judge(line: str) -> Way:
        requests.append(line)
        # An answer that is cut before any of its text is none; the answer to a HEAD has nothing to cut.
        return "pass" if way == "cut" and line.startswith("HEAD") else way

    with gate(server, judge, PATIENCE) as broken:
        one_line(run(command, broken.uri(f"{DAMAGED}/store"), "-q"), f"{BUCKET}/{DAMAGED}/store: ", SAID[way])
    assert 0 < len(requests) < 4, "it does not try for long"


@pytest.mark.parametrize(("command", "way"), [("info", "stall"), ("decode", "cut"), ("verify", "cut")])
def test_a_connection_that_breaks_in_a_segment_ends_in_one_line(
    server: Server, run: Run, command: str, way: Way
) -> None:
    segment = "commitlog/00000000000000000000"

    def judge(line: str) -> Way:
        return way if line.startswith("GET") and f"{segment} " in line else "pass"

    with gate(server, judge, PATIENCE) as broken:
        uri = broken.uri(f"{DAMAGED}/store")
        status, _, err = run(command, uri, "-q")
        assert status == ExitStatus.UNREADABLE
        assert err.startswith(f"rmqinspect: s3://{BUCKET}/{DAMAGED}/store/{segment} at 0 (0x0): ")
        assert SAID[way] in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["decode", "verify"])
def test_ctrl_c_does_not_wait_for_an_answer(server: Server, command: str) -> None:
    asked = Event()

    def judge(line: str) -> Way:
        if line.startswith("GET") and "commitlog/00000000000000000000 " in line:
            asked.set()
            return "stall"
        return "pass"

    with gate(server, judge, 60) as stalled:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqinspect", command, stalled.uri(f"{DAMAGED}/store"), "-j", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert asked.wait(50)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == ExitStatus.INTERRUPTED
    assert "INCOMPLETE" in out if command == "verify" else "interrupted" in err
    assert "Traceback" not in err


def test_one_segment_that_is_not_for_us_does_not_hide_the_others(server: Server, run: Run) -> None:
    with gate(server, lambda line: "refuse" if f"{SEGMENT} " in line else "pass") as partly:
        uri = partly.uri(f"{DAMAGED}/store/commitlog")
        status, out, err = run("decode", uri, "-f", "jsonl")
        assert f"{SEGMENT}: permission denied\n" in err
        assert "incomplete" in err
        assert status == ExitStatus.UNREADABLE  # the flipped bit is there
        assert out.count("\n") > 100
        status, out, _ = run("verify", uri)
        assert "INCOMPLETE" in out.splitlines()[-1]
        assert run("info", uri)[0] == ExitStatus.DONE  # which looks at the ends of the log only


def test_nobody_listens(run: Run, server: Server) -> None:
    nobody = Server(1)
    one_line(run("decode", nobody.uri("a/store")), f"{BUCKET}/a/store: ", "Could not connect")


def test_what_is_not_there_is_told(server: Server, run: Run) -> None:
    one_line(run("info", server.uri("none")), f"{BUCKET}/none: ", "no such file or directory")
    one_line(run("info", server.uri("a", bucket="nowhere")), "nowhere/a: ", "no such file or directory")


def test_a_service_that_has_never_answered_is_given_up_soon(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with gate(server, lambda line: "stall", 60) as stalled:
        uri = stalled.uri(f"{DAMAGED}/store").partition("&request_timeout")[0]
        remote.open_remote(uri)  # asks for nothing yet
        monkeypatch.setattr(remote, "_FIRST_PATIENCE", 0.5)
        monkeypatch.setattr(remote, "_awaited", {})
        for waited in ("0.5", "0"):  # all calls until the first answer have the time together
            with pytest.raises(Unreachable, match=rf"^s3://\S+/store: no answer in {waited} seconds$"):
                remote.stat(uri)
    monkeypatch.undo()
    monkeypatch.setattr(remote, "_awaited", {})
    answering = server.uri(f"{DAMAGED}/store").partition("&request_timeout")[0]
    assert remote._patience(answering, answering) < remote._PATIENCE
    remote.stat(answering)
    assert remote._patience(answering, answering) == remote._PATIENCE


CURL = "PerformWork() - CURL error [6]=Could not resolve hostname"
GOOGLE = (
    f"google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of {{}}{CURL} error_info="
    f"{{{{reason=, metadata={{{{gcloud-cpp.retry.original-message={{}}{CURL}}}}}}}}})"
)
NO_TOKEN = (
    "Could not create a OAuth2 access token to authenticate the request. The request was not sent, as such an access "
    "token is required to complete the request successfully. Learn more about Google Cloud authentication at "
    "https://cloud.google.com/docs/authentication. The underlying error message was: "
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (GOOGLE.format("", ""), "Could not resolve hostname"),
        (
            GOOGLE.format(NO_TOKEN, NO_TOKEN),
            "Could not create a OAuth2 access token to authenticate the request: Could not resolve hostname",
        ),
        (
            "google::cloud::Status(UNKNOWN: Permanent error, with a last message of "
            f"{NO_TOKEN}Cannot open credentials file /x.json error_info={{}}",
            "Could not create a OAuth2 access token to authenticate the request: Cannot open credentials file /x.json",
        ),
        (
            "Unable to load libjvm\ndlopen(/usr/lib/jvm/x/libjvm.so) failed: …",
            "Java's libjvm.so cannot be loaded: JAVA_HOME leads to it",
        ),
        (
            "Unable to load libhdfs\ndlopen(libhdfs.so) failed: …",
            "Hadoop's libhdfs.so cannot be loaded: HADOOP_HOME or ARROW_LIBHDFS_DIR leads to it",
        ),
        (
            "Prior attempt to load libhdfs failed",
            "Hadoop's libhdfs.so cannot be loaded: HADOOP_HOME or ARROW_LIBHDFS_DIR leads to it",
        ),
    ],
)
def test_a_library_is_quoted_in_one_sentence(said: str, told: str) -> None:
    failed: Future[None] = Future()
    failed.set_exception(OSError(said))
    with pytest.raises(Unreachable, match=rf"^gs://anonymous@b/x: {re.escape(told)}$"):
        remote.result_of(failed, "gs://anonymous@b/x")


def test_google_is_not_waited_for_longer_than_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_GOOGLE_PATIENCE", 0.01)
    for patience in (None, 300.0):  # an upload, a read
        with pytest.raises(Unreachable, match=r"no answer in 0.01 seconds"):
            remote.result_of(Future(), "gs://anonymous@b/x", 16, patience)
    with pytest.raises(Unreachable, match=r"no answer in 0.02 seconds"):
        remote.result_of(Future(), "gs://anonymous@b/x?retry_limit_seconds=60", 16, 0.02)


def test_where_google_finds_no_credentials_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    told = (
        r"no answer in 0.01 seconds; no credentials were found: GOOGLE_APPLICATION_CREDENTIALS leads to them, "
        r"gs://anonymous@BUCKET needs none"
    )
    for uri, words in (("gs://b/x", told), ("gs://anonymous@b/x", "no answer in 0.01 seconds")):
        with pytest.raises(Unreachable, match=rf"^{uri}: {words}$"):
            remote.result_of(Future(), uri, None, 0.01)
    (tmp_path / "application_default_credentials.json").touch()
    with pytest.raises(Unreachable, match=r"^gs://b/x: no answer in 0.01 seconds$"):
        remote.result_of(Future(), "gs://b/x", None, 0.01)


def test_a_service_without_limits_of_its_own_is_not_waited_for_ever() -> None:
    with pytest.raises(Unreachable, match=r"^hdfs://h/x at 16 \(0x10\): no answer in 0.01 seconds$"):
        remote.result_of(Future(), "hdfs://user:password@h/x?y=z".replace("user:password@", ""), 16, 0.01)


# --- names and secrets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "visible"),
    [
        ("s3://bucket/a/b?endpoint_override=x&scheme=http", "s3://bucket/a/b"),
        ("s3://bucket/a?b?scheme=http", "s3://bucket/a?b"),
        ("s3://KEY:SECRET@bucket/a", "s3://KEY:…@bucket/a"),
        ("s3://KEY:SEC/RET@bucket/a", "s3://KEY:…@bucket/a"),
        ("hdfs://host:8020/a@b", "hdfs://host:8020/a@b"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("abfss://:SECRET@container.dfs/a", "abfss://:…@container.dfs/a"),
        ("/a?b:c@d", "/a?b:c@d"),
        ("file:///a:b@c", "file:///a:b@c"),
    ],
)
def test_a_secret_is_not_shown(path: str, visible: str) -> None:
    assert shown(path) == visible
    assert without_secrets(path) == visible
    assert without_secrets(f"--report={path}") == f"--report={visible}"


def test_no_command_shows_a_secret(server: Server, run: Run, tmp_path: Path) -> None:
    options = f"{server.options}&region=SECRET"
    uri = f"s3://testing:SECRET@{BUCKET}/{DAMAGED}/store?{options}"
    report = tmp_path / "report.json"
    said = [
        run("info", uri),
        run("info", uri, "-f", "json"),
        run("verify", uri, "--report", report),
        run("diff", uri, uri),
        run("decode", uri, "--topic", "none"),
        run("info", f"{uri}&nonsense=1"),
        run("info", uri.replace("SECRET@", "SEC/SECRET@")),
        run("decode", uri, "-o", uri),
    ]
    assert [status for status, _, _ in said] == [0, 0, 3, 0, 5, 4, 4, 6]
    assert "SECRET" not in repr(said) + report.read_text()


@pytest.mark.parametrize(
    ("path", "folder", "below"),
    [
        ("s3://b/x/y", "s3://b/x", True),
        ("s3://b/x?region=a", "s3a://b/x", True),  # perhaps another service's, perhaps not
        ("s3://k:s@b/x/y", "s3://b/x/", True),
        ("s3://b/xy", "s3://b/x", False),
        ("s3://b/x", "/x", False),
    ],
)
def test_what_lies_below_what(path: str, folder: str, below: bool) -> None:
    assert is_below(path, folder) is below


def test_a_slash_in_a_secret_is_told() -> None:
    with pytest.raises(NotAStore, match=r"^s3://K:…@bucket/x: a slash in a key or a password must be written %2F$"):
        open_store(["s3://K:a/b@bucket/x"])


# --- ranges -------------------------------------------------------------------------------------------


class _File:
    """A large file of a remote file system that notes how it is read."""

    def __init__(self, size: int) -> None:
        self.content = bytes(range(251)) * (size // 251 + 1)
        self.length = size
        self.asked: list[tuple[int, int]] = []
        self.failure: Exception | None = None

    def size(self) -> int:
        return self.length

    def read_at(self, size: int, offset: int) -> bytes:
        self.asked.append((offset, size))
        if self.failure is not None:
            raise self.failure
        return self.content[offset : min(offset + size, self.length)]

    def close(self) -> None:
        pass


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> _File:
    file = _File(9 * CHUNK + 12345)

    class _Files:
        type_name = "mock"
        open_input_file = staticmethod(lambda _: file)

    monkeypatch.setattr(ranges, "open_remote", lambda _: (_Files(), "x"))
    return file


def read(reader: ReadAhead, offset: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: reader.read_into(memoryview(buffer), offset)])


def test_a_walk_reads_ahead_and_each_byte_once(large: _File) -> None:
    reader = ReadAhead("s3://b/x")
    window, overlap, at = 1 << 20, 1000, 0
    while at < large.length:
        raw = read(reader, at, window)
        assert raw == large.content[at : min(at + window, large.length)]
        ahead = [offset for offset, _ in large.asked if offset > at + window]
        assert len(ahead) <= AHEAD  # so many chunks in memory, and the current one
        at += len(raw) - (overlap if at + len(raw) < large.length else 0)
    reader.close()
    assert sum(size for _, size in large.asked) <= large.length + 2 * window
    assert max(size for _, size in large.asked) == CHUNK


def test_who_looks_here_and_there_gets_little_more_than_that(large: _File) -> None:
    reader = ReadAhead("s3://b/x")
    for offset in (30_000_000, 5, 70, 12_000_000, 100, large.length - 9, 0):
        assert read(reader, offset, 40) == large.content[offset : min(offset + 40, large.length)]
    assert read(reader, large.length, 40) == b""
    assert [size for _, size in large.asked[:-1]] == [ranges.BLOCK] * 3
    assert len(large.asked) == 4


def test_who_reads_on_in_small_steps_asks_for_more_at_a_time(large: _File) -> None:
    reader = ReadAhead("s3://b/x")
    for offset in range(0, 1 << 20, 5000):
        assert read(reader, offset, 5010) == large.content[offset : offset + 5010]
    sizes = [size // ranges.BLOCK for _, size in large.asked if size <= 512 << 10]
    assert sizes[:4] == [1, 2, 4, 8]
    assert len(large.asked) < 10


def test_what_was_read_of_a_file_is_not_asked_for_again_until_its_store_is_listed(server: Server) -> None:
    log = store(DAMAGED) / "commitlog"
    asked: list[str] = []

    def judge(line: str) -> Way:
        asked.append(line.split(" ")[0])
        return "pass"

    with gate(server, judge) as counted:
        server.upload(log, "again/commitlog")
        opened = open_store([counted.uri("again")])
        asked.clear()
        contents = []
        for _ in range(3):
            with RemoteReader(opened.segments[0]) as reader:
                contents.append(reader.read(0, 1000))
        assert asked == ["HEAD", "GET"]
        with server.filesystem().open_output_stream(f"{BUCKET}/again/commitlog/{'0' * 20}") as file:
            file.write(bytes(1 << 16))
        opened = open_store([counted.uri("again")])
        with RemoteReader(opened.segments[0]) as reader:
            contents.append(reader.read(0, 1000))
        server.filesystem().delete_dir(f"{BUCKET}/again")
    assert contents[0] == contents[1] == contents[2] == (log / ("0" * 20)).read_bytes()[:1000]
    assert contents[3] == bytes(1000)


def test_opening_a_store_takes_two_listings(server: Server) -> None:
    asked: list[str] = []

    def judge(line: str) -> Way:
        asked.append(line)
        return "pass"

    with gate(server, judge) as counted:
        opened = open_store([counted.uri(f"{DAMAGED}/store")])
    assert len(opened.queue_files) > 8
    assert len(asked) == 2 and all("list-type=2" in line for line in asked)


def test_info_asks_twice_for_a_queue(server: Server, run: Run) -> None:
    """How large its file is, and what is in it."""
    asked: list[str] = []

    def judge(line: str) -> Way:
        asked.append(line)
        return "pass"

    with gate(server, judge) as counted:
        assert run("info", counted.uri(f"{DAMAGED}/store"), "-q")[0] == ExitStatus.DONE
    queues = {line.split(" ")[1] for line in asked if "/consumequeue/" in line}
    assert len(queues) > 8
    assert sum("/consumequeue/" in line for line in asked) <= 2 * len(queues)
    assert len(asked) < 3 * len(queues) + 40


def test_a_file_that_became_shorter_ends_there(large: _File) -> None:
    reader = ReadAhead("s3://b/x")
    large.length = 100
    assert read(reader, 0, 1000) == large.content[:100]
    assert read(reader, 200, 1000) == b""


def test_a_file_that_is_gone_is_asked_for_once(large: _File, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_store([str(store(DAMAGED))]).segments[0]
    reader = RemoteReader(file)
    large.failure = FileNotFoundError(2, "gone")
    for _ in range(3):
        with pytest.raises(Unreadable, match=r"^commitlog/0+ at 0 \(0x0\): no such file or directory$"):
            reader.read(0, 100)
    assert len(large.asked) == 1


def test_nothing_of_a_remote_file_is_asked_of_this_system(large: _File) -> None:
    reader: Any = RemoteReader(open_store([str(store(DAMAGED))]).segments[0])
    with pytest.raises(OSError, match="no descriptor"):
        reader.fileno()
    assert (reader.next_allocated(7), reader.next_allocated(1 << 40)) == (7, reader.size)
    assert reader.allocated == reader.size == large.length
