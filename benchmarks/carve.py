"""Measures `decode --carve`, as processes, each right after what it is compared with.

    python -m benchmarks.carve [--keep DIR] [--rounds 5] [--size 1GiB]

Images of one size each, made in DIR unless they are there:

    random     random bytes: the search alone                    beside `bytes.find` of a magic code, and SHA-256
    records    records of 1.26 KB, from an odd byte on           beside `decode` of the same log
    twice      the same, twice: every record of the second half is compared with its original
    claims     heads that claim the same bytes, lengths right    beside the random bytes: how much longer it takes
    sparse     8 TiB of holes, and one record at the end
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.make_store import make_store
from benchmarks.questions import BARE, Question, measure
from benchmarks.rounds import describe_machine
from rmqinspect.schemas import message
from rmqinspect.text import parse_size

_READ = """
import hashlib, sys
sha = hashlib.sha256()
with open(sys.argv[1], "rb", buffering=0) as file:
    while raw := file.read(4 << 20):
        {}
"""
_FIND = [sys.executable, "-c", _READ.format(rf"raw.find({message.MAGIC_PREFIX!r})")]
_HASH = [sys.executable, "-c", _READ.format("sha.update(raw)")]
_STEP = 4 << 20
_LAST = 8 << 40


def make_images(folder: str, size: int) -> Iterator[str]:
    """Yield the store and then the images, each made if it is not there."""
    store = os.path.join(folder, f"mid-{size}")
    if not os.path.exists(store):
        make_store(store, "mid", size)
    yield store
    segments = [os.path.join(store, "commitlog", name) for name in sorted(os.listdir(os.path.join(store, "commitlog")))]
    for name, parts in (
        ("random", (os.urandom(_STEP) for _ in range(size // _STEP))),
        ("records", _parts(segments)),
        ("twice", (part for _ in range(2) for part in _parts(segments))),
        ("claims", (_claims(_STEP) for _ in range(size // _STEP))),
    ):
        path = os.path.join(folder, f"{name}-{size}")
        if not os.path.exists(path):
            with open(path, "wb") as out:
                out.writelines(parts)
        yield path
    path = os.path.join(folder, "sparse")
    with open(path, "wb") as out, open(segments[0], "rb") as first:
        out.seek(_LAST)
        out.write(first.read(4096))
    yield path


def _parts(segments: list[str]) -> Iterator[bytes]:
    yield b"odd"
    for segment in segments:
        with open(segment, "rb") as file:
            while part := file.read(_STEP):
                yield part


def _claims(size: int) -> bytes:
    """Return heads whose lengths all lead to one end: each would have its checksum taken over all bytes up to it."""
    head = message.HEADS[False, False]
    plain = dict.fromkeys(("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"), 1)
    host = {"address": bytes(4), "port": 1}
    plain |= {
        "born_timestamp": 10**12,
        "store_timestamp": 10**12,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }
    claims = b""
    for at in range(0, size // 2 - 400, head.sizeof()):
        left = size // 2 - at
        hosts = {"born_host": host, "store_host": host}
        sizes = {"total_size": left, "magic": message.MAGIC_V1, "body_size": left - message.FIXED_SIZE}
        claims += head.build(plain | hosts | sizes | {"sys_flag": 0})
        if at > 200_000:  # as many as cost the most of their kind, and are made soon
            break
    return claims.ljust(size // 2, b"\0") * 2


def main(arguments: list[str] | None = None) -> None:
    """Make the images if there are none yet, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.carve")
    parser.add_argument("--keep", metavar="DIR", help="make the images in this folder, and reuse them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=parse_size, default=1 << 30)
    options = parser.parse_args(arguments)
    print(describe_machine() + "\n")
    with ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-"))
        cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-")))
        store, random, records, twice, claims, sparse = make_images(folder, options.size)
        decode = [sys.executable, "-m", "rmqinspect", "decode", store, "-f", "arrow", "-j", "1", "-q"]
        carve = ["decode", "--carve", "-f", "arrow"]
        measure(
            [
                Question("random, beside find", [*carve, random], [*_FIND, random], None, 250, options.size, 1),
                Question("random, beside SHA-256", [*carve, random], [*_HASH, random], None, 250, options.size, 1),
                Question("records, beside decode", [*carve, records], decode, None, 350, options.size),
                Question("records twice", [*carve, twice], decode, None, 350, 2 * options.size),
                Question("claims of the same bytes", [*carve, claims], [*_HASH, claims], None, 350, options.size),
                Question("8 TiB of holes", [*carve, sparse], BARE, 1, 250),
            ],
            options.rounds,
            cache,
        )


if __name__ == "__main__":
    main()
