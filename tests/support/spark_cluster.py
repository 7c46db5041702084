"""A standalone cluster on 127.0.0.1: a master and workers of one core each, and an environment without the package.

Only what a job sends along is there for its tasks: their Python sees the libraries of this one, not the checkout.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from compileall import compile_dir
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from py_compile import PycInvalidationMode

from tests.support.samples import ROOT

FOLDER = "rmqinspect-package"  # where executors unpack the archive
_PATIENCE = 120  # seconds
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def bare_environment(place: Path) -> Path:
    """Make an environment that sees the libraries of this one, and no package of a checkout; return its Python."""
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python3*/site-packages")
    # Of these paths no .pth file is read: they make a checkout importable.
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (site / "libraries.pth").write_text("\n".join(libraries))
    return place / "bin" / "python"


def packed(place: Path) -> Path:
    """Pack the package as docs/spark.md does, and return the archive."""
    tree = place / "wheel"
    shutil.copytree(ROOT / "rmqinspect", tree / "rmqinspect", ignore=shutil.ignore_patterns("__pycache__"))
    compile_dir(tree, quiet=2, legacy=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    return Path(shutil.make_archive(str(place / "rmqinspect"), "zip", tree))


def clean() -> dict[str, str]:
    """Return an environment in which nothing points at the checkout."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "192m", "SPARK_DAEMON_JAVA_OPTS": _SMALL}


class Cluster:
    """Where the master listens, and who the workers are."""

    def __init__(self, place: Path, port: int, python: Path, archive: Path) -> None:
        self.place, self.python, self.archive = place, python, archive
        self.url = f"spark://127.0.0.1:{port}"
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def executors(self) -> list[int]:
        """The processes that run tasks."""
        return [pid for worker in self.workers for pid in _children(worker.pid)]

    def submit(self, script: str, arguments: Sequence[str], **settings: str) -> "subprocess.Popen[str]":
        """Start a driver, which sees what is in the archive only; `settings` have `_` for `.`, and `__` for `_`."""
        job = self.place / "job.py"
        job.write_text(script)
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": _SMALL,
            "spark.executor.extraJavaOptions": _SMALL,
            "spark.pyspark.python": str(self.python),
            "spark.executorEnv.PYTHONPATH": FOLDER,
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            **{name.replace("_", ".").replace("..", "_"): value for name, value in settings.items()},
        }
        words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        archive = ["--archives", f"{self.archive}#{FOLDER}"]
        return subprocess.Popen(
            [_program("spark-submit"), "--master", self.url, *words, *archive, job, *arguments],
            cwd=self.place,
            env={**clean(), "PYTHONPATH": str(self.place / "wheel")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@contextmanager
def cluster(place: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a master and workers; at the end of the block all their processes have ended."""
    place.mkdir()
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
    made = Cluster(place, port, bare_environment(place / "environment"), packed(place))
    with ExitStack() as stack:
        master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(_daemon(master, place, "master"))
        _wait_for(port)
        for number in range(workers):
            one = ["worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "600m", "--webui-port", "0"]
            folder = ["--work-dir", str(place / f"work{number}"), made.url]
            made.workers.append(stack.enter_context(_daemon([*one, *folder], place, f"worker{number}")))
        yield made
        executors = made.executors
    for pid in executors:  # a worker ends its own
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def _daemon(words: Sequence[str], place: Path, name: str) -> "Iterator[subprocess.Popen[bytes]]":
    kind, *options = words
    command = [_program("spark-class"), f"org.apache.spark.deploy.{kind}", *options]
    with (place / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=place, env=clean(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _program(name: str) -> str:
    import pyspark

    found = shutil.which(name, path=str(Path(pyspark.__file__).parent / "bin"))
    assert found is not None
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _wait_for(port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        assert time.monotonic() < until, "the master does not start"
        time.sleep(0.1)
