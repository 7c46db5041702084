"""Measures the peak memory of the commands on stores that are made to take much.

    python -m benchmarks.memory [--keep DIR] [--only 'bombs.*jsonl'] [--config-size 126]

    store     what it holds
    offsets   a consumerOffset.json of `--config-size` MB and its copy
    limit     one just below the limit of --max-config
    nuls      bodies of 4 MiB of NUL, 200 MB of them: each NUL takes six bytes in JSON
    nul       one body of 64 MiB of NUL
    bombs     63 compressed bodies, each of which decompresses to nearly 64 MiB
    1GiB      a log of 1 GiB with its queues and index
    100GB     a log of 100 GB, with as many records: each segment of 1 GiB begins with them, the rest is a hole

The peak is the resident set of the largest process, as the system counted it. The last two have to be alike.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

from benchmarks.make_store import make_store, write_sparse_store
from benchmarks.measure import run_process
from rmqinspect.schemas import message
from rmqinspect.store.model import MAX_CONFIG_SIZE
from tests.support.building import lay, pad

_SEGMENT_SIZE = 1 << 30
_SEGMENTS = -(-(100 * 10**9) // _SEGMENT_SIZE)

_MESSAGE = "decode {store} --body full -o {out} -f"
_COMMANDS = {
    "offsets": (
        "info {store}",
        "verify {store} --level quick",
        "verify {store} --level standard",
        "verify {store}",
        "decode {store} --table groups -f jsonl -o {out}",
        "decode {store} --table groups -f parquet -o {out}",
        "decode {store} -k K -f jsonl -o {out}",
        "diff {store} {store}",
        "export {store} -o {out}",
    ),
    "bodies": (
        *(f"{_MESSAGE} {name}" for name in ("table", "jsonl", "json", "csv", "parquet", "arrow")),
        "info {store}",
        "verify {store}",
        "diff {store} {store}",
        "show {store} --at 0",
        "export {store} -o {out}",
        "export {store} -o {out} --partition-by topic",
    ),
    "log": ("verify {store} --level standard -j 2", "verify {store} -j 1", "verify {store} -j 2"),
}


def _offsets(size: int) -> str:
    """Return a consumerOffset.json of about `size` bytes: groups with the offsets of eight queues, as brokers write."""
    queues = ",".join(f"{queue}:{123_456 + queue}" for queue in range(8))
    entry = '"topic-of-an-order-%07d@group-of-a-service-%03d":{' + queues + "}"
    count = size // (len(entry % (0, 0)) + 1)
    entries = ",".join(entry % (number // 50, number % 50) for number in range(count))
    version = '{"counter":7,"stateVersion":0,"timestamp":1716193815123}'
    return f'{{"dataVersion":{version},"offsetTable":{{{entries}}}}}'


def _with_offsets(store: Path, size: int) -> None:
    _log(store, [b"Hello RocketMQ"])
    config = store / "config"
    config.mkdir()
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_text(_offsets(size))
    topics = {"dataVersion": {"counter": 1}, "topicConfigTable": {}}
    (config / "topics.json").write_text(json.dumps(topics))


def _log(store: Path, bodies: Iterable[bytes], sys_flag: int = 0) -> None:
    log = store / "commitlog"
    log.mkdir(parents=True)
    raw = lay([{"body": body, "queue_offset": at, "sys_flag": sys_flag} for at, body in enumerate(bodies)])
    (log / f"{0:020}").write_bytes(pad(raw, len(raw) + 4096))


def _bombs() -> list[bytes]:
    return [zlib.compress(bytes((64 << 20) - 1), 9)] * 63


_KINDS = {
    "offsets": "offsets",
    "limit": "offsets",
    "nuls": "bodies",
    "nul": "bodies",
    "bombs": "bodies",
    "1GiB": "log",
    "100GB": "log",
}


def _make(name: str, store: Path, config_size: int) -> None:
    if name == "offsets":
        _with_offsets(store, config_size * 1_000_000)
    elif name == "limit":
        _with_offsets(store, MAX_CONFIG_SIZE - 500)
    elif name == "nuls":
        _log(store, [bytes(4 << 20)] * 48)
    elif name == "nul":
        _log(store, [bytes(64 << 20)])
    elif name == "1GiB":
        make_store(str(store), "mid", _SEGMENT_SIZE, _SEGMENT_SIZE)
    elif name == "100GB":
        write_sparse_store(str(store), _SEGMENTS, _SEGMENT_SIZE, _SEGMENT_SIZE // _SEGMENTS)
    else:
        _log(store, _bombs(), message.SysFlag.COMPRESSED)


def main(arguments: list[str] | None = None) -> None:
    """Make the stores that are not there yet, and print the peak of each command on each."""
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("--keep", help="make the stores in this folder, and reuse them")
    parser.add_argument("--only", default="", help="measure only what matches: 'STORE COMMAND'")
    parser.add_argument("--config-size", type=int, default=126, metavar="MB")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(options.keep or stack.enter_context(tempfile.TemporaryDirectory()))
        print("| store | command | peak MB | s | exit |\n|---|---|---|---|---|", flush=True)
        for name, kind in _KINDS.items():
            wanted = [line for line in _COMMANDS[kind] if re.search(options.only, f"{name} {line}")]
            store = folder / name
            if wanted and not store.exists():
                # In another process: a child's peak begins with that of the process it was forked from.
                maker = get_context("spawn").Process(target=_make, args=(name, store, options.config_size))
                maker.start()
                maker.join()
            for line in wanted:
                with tempfile.TemporaryDirectory() as scratch:
                    words = line.format(store=store, out=os.path.join(scratch, "out")).split()
                    cost = run_process([sys.executable, "-m", "rmqinspect", *words], may_fail=True)
                shown = line.format(store="STORE", out="OUT")
                held = (cost.memory or 0) / 1e6
                print(f"| {name} | {shown} | {held:.0f} | {cost.wall:.1f} | {cost.status} |", flush=True)


if __name__ == "__main__":
    main()
