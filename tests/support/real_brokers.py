"""Starts real stores of RocketMQ, of any release, and asks them: the Python side of `tests/broker/harness`.

The harness is built against a release for the first question about it, and kept in the user's cache folder; Maven
keeps RocketMQ's jars where it always does. A process serves many requests of one release, one after the other.

`python -m tests.support.real_brokers` fetches and builds all beforehand: the first time takes longer than a test may.
"""

import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.broker_answers import Answer, answer_of

RELEASES = ("4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0")
"""One of each era that is in use. The harness itself knows all since 4.2.0."""

HARNESS = Path(__file__).parents[1] / "broker" / "harness"

# A store that was asked is shut down in the background, and leaves some threads behind: begin anew now and then.
_MOST_REQUESTS = 60
_LONGEST_ANSWER = 240.0  # seconds; the harness bounds every step below that

# The heap is as large as it was for the recorded answers: a record of 2 GB does not fit, one of 200 kB does.
_JAVA_OPTIONS = (
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ErrorFile=/dev/null",
    "-Dfile.encoding=UTF-8",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True)
class Record:
    """One put of `write_store`: for a batch the first record, with the size of all."""

    physical_offset: int
    size: int
    kind: str
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Written:
    """What the writing store said."""

    records: tuple[Record, ...]
    refused: tuple[str, ...]  # statuses of puts that were not PUT_OK
    min_offset: int
    end_offset: int


class NotWritten(Exception):
    """The store could not be written; the text is the harness's answer."""


class RealBrokers:
    """A process for each release, started for the first request about it."""

    def __init__(self, scratch: Path) -> None:
        """Keep logs and what RocketMQ leaves in the home folder below `scratch`."""
        self._scratch = scratch
        self._processes: dict[str, _Process] = {}

    def open_store(
        self,
        release: str,
        root: Path,
        settings: Mapping[str, object] | None = None,
        queues: Mapping[str, int] | None = None,
        *,
        halt: bool = False,
    ) -> Answer:
        """Load and start the store at `root`, which changes it: give a copy. `settings` as in broker.conf.

        `queues`: how many queues a topic has. Of those in RocksDB the answer has only these. `halt`: kill it then; else
        it is shut down in the background.
        """
        return answer_of(self.ask(release, "open", root, settings, queues=queues or {}, halt=halt))

    def write_store(
        self, release: str, root: Path, spec: Mapping[str, object], settings: Mapping[str, object] | None = None
    ) -> Written:
        """Put messages into the store at `root`, new or old. WriteStore.java has the names of `spec`.

        :raises NotWritten: the store does not load, or ended before the last put.
        """
        root.mkdir(parents=True, exist_ok=True)
        answer = self.ask(release, "write", root, settings, spec=spec)
        if "records" not in answer:
            raise NotWritten(json.dumps(answer))
        records = tuple(Record(*row) for row in answer["records"])
        return Written(records, tuple(answer["refused"]), answer["min_phy"], answer["max_phy"])

    def ask(
        self, release: str, command: str, root: Path, settings: Mapping[str, object] | None, **more: object
    ) -> dict[str, Any]:
        """Return the harness's whole answer; a process that ended without one gives its exit code as a failed load."""
        process = self._process(release)
        answer = process.ask({"command": command, "root": str(root), "settings": settings or {}} | more)
        # Before 4.4 a thread uses the checkpoint after shutdown() has unmapped it: the process crashes.
        if (
            answer.get("stuck")
            or answer.get("halts")
            or process.requests >= _MOST_REQUESTS
            or _number(release) < (4, 4)
        ):
            self._processes.pop(release).end()
        return answer

    def close(self) -> None:
        """End all processes."""
        while self._processes:
            self._processes.popitem()[1].end()

    def _process(self, release: str) -> "_Process":
        running = self._processes.get(release)
        if running is None or not running.runs():
            if running is not None:
                running.end()
            running = self._processes[release] = _Process(release, self._scratch)
        return running


class _Process:
    """A harness that reads requests from its standard input."""

    def __init__(self, release: str, scratch: Path) -> None:
        folder = build(release)
        number = sum(1 for _ in scratch.glob(f"{release}-*.err"))
        log = scratch / f"{release}-{number}.log"
        self._errors = scratch / f"{release}-{number}.err"
        classpath = f"{folder / 'classes'}:{(folder / 'classpath').read_text().strip()}"
        command = [
            _program("java") or "java",
            *_JAVA_OPTIONS,
            f"-Duser.home={scratch}",
            f"-Dharness.log={log}",
            "-cp",
            classpath,
        ]
        self.requests = 0
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, "harness.Harness"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )

    def runs(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        self.requests += 1
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        line = _read_line(self._process.stdout, _LONGEST_ANSWER)
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if self.runs():
            self._process.kill()
        status = self._process.wait()
        said = self._errors.read_text(errors="replace")[-2000:]
        reason = {"class": "process", "message": f"ended with {status}: {said}"}
        return {"construct": {"ok": True}, "load": {"ok": False, "timed_out": False, "exception": reason}}

    def end(self) -> None:
        """Kill the process: what was asked has been answered."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def build(release: str) -> Path:
    """Compile the harness against a release, once, and return the folder with `classes` and `classpath`."""
    sources = [HARNESS / "pom.xml", *sorted(path for path in (HARNESS / "src").rglob("*") if path.is_file())]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqinspect" / "broker-harness"
    folder = cache / digest / release
    if _usable(folder):
        return folder
    target = folder.with_name(f"{release}.{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(HARNESS / "pom.xml"), "compile", "dependency:build-classpath"]
    # The poms of RocketMQ's 5.x leave this name to a plugin of their own build.
    command += [f"-Drocketmq.version={release}", f"-Dharness.build={target}", "-Dos.detected.classifier=linux-x86_64"]
    quick = {"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"} | os.environ
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, env=quick)
    if done.returncode:
        raise RuntimeError(f"Maven: {done.stdout[-3000:]}{done.stderr[-1000:]}")
    shutil.rmtree(folder, ignore_errors=True)
    target.rename(folder)
    return folder


def missing() -> str | None:
    """Say what is missing on this machine to run real stores, None if nothing."""
    absent = [name for name in ("java", "javac", "mvn") if _program(name) is None]
    return f"needs {' and '.join(absent)} for real stores of RocketMQ" if absent else None


def require_real_brokers() -> None:
    """Skip the test where no real store can run; in CI fail it."""
    reason = missing()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def real_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    """The processes of the whole run: `tests/conftest.py` keeps all tests that use them in one worker."""
    require_real_brokers()
    brokers = RealBrokers(tmp_path_factory.mktemp("real-brokers"))
    yield brokers
    brokers.close()


def _usable(folder: Path) -> bool:
    """Say whether a build is there and Maven's jars are still where they were."""
    file = folder / "classpath"
    return file.is_file() and all(Path(jar).is_file() for jar in file.read_text().strip().split(":"))


def _program(name: str) -> str | None:
    """Return the path of a program: of the Java that Maven takes too, else the first of PATH."""
    home = os.environ.get("JAVA_HOME")
    return (shutil.which(name, path=Path(home) / "bin") if home else None) or shutil.which(name)


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.partition("-")[0].split("."))


def _read_line(pipe: IO[bytes], seconds: float) -> bytes:
    """Read to the end of the line; b"" where the pipe or the time ends before."""
    line, end = b"", time.monotonic() + seconds
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(end - time.monotonic(), 0))
        part = os.read(pipe.fileno(), 1 << 16) if ready else b""
        if not part:
            return b""
        line += part
    return line


def _main() -> int:
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    for release in RELEASES:
        print(build(release), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
