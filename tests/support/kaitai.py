"""The compiler of Kaitai Struct, which makes Python readers of schemas/*.ksy.

It comes from Maven Central, where its releases are published, and runs in the JVM that real brokers need anyway.
`python -m tests.support.kaitai` fetches it beforehand.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.real_brokers import missing

_POM = Path(__file__).parents[1] / "codec" / "kaitai" / "pom.xml"


def compiler() -> str:
    """Return the class path of the compiler; Maven fetches it once."""
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqinspect" / "kaitai-compiler"
    file = cache / digest
    if not file.is_file() or not all(Path(jar).is_file() for jar in file.read_text().split(":")):
        cache.mkdir(parents=True, exist_ok=True)
        made = file.with_name(f"{digest}.{os.getpid()}")
        _run("mvn", "-q", "-B", "-f", str(_POM), "dependency:build-classpath", f"-Dmdep.outputFile={made}")
        made.rename(file)
    return file.read_text()


def compiled(files: Iterable[Path], folder: Path) -> dict[str, ModuleType]:
    """Compile .ksy files to Python in `folder`; return the modules by the ids of the files.

    A test that calls it is skipped where no compiler can run; in CI it fails.
    """
    reason = missing()
    if reason and os.environ.get("CI") != "true":
        pytest.skip(reason)
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", compiler()]
    _run(*java, "io.kaitai.struct.JavaMain", "-t", "python", "--outdir", str(folder), *map(str, files))
    return {path.stem: _module(path) for path in sorted(folder.glob("*.py"))}


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode or "error:" in done.stderr:
        raise RuntimeError(f"{command[0]}: {done.stdout[-3000:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    if told := missing():
        sys.exit(told)
    print(compiler())
