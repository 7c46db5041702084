"""A store in a real HDFS, through Hadoop's own client: the same answers, and one sentence for what fails."""

import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.system import hdfs as client
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.hdfs_cluster import Cluster
from tests.support.samples import ROOT

NAME = "flip_body_third-5.3.3-h"

run = runner()


@pytest.fixture(scope="module")
def there(hdfs: Cluster) -> str:
    """Return the URI of a store with a damaged record."""
    return hdfs.upload(oracle.store("crash", NAME), "a b/store")


def test_the_answers_are_those_of_a_local_copy(hdfs: Cluster, there: str, run: Run) -> None:
    local = oracle.store("crash", NAME)
    here, far = run("info", str(local), "-q", "-f", "json"), hdfs.run("info", there, "-q", "-f", "json")
    documents = [json.loads(out) for _, out, _ in (here, far)]
    for document in documents:
        del document["bytes_read"], document["run"], document["stop"]["lock_seen"]
    assert documents[0] == documents[1]
    here, far = run("decode", str(local), "-f", "jsonl", "-j", "1"), hdfs.run("decode", there, "-f", "jsonl", "-j", "1")
    assert here[1].count("\n") > 100
    assert far == here
    here, far = run("verify", str(local), "-q", "-f", "csv"), hdfs.run("verify", there, "-q", "-f", "csv")
    assert here[0] == far[0] == ExitStatus.DAMAGE
    assert far[1].replace(f"'{there}'", str(local)) == here[1]


def test_an_export_goes_there_and_is_replaced(hdfs: Cluster, there: str, run: Run, tmp_path: Path) -> None:
    wish = ("--file-size", "60000", "--engine", "local", "-j", "1", "-q")
    lake = hdfs.uri("lake")
    assert run("export", f"S={oracle.store('crash', NAME)}", "-o", str(tmp_path / "lake"), *wish)[0] == 3
    assert hdfs.run("export", f"S={there}", "-o", lake, *wish)[0] == ExitStatus.DAMAGE
    files = hdfs.download("lake", tmp_path / "far")
    assert files == sorted(
        str(file.relative_to(tmp_path / "lake")) for file in (tmp_path / "lake").rglob("*") if file.is_file()
    )
    for file in (file for file in files if file.endswith(".parquet")):
        assert pq.read_table(tmp_path / "far" / file).equals(pq.read_table(tmp_path / "lake" / file)), file
    status, _, err = hdfs.run("export", f"S={there}", "-o", lake, *wish)
    assert (status, "an export exists: --overwrite" in err) == (ExitStatus.REFUSED, True)
    assert hdfs.run("export", f"S={there}", "-o", lake, *wish, "--table", "queues", "--overwrite")[0] == ExitStatus.DONE
    assert hdfs.download("lake", tmp_path / "new") == ["_SUCCESS", "_manifest.json", "queues/S-00000.parquet"]


def test_what_fails_is_told_in_one_sentence(hdfs: Cluster, there: str) -> None:
    denied = hdfs.uri("private", "?user=somebody")
    for words, status, told in (
        (("info", hdfs.uri("none")), ExitStatus.UNREADABLE, f"{hdfs.uri('none')}: no such file or directory"),
        (
            ("info", "hdfs://127.0.0.1:1/x"),
            ExitStatus.UNREADABLE,
            "hdfs://127.0.0.1:1/x: ConnectException: Connection refused",
        ),
        (
            ("info", "hdfs://no-such-host.invalid/x"),
            ExitStatus.UNREADABLE,
            "hdfs://no-such-host.invalid: UnknownHostException: no-such-host.invalid",
        ),
        (("export", there, "-o", denied, "--engine", "local", "-q"), ExitStatus.REFUSED, "permission denied"),
        (("info", "hdfs://127.0.0.1:1/x?replication=many"), ExitStatus.UNREADABLE, "Invalid value for option"),
    ):
        ended, out, err = hdfs.run(*words)
        assert (ended, out) == (status, "")
        assert err.startswith("rmqinspect: hdfs://")
        assert told in err
        assert err.count("\n") == 1


def test_java_takes_no_signal_prints_nothing_and_leaves_nothing(hdfs: Cluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqinspect", "info", f"hdfs://127.0.0.1:{silent.getsockname()[1]}/x"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=os.environ | hdfs.client.environment | {"PYTHONPATH": str(ROOT)},
        )
        silent.settimeout(50)
        asked, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        asked.close()
    assert (process.returncode, err) == (ExitStatus.INTERRUPTED, "rmqinspect: interrupted\n")
    assert not [*tmp_path.iterdir()]


# --- what is missing --------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with Java and a whole Hadoop, to which the variables lead."""
    for name in ("ARROW_LIBHDFS_DIR", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("java/lib/server/libjvm.so", "hadoop/lib/native/libhdfs.so"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for jar, name in (
        ("hadoop-common", "org/apache/hadoop/fs/FileSystem.class"),
        ("commons-lang3", "org/apache/commons/lang3/exception/ExceptionUtils.class"),
    ):
        with zipfile.ZipFile(tmp_path / f"{jar}.jar", "w") as file:
            file.writestr(name, b"")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path / "hadoop"))
    monkeypatch.setenv("CLASSPATH", f"{tmp_path}/nothing:{tmp_path}/*")
    monkeypatch.setattr(client, "_JAVAS", ())
    monkeypatch.setattr(client, "_LOADER", ())
    return tmp_path


def test_what_is_missing_is_named(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.missing() == ""
    (home / "commons-lang3.jar").write_bytes(b"no jar")
    lang = "no commons-lang jar in CLASSPATH: `hadoop classpath --glob` prints it"
    assert client.missing() == lang
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert client.missing() == f"no libjvm.so in JAVA_HOME={home}; {lang}"
    monkeypatch.setenv("HADOOP_HOME", str(home))
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/y")
    assert f"; no libhdfs.so in {home}/lib/native or /y; " in client.missing()
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name)
    assert run("info", "hdfs://h/x") == (
        ExitStatus.UNREADABLE,
        "",
        "rmqinspect: hdfs://h: Hadoop's client is not complete here: no libjvm.so, and JAVA_HOME is not set; no "
        "libhdfs.so, and HADOOP_HOME is not set; CLASSPATH is not set: `hadoop classpath --glob` prints it\n",
    )


def test_no_library_is_taken_from_the_folder_under_examination(home: Path) -> None:
    (home / "libhdfs.so").touch()
    assert client.missing().startswith("a libhdfs.so in the current folder would be loaded")


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (
            "SLF4J: no logger\nhdfsListDirectory(/x): listStatus error:\nConnectException: Connection refused"
            "java.net.ConnectException: Call From vm/127.0.0.1 to localhost:1 failed on connection exception: "
            "java.net.ConnectException: Connection refused; For more details see: http://x\n\tat x.Y(Z.java:1)\n"
            "Caused by: java.net.ConnectException: Connection refused\n",
            "ConnectException: Connection refused",
        ),
        (
            "hdfsBuilderConnect(x) error:\njava.net.UnknownHostException: h; For more details see:  http://x\n\tat x\n",
            "UnknownHostException: h",
        ),
        (
            "RemoteException: The node is in safe mode.\nIt will leave it.\n",
            "RemoteException: The node is in safe mode",
        ),
        ("a warning\n", ""),
    ],
)
def test_the_cause_is_found_in_what_libhdfs_prints(printed: str, told: str) -> None:
    assert client.last_exception(printed) == told
