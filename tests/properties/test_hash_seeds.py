"""What is said of the same files does not depend on the order in which one run of Python iterates over sets."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import oracle
from tests.support.documents import RUN

# Prints the report of `verify` without what it says of its own run, then what other commands say.
PROGRAM = """
import json, sys
from rmqinspect.cli import main
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.document import as_object
from rmqinspect.verify.report import report_of
from rmqinspect.verify.run import verify

damaged, sound = sys.argv[1:]
document = as_object(report_of(verify(open_store([damaged]), VerifyOptions(level="deep")), "S"))
del document["run"]
print(json.dumps(document), flush=True)
main(["info", damaged, "-f", "json"])
main(["diff", damaged, sound, "-f", "json"])
main(["decode", damaged, "--table", "topics", "-f", "csv"])
main(["decode", damaged, "--table", "findings", "-f", "csv"])
main(["decode", damaged, "-t", "Order*", "-f", "jsonl", "-n", "20"])
"""
BROKEN = ("perm", "readQueueNums", "topicSysFlag", "writeQueueNums")


def said(seed: str, *stores: Path) -> str:
    environment = os.environ | {"PYTHONHASHSEED": seed}
    words = [sys.executable, "-c", PROGRAM, *map(str, stores)]
    return subprocess.run(words, env=environment, capture_output=True, check=True, text=True).stdout


def test_two_seeds_of_hashes_give_the_same_bytes(tmp_path: Path) -> None:
    store = oracle.copy("broker", "main-5.3.3", tmp_path)
    topics = store / "config" / "topics.json"
    text = topics.read_text()
    for name in BROKEN:
        # Members of one topic, and in another one a member whose name has a flipped bit.
        text = re.sub(rf'"{name}":\d+', f'"{name}":"x"', text, count=1)
        text = re.sub(rf'"{name}":(\d+)', rf'"{name[:-1]}{chr(ord(name[-1]) ^ 1)}":\1', text, count=1)
    topics.write_text(text)
    sound = oracle.store("broker", "main-5.5.0")
    one, other = (re.sub(RUN, "", said(seed, store, sound)) for seed in ("1", "2"))
    assert "ST-CONFIG" in one
    assert one == other
