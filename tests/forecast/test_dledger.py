"""The end of a DLedger log after a start, where its queues are cut, and what they get, as real brokers have it."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.forecast.dledger import cuts_queues, ledger_files, record_scan, recover_ledger
from rmqinspect.forecast.settings import settings_of
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from tests.support import oracle

STORES = ("dledger-4.9.7", "dledger-5.3.3")
BASE, MAX = 131072, 246029  # of dledger-5.3.3: of its last file, of its log
ENTRIES = 275  # in the last file


@pytest.mark.parametrize("name", STORES)
def test_the_end_of_a_ledger(name: str) -> None:
    store, truth = open_store([str(oracle.store("broker", name))]), oracle.truth("broker", name)
    ledger = recover_ledger(store, ledger_files(store), settings_of(store)[0])
    assert ledger.end == ledger.committed == truth["store"]["max_phy"]
    assert (ledger.scan_start, ledger.rejected, ledger.refusal) == (0, None, None)


# DefaultMessageStore of these releases, dledger-5.3.3 with a file abort: "truncate dirty logic files".
@pytest.mark.parametrize(
    ("release", "end"),
    [("5.1.4", None), ("5.2.0", BASE), ("5.3.3", MAX - ENTRIES * 48), ("5.4.0", MAX - ENTRIES * 48)],
)
def test_where_the_queues_are_cut_after_an_unclean_exit(release: str, end: int | None) -> None:
    store = open_store([str(oracle.store("broker", "dledger-5.3.3"))])
    settings, rules, files = settings_of(store)[0], rules_of_start(release), ledger_files(store)
    ledger = recover_ledger(store, files, settings)
    found = record_scan(store, files, rules, settings, read_checkpoint(store), ledger)
    if end is None:
        assert found is None
        return
    assert found is not None
    scanner, first = found
    assert scanner.segments[first].base == BASE
    assert scanner.scan(rules, first, 0, clean=False, take=None).end == end


FIRST, LAST, INDEX = (f"dledger-n0/{name}" for name in ("data/" + "0" * 20, f"data/{BASE:020}", "index/" + "0" * 20))
HUNDREDTH = 166780  # the entry of that number in the last file
BLANK = 130707  # of the first file


def write(name: str, offset: int, raw: bytes) -> Callable[[Path], None]:
    """Return what writes bytes at a physical offset."""

    def change(root: Path) -> None:
        with (root / name).open("r+b") as file:
            file.seek(offset - (BASE if name == LAST else 0))
            file.write(raw)

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


# What DefaultMessageStore of 5.3.3 made of dledger-5.3.3, so damaged: where the scan of its library began and ended.
@pytest.mark.parametrize(
    ("damage", "start", "end", "reason"),
    [
        pytest.param(write(LAST, HUNDREDTH, b"\0\0\0\2"), 0, HUNDREDTH, "entry_magic", id="magic"),
        pytest.param(write(LAST, HUNDREDTH + 4, b"\0\0\0\x5a"), 0, HUNDREDTH, "entry_size", id="size"),
        pytest.param(write(LAST, HUNDREDTH + 8, bytes(8)), 0, HUNDREDTH, "entry_order", id="index"),
        pytest.param(write(LAST, HUNDREDTH + 16, b"\xff" * 8), 0, HUNDREDTH, "entry_order", id="term"),
        pytest.param(write(LAST, HUNDREDTH + 148, b"\x4d"), 0, MAX, None, id="body"),
        pytest.param(write(LAST, BASE + 24, bytes(8)), 0, BASE, "entry_place", id="first entry of the last file"),
        pytest.param(write(FIRST, BLANK, b"\0\0\0\7"), 0, BLANK, "entry_place", id="blank"),
        pytest.param(write(FIRST, 0, b"\0\0\0\x09"), 0, 0, "entry_magic", id="first entry"),
        pytest.param(remove(INDEX), 0, MAX, None, id="no index"),
        pytest.param(remove(FIRST), BASE, MAX, None, id="no first file"),
    ],
)
def test_a_damaged_ledger(
    damage: Callable[[Path], None], start: int, end: int, reason: str | None, tmp_path: Path
) -> None:
    root = oracle.copy("broker", "dledger-5.3.3", tmp_path)
    damage(root)
    store = open_store([str(root)])
    ledger = recover_ledger(store, ledger_files(store), settings_of(store)[0])
    assert (ledger.scan_start, ledger.end) == (start, end)
    assert (ledger.rejected.rule if ledger.rejected else None) == reason
    assert ledger.refusal is None


def test_a_ledger_with_a_short_file_is_refused(tmp_path: Path) -> None:
    root = oracle.copy("broker", "dledger-5.3.3", tmp_path)
    with (root / LAST).open("r+b") as file:
        file.truncate(BASE - 1)
    store = open_store([str(root)])
    refusal = recover_ledger(store, ledger_files(store), settings_of(store)[0]).refusal
    assert refusal is not None
    assert (refusal.file, refusal.rule) == (LAST, "ledger_length")


# As above with a file abort: the scan of the records has its own end, which ends nothing but the queues.
@pytest.mark.parametrize(
    ("damage", "end"),
    [
        pytest.param(write(LAST, HUNDREDTH + 148, b"\x4d"), HUNDREDTH - 100 * 48, id="body"),
        pytest.param(write(LAST, HUNDREDTH + 8, bytes(8)), MAX - ENTRIES * 48, id="index"),
    ],
)
def test_the_records_of_a_damaged_ledger(damage: Callable[[Path], None], end: int, tmp_path: Path) -> None:
    root = oracle.copy("broker", "dledger-5.3.3", tmp_path)
    damage(root)
    store = open_store([str(root)])
    settings, rules, files = settings_of(store)[0], rules_of_start("5.3.3"), ledger_files(store)
    found = record_scan(store, files, rules, settings, read_checkpoint(store), recover_ledger(store, files, settings))
    assert found is not None
    assert found[0].scan(rules, found[1], 0, clean=False, take=None).end == end


# DefaultMessageStore of these releases, dledger-5.3.3 with a file abort: what the queues have after the start. A
# checkpoint of 5.5.0 says where the queues end, one of an older release does not: then 5.5.0 cuts nothing.
@pytest.mark.parametrize(
    ("release", "noted", "cuts"),
    [("5.3.3", 0, True), ("5.4.0", 0, True), ("5.5.0", 0, False), ("5.5.0", MAX, True), ("5.5.0", BASE, False)],
)
def test_5_5_0_cuts_the_queues_where_the_checkpoint_says_that_they_end(release: str, noted: int, cuts: bool) -> None:
    end = MAX - ENTRIES * 48
    checkpoint = {"logics_physical_offset": noted}
    assert cuts_queues(rules_of_start(release), checkpoint, end, clean=False) is cuts
    assert cuts_queues(rules_of_start(release), checkpoint, end, clean=True)


def lag(root: Path, end: int) -> None:
    """Take the units of the records behind a physical offset, as after a kill that came before they were flushed."""
    for path in (path for path in (root / "consumequeue").rglob("*") if path.is_file()):
        units = [
            unit for unit in struct.iter_unpack("20s", path.read_bytes()) if struct.unpack(">q12x", *unit)[0] < end
        ]
        path.write_bytes(b"".join(unit for (unit,) in units).ljust(path.stat().st_size, b"\0"))


OLD_LAST = 131072  # of dledger-4.9.7: the base of its last file
BAD = 150111  # an entry in it


# DefaultMessageStore of 4.9.7 and 4.7.1, dledger-4.9.7 with a file abort, so changed: it dispatches from the end of the
# queues on, before it serves. A record that it cannot read takes the rest of its file from the queues.
@pytest.mark.parametrize("release", ["4.9.7", "4.7.1"])
@pytest.mark.parametrize(
    ("end", "damage", "unreachable"),
    [
        pytest.param(0, b"", 0, id="no unit"),
        pytest.param(140000, b"", 0, id="units of the last file"),
        pytest.param(140000, b"\0\0\0\7", 26, id="damage behind them"),
        pytest.param(155000, b"\0\0\0\7", 0, id="damage before them"),
    ],
)
def test_queues_that_lag_behind_a_ledger(
    release: str, end: int, damage: bytes, unreachable: int, tmp_path: Path
) -> None:
    root = oracle.copy("broker", "dledger-4.9.7", tmp_path)
    lag(root, end)
    with (root / f"dledger-n0/data/{OLD_LAST:020}").open("r+b") as file:
        file.seek(BAD - OLD_LAST + 48 + 4)  # the magic code of its record
        file.write(damage)
    found = forecast(open_store([str(root)]), ForecastRequest(release, clean_exit=False, instead=False))
    (outcome,) = found.outcomes
    assert (outcome.unknown, outcome.refusal, outcome.unreachable) == (None, None, unreachable)
    assert (outcome.end_offset, outcome.segments_after) == (159827, [0, OLD_LAST])
    ends = {(one.topic, one.queue_id): one.max_after for one in outcome.queues}
    whole = {(one["topic"], one["queue_id"]): one["max"] for one in oracle.truth("broker", "dledger-4.9.7")["queues"]}
    short = sum(number - ends.get(queue, 0) for queue, number in whole.items())
    assert short == (unreachable + 1 if unreachable else 0)  # and the damaged one
