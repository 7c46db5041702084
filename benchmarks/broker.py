"""The broker's own record check in a JVM, as a peer: java/BrokerCheck.java, built by Maven into java/target."""

import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.measure import ROOT

_FOLDER = ROOT / "benchmarks" / "java"
_CLASSES, _LIBRARIES = _FOLDER / "target" / "classes", _FOLDER / "target" / "dependency"
_OLDEST_JAVA = 17
# One thread walks the log; a parallel collector would distort the CPU seconds.
_JAVA = ("java", "-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")

WARM_UP = 3
"""Passes until the JIT compiler is done."""


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


def command(commitlog: str, scratch: Path) -> list[str]:
    """Return the command of the loop: it makes a pass per line on stdin. `scratch` is an empty folder."""
    classpath = f"{_FOLDER}:{_CLASSES}:{_LIBRARIES}/*"
    return [*_JAVA, "-cp", classpath, "BrokerCheck", commitlog, str(scratch)]
