"""Spark's sessions: whether one can be had is known before anything begins; nothing of one stays behind."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rmqinspect.errors import BadOption, NotInstalled
from rmqinspect.spark import session
from rmqinspect.spark.session import check_spark, is_connect, spark_engine
from tests.support.samples import ROOT
from tests.support.sparks import MASTER, SETTINGS, require_java

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment'


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell without Java and without Spark."""
    for name in ("JAVA_HOME", "SPARK_MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(session, "running_context", lambda: None)


def fake_java(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!{sys.executable}\nimport sys, time\n{script}\n")
    java.chmod(0o755)
    return folder


def saying(answer: str) -> str:
    return f"print({answer!r}, file=sys.stderr)"


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (saying('java version "1.8.0_392"'), "Java 8 .* is too old for Spark: install a Java runtime 17 or later"),
        (saying('openjdk version "11.0.21" 2023-10-17'), "Java 11 .* is too old"),
        ("sys.exit(1)", "JAVA_HOME=.* has no working java: install a Java runtime 17"),
        ("time.sleep(60)", "JAVA_HOME=.* has no working java"),
    ],
)
@pytest.mark.usefixtures("bare")
def test_java_that_will_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    monkeypatch.setattr(session, "ANSWER_TIMEOUT", 1.0)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, script)))
    with pytest.raises(NotInstalled, match=said) as reported:
        check_spark("local[2]")
    assert "\n" not in str(reported.value)
    assert "--engine local needs neither" in str(reported.value)


@pytest.mark.parametrize("answer", [OPENJDK_17, 'openjdk version "25"', 'java version "21-ea"', "no idea"])
@pytest.mark.usefixtures("bare")
def test_a_java_that_will_do_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    place = fake_java(tmp_path, f"open({str(tmp_path / 'asked')!r}, 'a').write('x')\n{saying(answer)}")
    monkeypatch.setenv("JAVA_HOME", str(place))
    check_spark()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(place / "bin"))
    check_spark()
    assert (tmp_path / "asked").read_text() == "xx"


@pytest.mark.usefixtures("bare")
def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotInstalled, match="none found in JAVA_HOME or on PATH: install"):
        check_spark()
    monkeypatch.setenv("JAVA_HOME", "/no/such/folder")
    with pytest.raises(NotInstalled, match="JAVA_HOME=/no/such/folder has no working java"):
        check_spark()


@pytest.mark.usefixtures("bare")
def test_a_java_on_the_path_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fake_java(tmp_path, "sys.exit(1)")
    monkeypatch.setenv("PATH", str(place / "bin"))
    with pytest.raises(NotInstalled, match=r"Spark needs Java; .*bin/java does not run: install"):
        check_spark()


@pytest.mark.usefixtures("bare")
def test_a_jvm_that_is_somebody_else_s_needs_no_java_here(monkeypatch: pytest.MonkeyPatch) -> None:
    check_spark("sc://somewhere:15002")
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    check_spark()
    assert not is_connect("local[2]")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    check_spark("local[2]")


@pytest.mark.usefixtures("bare")
def test_no_pyspark_or_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyspark", None)
        with pytest.raises(NotInstalled, match=r"pip install 'pyspark>=4\.1'; --engine local"):
            check_spark()
    for version in ("3.5.1", "4.0.2"):
        monkeypatch.setattr("pyspark.__version__", version)
        with pytest.raises(NotInstalled, match=rf"pyspark {re.escape(version)} is too old"):
            check_spark()


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("master", ["", "local", "local[*]", "local[2,3]", "spark://h:7077", "k8s://https://h", "yarn"])
def test_a_master_is_accepted_once_java_was_checked(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(session, "check_java", lambda: checked.append(master))
    check_spark(master)
    assert checked == [master]


@pytest.mark.parametrize("master", ["lokal[2]", "4", "mesos", "spark:/h"])
def test_what_is_no_master(master: str) -> None:
    with pytest.raises(BadOption, match="is not a Spark master"):
        check_spark(master)


def test_a_connect_server_that_is_not_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for url in (f"sc://127.0.0.1:{port}/;token=secret", "sc://:0"):
        with pytest.raises(BadOption, match=r"Spark Connect: (127\.0\.0\.1)?:\d+: ") as reported, spark_engine(url):
            pass
        assert "secret" not in str(reported.value)


# --- what is left ---------------------------------------------------------------------------------

_LONG_JOB = f"""
import contextlib, os, sys, time
from pyspark import InheritableThread
from rmqinspect.spark.session import spark_context

told = sys.argv[1]

def work(_):
    with open(told, "w") as file:
        print(os.getpid(), file=file)
    time.sleep(100)

def run():
    with contextlib.suppress(Exception):
        context.parallelize([1], 1).foreach(work)

# In a thread of its own, as the engine does it: pyspark turns an interrupt of its own calls into other errors.
try:
    with spark_context({MASTER!r}, settings={SETTINGS!r}) as context:
        print(context._gateway.proc.pid, flush=True)
        job = InheritableThread(target=run, daemon=True)
        job.start()
        while job.is_alive():
            job.join(0.1)  # a signal that comes just before a wait is handled only after it
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.timeout(90)
def test_an_interrupt_ends_the_jvm_and_its_workers(tmp_path: Path) -> None:
    require_java()
    os.mkfifo(tmp_path / "worker")
    command = [sys.executable, "-W", "ignore", "-c", _LONG_JOB, str(tmp_path / "worker")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        jvm = os.pidfd_open(int(process.stdout.readline()))
        worker = os.pidfd_open(int((tmp_path / "worker").read_text()))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert err == ""
    assert (process.returncode, out) == (130, "")
    # A descriptor of a process can be read as soon as it has ended.
    assert select.select([jvm], [], [], 0)[0] == [jvm]
    assert select.select([worker], [], [], 10)[0] == [worker]
    for descriptor in (jvm, worker):
        os.close(descriptor)
