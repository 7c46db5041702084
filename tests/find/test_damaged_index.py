"""Keys are found whatever happened to the index, and the way says which range of the log was scanned instead."""

import re
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.table import Request
from tests.support import oracle
from tests.support.command import Run, runner

find = runner("find", after=("-j", "1"))
decode = runner("decode", after=("-j", "1"))

# Case -> how many keys only a scan finds, and what is said of the files.
CASES = {
    "idx_dir-4.9.7-c": (0, "3 index files, "),  # a folder among the files
    "idx_empty-5.1.4-c": (0, "1 of 2 index files, "),  # a file of no bytes
    "idx_header_zero-5.4.0-h": (1, "3 of 4 index files, "),
    "idx_long-4.2.0-c": (0, "3 index files, "),
    "idx_lost-4.9.7-h": (0, "no index files; scanned: "),
    "idx_trunc-5.2.0-c": (1, "2 of 3 index files, "),
}
KEYS = 4


def keys_of(store: Path) -> dict[str, list[int]]:
    """Return some keys all over the log, and the places of all records with them."""
    places: dict[str, list[int]] = {}
    for batch in message_rows(open_store([str(store)]), Request()):
        for place, keys in zip(*(batch.column(name).to_pylist() for name in ("physical_offset", "keys")), strict=True):
            for key in set(keys):
                places.setdefault(key, []).append(place)
    names = list(places)
    return {name: places[name] for name in names[:: -(-len(names) // KEYS)]}


@pytest.mark.parametrize("name", CASES)
def test_a_key_is_found_without_a_sound_index(find: Run, name: str) -> None:
    store = oracle.store("crash", name)
    size = sum(segment.size for segment in open_store([str(store)]).segments)
    scans = 0
    for key, places in keys_of(store).items():
        status, out, err = find(store, "-k", key, "-f", "jsonl")
        assert status == 0
        assert [int(place) for place in re.findall(r'"physical_offset":(\d+)', out)] == places
        assert CASES[name][1] in err
        if err.startswith("by a scan, for "):
            scans += 1
            assert f"scanned: physical 0 to {size:,}".replace(",", " ") in err
        else:
            assert re.search(r"by the index: .*; scanned, for they do not cover it: physical [\d ]+ to [\d ]+", err)
    assert scans >= CASES[name][0]


def test_decode_says_so_too(decode: Run) -> None:
    _, out, err = decode(oracle.store("crash", "idx_lost-4.9.7-h"), "-k", "K6")
    assert out.splitlines()[1].split()[0] == "5153"
    assert ": by a scan, for there is no usable index: no index files; scanned: physical 0 to " in err
