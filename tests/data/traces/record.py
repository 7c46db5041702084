"""Write the stores and truths of this folder again: `python tests/data/traces/record.py`; needs Java, Maven and root.

Each broker runs in a network namespace of its own.
"""

import gzip
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
STORES = {
    "files-4.9.7": (),
    "files-5.3.3": ("recallMessageEnable=true",),
    "dledger-4.9.7": (
        *("enableDLegerCommitLog=true", "dLegerGroup=broker-a", "dLegerPeers=n0-127.0.0.1:22940", "dLegerSelfId=n0"),
    ),
    "rocksdb-5.3.3": ("recallMessageEnable=true", "storeType=defaultRocksDB"),
}
RELEASES = ("4.4.0", "4.8.0", "4.9.7", "5.1.4", "5.2.0", "5.3.0", "5.3.3", "5.5.0")
ARTIFACTS = ("broker", "namesrv", "client", "tools")
OPENED = ("sun.nio.ch", "java.nio", "jdk.internal.ref", "java.lang", "java.util")
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>lab</groupId>
<artifactId>lab</artifactId><version>1</version><dependencies>{}</dependencies></project>"""
DEPENDENCY = """<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{}</artifactId>
<version>{}</version></dependency>"""


def classpath(scratch: Path, release: str, sources: tuple[str, ...], *artifacts: str) -> str:
    """Fetch the jars of a release, compile the sources against them, and return the class path."""
    folder = scratch / f"{release}-{artifacts[0]}"
    folder.mkdir()
    (folder / "pom.xml").write_text(POM.format("".join(DEPENDENCY.format(name, release) for name in artifacts)))
    fetch = ["mvn", "-q", "-B", "-Dos.detected.classifier=linux-x86_64", "dependency:copy-dependencies"]
    subprocess.run([*fetch, "-DoutputDirectory=lib"], cwd=folder, check=True)
    found = f"{folder / 'classes'}:{folder / 'lib'}/*"
    names = [str(HERE / name) for name in sources]
    subprocess.run(
        ["javac", "-nowarn", "-cp", f"{folder / 'lib'}/*", "-d", str(folder / "classes"), *names], check=True
    )
    return found


def write_store(scratch: Path, name: str) -> None:
    """Run a broker and its clients, and keep the store and what the clients said."""
    home = scratch / name
    (home / "home").mkdir(parents=True)
    path = classpath(scratch / "jars", name.rpartition("-")[2], ("TraceLab.java", "TraceCodec.java"), *ARTIFACTS)
    options = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    options += ["--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "-Xmx1g", "-Duser.timezone=UTC"]
    options += ["-Dfile.encoding=UTF-8", f"-Duser.home={home / 'home'}"]
    apart = ["unshare", "-n", "-u", "bash", "-c", 'hostname localhost; ip link set lo up; exec "$@"', "x"]
    subprocess.run([*apart, "java", *options, "-cp", path, "TraceLab", *STORES[name]], cwd=home, check=True)
    truth = (home / "truth.json").read_bytes()
    (HERE / f"{name}.json.gz").write_bytes(gzip.compress(truth, mtime=0))


def main() -> None:
    """Write all files of this folder but the programs."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "jars").mkdir()
        for name in STORES:
            shutil.rmtree(scratch / "jars")
            (scratch / "jars").mkdir()
            write_store(scratch, name)
        pack = ["tar", "--format=gnu", "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-cJf"]
        stores = [f"{name}/store" for name in STORES]
        subprocess.run([*pack, str(HERE / "stores.tar.xz"), "-C", folder, *stores], check=True)
        lines = b""
        for release in RELEASES:
            path = classpath(scratch / "jars", release, ("TraceCodec.java",), "client")
            out = scratch / f"{release}.jsonl"
            subprocess.run(["java", "-cp", path, "TraceCodec", release, str(out)], check=True)
            lines += out.read_bytes()
        (HERE / "codec.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))


if __name__ == "__main__":
    main()
