"""A real HDFS on 127.0.0.1, and commands run as Hadoop's client runs them: the Python side of `tests/remote/hdfs`.

Hadoop's cluster for tests comes from Maven. The C sources of its client, libhdfs, come from crates.io, where the
package hdfs-sys carries those of 3.3, and are compiled here. Both are kept in the user's cache folder.

`python -m tests.support.hdfs_cluster` fetches and builds all beforehand.
"""

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from tests.support.samples import ROOT

HARNESS = Path(__file__).parents[1] / "remote" / "hdfs"
_JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
# The client needs these of the cluster's jars; the rest is the cluster itself.
_OF_CLIENT = ("hadoop-client-api", "hadoop-client-runtime", "commons-lang3", "slf4j-api", "commons-logging")


@dataclass(frozen=True, slots=True)
class Client:
    """Where Hadoop's client is on this machine."""

    java_home: str
    libhdfs: Path  # its folder
    jars: tuple[str, ...]
    cluster: str  # the class path of HdfsCluster

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which a process finds it."""
        return {
            "JAVA_HOME": self.java_home,
            "ARROW_LIBHDFS_DIR": str(self.libhdfs),
            "CLASSPATH": ":".join(self.jars),
            "LIBHDFS_OPTS": "-XX:TieredStopAtLevel=1",
        }


class Cluster:
    """A running HDFS, and a process whose commands use it, one after the other."""

    def __init__(self, port: int, client: Client, process: "subprocess.Popen[str]") -> None:
        self.port = port
        self.client = client
        self._process = process

    def uri(self, path: str, options: str = "") -> str:
        """Return the URI of a path."""
        return f"hdfs://127.0.0.1:{self.port}/{path}{options}"

    def upload(self, folder: Path, path: str) -> str:
        """Copy a folder's files and return the URI of what they became."""
        self._ask("put", str(folder), self.uri(path))
        return self.uri(path)

    def download(self, path: str, folder: Path) -> list[str]:
        """Copy all files below a path into a folder; return their relative names, sorted."""
        return self._ask("get", self.uri(path), str(folder))

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        """Run a command; return its status and what it printed."""
        status, out, err = self._ask("run", *map(str, words))
        return int(status), out, err

    def _ask(self, *words: str) -> list[str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"ended with {self._process.wait()}"
        answer: list[str] = json.loads(line)
        return answer


@contextmanager
def cluster(scratch: Path) -> Iterator[Cluster]:
    """Yield a cluster that keeps its files in a folder."""
    client = build()
    java = os.path.join(client.java_home, "bin", "java")
    command = [java, *_JAVA_OPTIONS, "-cp", client.cluster, "HdfsCluster", str(scratch / "dfs")]
    commands = [sys.executable, "-m", "tests.support.hdfs_cluster", "serve"]
    environment = os.environ | client.environment | {"PYTHONPATH": str(ROOT)}
    with (
        (scratch / "errors").open("w") as errors,
        subprocess.Popen(command, stdin=-1, stdout=-1, stderr=errors, text=True, cwd=scratch) as nodes,
        subprocess.Popen(commands, stdin=-1, stdout=-1, text=True, cwd=scratch, env=environment) as process,
    ):
        assert nodes.stdin is not None and nodes.stdout is not None and process.stdin is not None
        try:
            port = nodes.stdout.readline()
            assert port, f"the cluster ended: {(scratch / 'errors').read_text()[-2000:]}"
            yield Cluster(int(port), client, process)
        finally:
            process.stdin.close()
            process.wait(20)
            nodes.kill()


def _put(folder: Path, uri: str) -> list[str]:
    from rmqinspect.system.remote import open_remote

    filesystem, target = open_remote(uri)
    for file in (file for file in folder.rglob("*") if file.is_file()):
        path = f"{target}/{file.relative_to(folder)}"
        filesystem.create_dir(os.path.dirname(path))
        with filesystem.open_output_stream(path) as stream:
            stream.write(file.read_bytes())
    return []


def _get(uri: str, folder: Path) -> list[str]:
    from pyarrow import fs

    from rmqinspect.system.remote import open_remote

    filesystem, source = open_remote(uri)
    found = []
    for info in filesystem.get_file_info(fs.FileSelector(source, recursive=True)):
        if info.type == fs.FileType.File:
            found.append(info.path.removeprefix(f"{source}/"))
            (folder / found[-1]).parent.mkdir(parents=True, exist_ok=True)
            with filesystem.open_input_file(info.path) as file:
                (folder / found[-1]).write_bytes(file.readall())
    return sorted(found)


def _run(words: list[str]) -> list[str]:
    from rmqinspect.cli import main

    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    return [str(int(status)), *(stream.buffer.getvalue().decode() for stream in (out, err))]


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        kind, *words = json.loads(line)
        if kind == "put":
            answer = _put(Path(words[0]), words[1])
        elif kind == "get":
            answer = _get(words[0], Path(words[1]))
        else:
            sys.argv = ["rmqinspect", *words]
            answer = _run(words)
        print(json.dumps(answer), file=answers, flush=True)


def build() -> Client:
    """Return the client, compiled and fetched once."""
    java_home = os.environ.get("JAVA_HOME") or str(Path(shutil.which("javac") or "").resolve().parents[1])
    sources = sorted(file for file in HARNESS.iterdir() if file.is_file())
    digest = hashlib.sha256(b"\0".join([java_home.encode(), *(file.read_bytes() for file in sources)])).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqinspect" / "hdfs-cluster"
    folder = cache / digest
    if not _usable(folder):
        target = folder.with_name(f"{digest}.{os.getpid()}")
        target.mkdir(parents=True)
        _call(
            "mvn",
            "-q",
            "-B",
            "-f",
            HARNESS / "pom.xml",
            "compile",
            "dependency:build-classpath",
            f"-Dhdfs.build={target}",
        )
        _compile_libhdfs(target, Path(java_home))
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)
    jars = (folder / "classpath").read_text().strip().split(":")
    client = tuple(jar for jar in jars if Path(jar).name.rpartition("-")[0] in _OF_CLIENT)
    return Client(java_home, folder / "lib", client, ":".join([str(folder / "classes"), *jars]))


def _compile_libhdfs(target: Path, java_home: Path) -> None:
    # Cargo writes beside its manifest.
    manifest = target / "sources" / "Cargo.toml"
    manifest.parent.mkdir()
    for name in ("Cargo.toml", "Cargo.lock", "nothing.rs"):
        shutil.copy(HARNESS / name, manifest.parent)
    told = _call("cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", manifest)
    package = next(package for package in json.loads(told)["packages"] if package["name"] == "hdfs-sys")
    source = Path(package["manifest_path"]).parent / "libhdfs" / "hdfs_3_3"
    folders = (
        java_home / "include",
        java_home / "include/linux",
        source.parent,
        source,
        source / "os/posix",
        source / "include",
    )
    files = [source / f"{name}.c" for name in ("exception", "jni_helper", "hdfs", "jclasses")]
    files += map(Path, glob.glob(f"{source}/os/posix/*.c"))
    (target / "lib").mkdir()
    options = ("-w", "-O1", "-shared", "-fPIC", "-fcommon", "-o", target / "lib" / "libhdfs.so")
    _call("gcc", *options, *(f"-I{folder}" for folder in folders), *files, f"-L{java_home}/lib/server", "-ljvm")


def _call(*words: str | Path) -> str:
    quick = {"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"} | os.environ
    done = subprocess.run(
        [*map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, env=quick
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.stdout


def _usable(folder: Path) -> bool:
    file = folder / "classpath"
    return (folder / "lib" / "libhdfs.so").is_file() and all(
        Path(jar).is_file() for jar in file.read_text().strip().split(":")
    )


def missing() -> str | None:
    """Say what is missing on this machine for a real HDFS, None if nothing."""
    absent = [name for name in ("javac", "mvn", "cargo", "gcc") if shutil.which(name) is None]
    return f"needs {' and '.join(absent)} for a real HDFS" if absent else None


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of the whole run. Without the programs it needs its tests are skipped; in CI they fail."""
    reason = missing()
    if reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with cluster(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        _serve()
    elif reason := missing():
        sys.exit(reason)
    else:
        print(build().libhdfs)
