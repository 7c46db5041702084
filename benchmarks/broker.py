"""The broker's own reader in a JVM, as a peer: java/BrokerCheck.java, built by Maven into java/target."""

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
# One thread walks the log; a collector with threads of its own would only spoil the CPU seconds.
_JAVA = ("java", "-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")
# Passes until the compiler has done what it will do.
_WARM_UP = 3


class NoJavaError(Exception):
    """The JVM peers cannot be measured here; the text says why."""


def build() -> None:
    """Compile the loop and bring the broker's libraries, if that has not been done.

    :raises NoJavaError: something is missing for it.
    """
    for tool in ("java", "mvn"):
        if not shutil.which(tool):
            raise NoJavaError(f"no {tool} on the PATH")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if not version or int(version[1]) < _OLDEST_JAVA:
        raise NoJavaError(f"Java {_OLDEST_JAVA} or later is needed")
    built = _CLASSES / "BrokerCheck.class"
    sources = (_FOLDER / "BrokerCheck.java", _FOLDER / "pom.xml")
    if built.exists() and built.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return
    goals = ["clean", "dependency:copy-dependencies", "compile"]
    ended = subprocess.run(["mvn", "-q", "-B", *goals], cwd=_FOLDER, capture_output=True, text=True, check=False)
    if ended.returncode:
        first = next(iter(ended.stdout.strip().splitlines()), "no word")
        raise NoJavaError(f"Maven could not build the loop: {first}")


def command(commitlog: Path, scratch: Path) -> list[str]:
    """Return the command of the loop; `scratch` is an empty folder for it."""
    classpath = f"{_FOLDER}:{_CLASSES}:{_LIBRARIES}/*"
    return [*_JAVA, "-cp", classpath, "BrokerCheck", str(commitlog), str(scratch)]


def run_cold(commitlog: Path, scratch: Path, watch: bool) -> Cost:
    """Run a whole process that does one pass."""
    return run_process(command(commitlog, scratch), watch, stdin=b"\n")


class WarmLoop:
    """A JVM that stays, and does one pass when asked."""

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
        """Do one pass, or as many as warm it up when the memory is watched; the time is of the last."""
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
            raise RuntimeError("the JVM has ended; its words are above")
        answer: dict[str, float] = json.loads(line)
        return answer
