"""Nothing is ever written into a store: neither its bytes nor its names nor its times, and no lock is taken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.samples import ROOT
from tests.support.sampling import sampled

COMMANDS = [
    ["info", "{}"],
    ["info", "{}", "-f", "json"],
    ["decode", "{}", "-n", "5"],
    *(
        ["decode", "{}", "--table", table, "-f", "csv"]
        for table in (
            "messages",
            "segments",
            "gaps",
            "queues",
            "queue_units",
            "index_files",
            "index_entries",
            "groups",
            "topics",
            "transactions",
            "usage",
            "subscription_groups",
            "delay_offsets",
            "delays",
            "rocksdb_entries",
            "timer_units",
            "checkpoint",
            "stores",
            "next_starts",
        )
    ),
    ["decode", "{}/commitlog", "-j", "2"],
    ["decode", "{}/checkpoint"],
    ["decode", "--carve", "{}/commitlog/00000000000000000000"],
    ["verify", "{}"],
    ["verify", "{}", "-j", "2", "--report", "{}.json"],
    ["verify", "{}", "--level", "quick"],
    ["verify", "{}", "--level", "deep", "--hash", "sha256", "--report", "{}.hashed.json", "--read-rate", "1G"],
    ["verify", "{}", "--against", "{}.json"],
    ["diff", "{}", "{}"],
    ["find", "{}", "-k", "K95"],
    ["find", "{}", "-t", "orders", "-n", "2"],
    ["find", "{}", "--pull", "orders", "0", "1"],
    ["find", "{}", "--offset-by-time", "orders", "0", "2026-11-21T08:48:41"],
    ["groups", "{}"],
    ["transactions", "{}"],
    ["delays", "{}"],
    ["usage", "{}", "--retention", "1h"],
    ["sql", "SELECT topic, count(*) FROM messages GROUP BY ALL", "{}"],
    ["sql", "FROM next_starts", "{}", "--memory", "200M"],
    ["sql", "COPY messages TO '{}/rows.csv'", "{}"],
    ["explain", "CL-CRC-BODY"],
    ["rebuild", "{}", "-o", "{}.new"],
    ["salvage", "{}", "-o", "{}.saved"],
    ["salvage", "{}", "-o", "{}.seen", "--dry-run"],
    ["rebuild", "{}", "-o", "{}.indexed", "--only", "index", "--hash", "sha256"],
    ["verify", "{}/commitlog"],
    ["show", "{}", "--at", "525"],
    ["id", "7F000001000055970000000000038270"],
    # What must be refused: writing below the evidence.
    ["verify", "{}", "--report", "{}/report.json"],
    ["verify", "{}", "-o", "{}/commitlog/findings"],
    ["decode", "{}", "-f", "csv", "-o", "{}/rows.csv"],
    ["rebuild", "{}", "-o", "{}/new"],
    ["salvage", "{}", "-o", "{}/new"],
]

# Runs commands and prints every event of Python's audit that would change something below a folder.
_WATCHED = """
import os, sys
root, words = sys.argv[1], [line.split("\\t") for line in sys.argv[2].split("\\n")]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.utime", "os.chmod", "os.chown", "os.truncate",
            "os.link", "os.symlink", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod")
LOCKS = ("fcntl.flock", "fcntl.lockf")
said = set()

def below(path):
    # The store itself, or in it: not the report beside it, whose name begins alike.
    return (os.path.abspath(path) + os.sep).startswith(root + os.sep)

def watch(event, arguments):
    if event in LOCKS:
        if below(os.readlink(f"/proc/self/fd/{arguments[0]}")):  # not the folder of a new store
            said.add(event)
    elif event == "open":
        path, _, flags = arguments
        if isinstance(path, str) and below(path) and (flags or 0) & WRITING:
            said.add(f"open {path} {flags:#x}")
    elif event in CHANGING and any(isinstance(a, str) and below(a) for a in arguments):
        said.add(f"{event} {arguments}")

sys.addaudithook(watch)
if __name__ == "__main__":
    from rmqinspect.cli import main
    for command in words:
        if command == ["touch"]:
            open(root + "/touched", "w").close()
            os.utime(root)
        else:
            print("status", int(main(command)), *command, file=sys.stderr)
    print("\\n".join(sorted(said)), file=sys.__stdout__)
"""


def _watch(root: Path, words: list[list[str]]) -> tuple[list[str], str]:
    script = root.parent / "watched.py"
    script.write_text(_WATCHED)
    commands = "\n".join("\t".join(word.format(root) for word in command) for command in words)
    ended = subprocess.run(
        [sys.executable, script, root, commands],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=root.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout.splitlines(), ended.stderr


@pytest.mark.parametrize(
    ("family", "name"), sampled([("broker", "halt-4.9.7"), ("crash", "flip_body_third-5.3.3-h")], 2)
)
def test_no_command_changes_anything_in_a_store(tmp_path: Path, family: oracle.Family, name: str) -> None:
    store = oracle.copy(family, name, tmp_path)
    os.utime(store, ns=(1_000_000_000, 1_000_000_000))
    before, times = oracle.snapshot(store), store.stat().st_mtime_ns
    said, statuses = _watch(store, COMMANDS)
    assert oracle.differences(before, oracle.snapshot(store)) == []
    assert store.stat().st_mtime_ns == times
    assert [line for line in said if line.startswith(("open ", "os.", "fcntl."))] == []
    refused = [line for line in statuses.splitlines() if line.startswith("status 6 ")]
    assert len(refused) == 5
    assert "this is a bug" not in statuses


def test_the_watch_sees_a_write(tmp_path: Path) -> None:
    said, _ = _watch(oracle.copy("crash", "base-4.2.0-clean", tmp_path), [["touch"]])
    assert [line.split()[0] for line in said if line.startswith(("open ", "os."))] == ["open", "os.utime"]
