"""Index files at a start: which ones stay, and the headers that records give, as the writers' own files have them."""

import numpy as np
import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.index_files import Header, IndexFiles, IndexState
from rmqinspect.forecast.settings import Settings, settings_of
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle


def _start(name: str) -> tuple[Store, IndexState]:
    store, truth = open_store([str(oracle.store("crash", name))]), oracle.truth("crash", name)
    rules = rules_of_start(oracle.case("crash", name)["opened_by"])
    files = IndexFiles.read(store, settings_of(store)[0])
    return store, files.load(rules, read_checkpoint(store), clean=not truth["abort_before"])


@pytest.mark.parametrize("name", oracle.cases("crash"))
def test_files_that_a_start_deletes(name: str) -> None:
    truth, (_, state) = oracle.truth("crash", name), _start(name)
    if not (truth["load_ok"] or state.refusal):
        return  # refused before the index was loaded
    removed = {file for file in truth["files_after_load"]["removed"] if file.startswith("index/")}
    assert set(state.deleted) == removed
    assert (state.refusal is not None) == name.startswith("idx_dir-5.3")
    before = {file for file, _ in truth["files_before"] if file.startswith("index/") and file[6:].isdecimal()}
    assert set(state.after) == before - removed
    if "index_after_load" in truth and not state.refusal:
        known = [header["name"] for header in truth["index_after_load"]]
        assert [header.name.removeprefix("index/") for header in state.headers] == known[: len(state.headers)]
        assert len(known) >= len(state.headers)  # what records make comes behind


def _dispatch(store: Store, state: IndexState, step: int) -> None:
    """Dispatch all records of a store, some at a time."""
    for split in plan_splits(store.segments, 1 << 62):
        for run in scan_split(split):
            if isinstance(run, RecordRun) and not run.carved:
                for first in range(0, len(run.records), step):
                    some = run.records.select(np.arange(first, min(first + step, len(run.records))))
                    state.dispatch(Batch(some, np.zeros(len(some), np.int64), [("", 0)], split.segment))


@pytest.mark.parametrize("release", ["4.2.0", "4.9.7", "5.3.3", "5.5.0"])
def test_records_give_the_files_of_their_writer(release: str) -> None:
    store = open_store([str(oracle.store("crash", f"base-{release}-clean"))])
    settings = settings_of(store)[0]
    rules = rules_of_start(release)
    written = IndexFiles.read(store, settings).load(rules, {}, clean=True).headers
    state = IndexFiles.read(replace(store, index_files=(), oddities=()), settings).load(rules, {}, clean=True)
    _dispatch(store, state, step=1000)
    assert state.new == len(written) > 1
    assert [header._replace(name="") for header in written] == state.headers
    # Dispatched again, only records at the end offset of the last file get entries.
    again = IndexFiles.read(store, settings).load(rules, {}, clean=True)
    _dispatch(store, again, step=7)
    last, more = written[-1], again.headers[-1]
    assert again.headers[:-1] == written[:-1]
    assert more.end_physical_offset == last.end_physical_offset
    assert 0 < more.index_count - last.index_count < 5
    assert again.entries_behind(0, []) == sum(header.index_count - 1 for header in written)
    middle = written[-2].end_physical_offset
    assert last.index_count <= again.entries_behind(middle, []) < last.index_count + 5
    assert again.entries_behind(last.end_physical_offset + 1, []) == 0


def _state(settings: Settings) -> IndexState:
    store = open_store([str(oracle.store("crash", "base-5.3.3-clean"))])
    return IndexFiles.read(store, settings).load(rules_of_start("5.3.3"), {}, clean=True)


def test_an_index_that_is_not_written_stays_as_it_is() -> None:
    for settings in (Settings(message_index_enable=False), Settings(index_file_write_enable=False)):
        state = _state(replace(settings, max_index_num=250, max_hash_slot_num=100))
        before = state.headers
        state.dispatch_unknown()
        assert (state.headers, state.new) == (before, 0)


def test_what_is_no_record_makes_a_file_where_none_has_room() -> None:
    store = replace(open_store([str(oracle.store("crash", "base-4.2.0-clean"))]), index_files=(), oddities=())
    settings = Settings(max_index_num=250, max_hash_slot_num=100)
    state = IndexFiles.read(store, settings).load(rules_of_start("4.2.0"), {}, clean=True)
    state.dispatch_unknown()
    state.dispatch_unknown()
    assert (state.new, state.headers) == (1, [Header("", 0, 0, 0, 0, 1)])


def test_a_checkpoint_that_was_cut_goes_on_with_zeros() -> None:
    root = oracle.store("crash", "cp_short-5.1.4-h")
    raw = (root / "checkpoint").read_bytes()
    assert len(raw) == 20  # within the time of the index
    values = read_checkpoint(open_store([str(root)]), mapped=True)
    assert values["index_msg_timestamp"] == int.from_bytes(raw[16:20], "big") << 32
    assert values["logics_physical_offset"] == 0
