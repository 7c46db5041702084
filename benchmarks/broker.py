"""The broker's own record check in a JVM, as a peer: java/BrokerCheck.java, built by Maven into java/target."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from benchmarks.measure import ROOT, Cost, peak_memory, run_process

_FOLDER = ROOT / "benchmarks" / "java"
_CLASSES, _LIBRARIES = _FOLDER / "target" / "classes", _FOLDER / "target" / "dependency"
_OLDEST_JAVA = 17
# One thread walks the log; a parallel collector would distort the CPU seconds.
_JAVA = ("java", "-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")
# Passes until the JIT compiler is done.
_WARM_UP = 3


class NoJavaError(Exception):
    """This machine cannot run the JVM peers; the text says why."""


def build() -> None:
    """Compile the loop and download the broker's libraries, unless that has been done.

    :raises NoJavaError: a tool is missing, or the build failed.
    """
    for tool in ("java", "mvn"):
        if not shutil.which(tool):
            raise NoJavaError(f"no {tool} on the PATH")
    printed = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', printed)
    if not version or int(version[1]) < _OLDEST_JAVA:
        raise NoJavaError(f"Java {_OLDEST_JAVA} or later is needed")
    built = _CLASSES / "BrokerCheck.class"
    sources = (_FOLDER / "BrokerCheck.java", _FOLDER / "pom.xml")
    if built.exists() and built.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return
    goals = ["clean", "dependency:copy-dependencies", "compile"]
    ended = subprocess.run(["mvn", "-q", "-B", *goals], cwd=_FOLDER, capture_output=True, text=True, check=False)
    if ended.returncode:
        first = next(iter(ended.stdout.strip().splitlines()), "no message")
        raise NoJavaError(f"Maven could not build the loop: {first}")


def command(commitlog: Path, scratch: Path) -> list[str]:
    """Return the command of the loop; `scratch` is an empty folder."""
    classpath = f"{_FOLDER}:{_CLASSES}:{_LIBRARIES}/*"
    return [*_JAVA, "-cp", classpath, "BrokerCheck", str(commitlog), str(scratch)]


def run_cold(commitlog: Path, scratch: Path, watch: bool) -> Cost:
    """Run a whole process that makes one pass."""
    return run_process(command(commitlog, scratch), watch, stdin=b"\n")


class WarmLoop:
    """A JVM that keeps running and makes a pass on request."""

    def __init__(self, commitlog: Path, scratch: Path) -> None:
        self._process = subprocess.Popen(
            command(commitlog, scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.records = 0  # of the last pass

    def __enter__(self) -> "WarmLoop":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, watch: bool) -> Cost:
        """Make one pass, or with `watch` enough passes to warm up; the time is that of the last one."""
        with peak_memory(self._process.pid, watch) as peak:
            for _ in range(_WARM_UP if watch else 1):
                answer = self._ask()
        self.records = int(answer["records"])
        return Cost(answer["wall"], answer["cpu"], max(peak, default=None))

    def _ask(self) -> dict[str, float]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the JVM has ended; its messages are above")
        answer: dict[str, float] = json.loads(line)
        return answer
