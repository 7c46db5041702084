"""The load phase: every recorded truth of what real store classes loaded, deleted and refused; then rule by rule."""

import json
import os
import re
import shutil
from datetime import UTC
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.cli.forecast_screen import Look, screen
from rmqinspect.cli.forecast_script import script
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.load import (
    WHEEL_SIZE,
    Entry,
    Loaded,
    abort_refusal,
    load,
    load_folder,
    open_refusal,
)
from rmqinspect.forecast.outcome import Forecast, Outcome, QueueOutcome, Refusal, Verdict
from rmqinspect.forecast.settings import Settings, settings_of
from rmqinspect.forecast.timer_log import load_timer_log
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.verify.next_start import start_lines
from tests.support import oracle, timers

_LATER = ("idx_dir", "size_huge")  # refused by the index, and killed by the scan: not by what is loaded


def _load(name: str) -> Loaded:
    store = open_store([str(oracle.store("crash", name))])
    return load(store, rules_of_start(oracle.case("crash", name)["opened_by"]), settings_of(store)[0])


@pytest.mark.parametrize("name", oracle.cases("crash"))
def test_what_a_broker_loads(name: str) -> None:
    truth, loaded = oracle.truth("crash", name), _load(name)
    assert loaded.unknown is None
    assert (loaded.refusal is None) == (truth["load_ok"] or name.startswith(_LATER))
    if loaded.refusal is not None:
        return
    # What recovery deletes is loaded at first; a deleted empty file is not.
    bases = {segment.base for segment in loaded.segments}
    assert bases >= {file[0] for file in truth["after_load"]["commitlog_files"]}
    assert set(loaded.deleted) <= set(truth["files_after_load"]["removed"])
    removed = [file for file in truth["files_after_load"]["removed"] if file.startswith("commitlog/")]
    assert all(file in loaded.deleted or int(file[-20:]) in bases for file in removed)
    files = [file for file, _ in truth["files_before"] if file.startswith("commitlog/")]
    assert all(int(file[-20:]) in bases for file in files if file in removed and file not in loaded.deleted)


@pytest.mark.parametrize("name", [name for name in oracle.cases("crash") if "cq" in name or "queue" in name][::6])
def test_queues_of_a_broker(name: str) -> None:
    loaded, truth = _load(name), oracle.truth("crash", name)
    known = {(queue["topic"], queue["queue_id"]) for queue in truth["after_load"]["queues"]}
    assert loaded.refusal or {(topic, queue_id) for _, topic, queue_id in loaded.queues} <= known


SIZE = 100


def _folder(release: str, *entries: tuple[str, int | None]) -> tuple[list[str], list[str], list[str], str]:
    """Return names loaded, ignored, deleted, and of the file that is refused; a length of None makes a folder."""
    found = load_folder(
        [Entry(name, name, size or 0, is_folder=size is None, file=None) for name, size in entries],
        SIZE,
        rules_of_start(release),
    )
    parts = ([entry.name for entry in part] for part in (found.loaded, found.ignored, found.deleted))
    loaded, ignored, deleted = parts
    return loaded, ignored, deleted, found.refusal.file if found.refusal else ""


@pytest.mark.parametrize(
    ("releases", "entries", "expected"),
    [
        ("4.4.0 4.9.2", [("0", 100), ("1", 99), ("2", 100)], (["0"], ["1", "2"], [], "")),
        ("4.5.0 4.9.1 4.9.3 5.0.0 5.5.0", [("0", 100), ("1", 99), ("2", 100)], (["0"], [], [], "1")),
        ("4.4.0 4.9.2", [("0", 100), ("x", None)], (["0"], ["x"], [], "")),
        ("4.5.0 5.0.0", [("0", 100), ("x", None)], (["0"], [], [], "x")),
        ("5.1.0 5.5.0", [("0", 100), (".x", None)], (["0"], [".x"], [], "")),
        ("5.1.0", [("0", 100), ("1", 0)], (["0"], [], [], "1")),
        ("5.1.3 5.5.0", [("0", 100), ("1", 0)], (["0"], [], ["1"], "")),
        ("5.1.3 5.5.0", [("0", 100), ("name", 0)], (["0"], [], ["name"], "")),
        ("5.1.3 5.5.0", [("0", 100), ("1", 0), ("2", 0)], (["0"], [], [], "1")),
        ("5.1.3 5.5.0", [("0", 100), ("1", 0), ("z", None)], (["0"], [], [], "1")),
        ("4.2.0 5.5.0", [("0", 100), ("0.bak", 100)], (["0"], [], [], "0.bak")),
        ("4.2.0", [(".DS_Store", 8), ("0", 100)], ([], [".DS_Store", "0"], [], "")),
        ("4.2.0 5.5.0", [("10", 100), ("9", 100)], (["10", "9"], [], [], "")),  # by name, as text
        ("4.2.0 5.5.0", [("+10", 100)], (["+10"], [], [], "")),
        ("4.2.0 5.5.0", [("0", 100), ("-1", 100)], (["-1", "0"], [], [], "")),
        ("4.2.0 5.5.0", [("9223372036854775808", 100)], ([], [], [], "9223372036854775808")),
    ],
)
def test_a_folder_of_mapped_files(
    releases: str, entries: list[tuple[str, int | None]], expected: tuple[list[str], list[str], list[str], str]
) -> None:
    for release in releases.split():
        assert _folder(release, *reversed(entries)) == expected


def test_a_file_that_cannot_be_opened_or_begins_nowhere_leaves_the_start_open() -> None:
    rules = rules_of_start("5.5.0")
    assert load_folder([Entry("0", "q/0", 100, unread="the file could not be opened")], SIZE, rules).unknown
    assert load_folder([Entry(f"{2**63 - 1}", "q/9", 100)], SIZE, rules).unknown
    assert load_folder([Entry(f"-{2**63}", "q/-9", 100)], SIZE, rules).unknown


def _made(root: Path, *files: tuple[str, int]) -> Store:
    """Make a store of sparse files."""
    for name, size in (("commitlog/" + "0" * 20, SIZE), *files):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"")
            os.truncate(path, size)
        else:
            path.mkdir()
    return open_store([str(root)])


def _load_made(store: Store, release: str, **settings: object) -> Loaded:
    known = Settings(mapped_file_size_commit_log=SIZE, mapped_file_size_consume_queue=SIZE, **settings)  # type: ignore[arg-type]
    return load(store, rules_of_start(release), known)


def test_empty_folders_of_queues_are_queues(tmp_path: Path) -> None:
    store = _made(
        tmp_path,
        ("consumequeue/T/7/", 0),
        ("consumequeue/T/name/", 0),
        ("consumequeue/T/01/" + "0" * 20, SIZE),  # the queue 1, whose folder is 1
        ("consumequeue/T/9", 5),  # a file where the folder of a queue would be
        ("consumequeue/stray", 5),
        ("batchconsumequeue/B/0/", 0),
    )
    loaded = _load_made(store, "4.9.7")
    assert loaded.queues == {("queue", "T", 7): (), ("queue", "T", 1): (), ("queue", "T", 9): ()}
    assert loaded.refusal is None


def test_the_type_of_a_topic_and_its_folder(tmp_path: Path) -> None:
    store = _made(tmp_path, ("consumequeue/T/0/", 0), ("batchconsumequeue/B/0/", 0), ("config/topics.json", 0))
    refusal = _load_made(store, "5.0.0").refusal
    assert refusal is not None  # of an empty topics.json without .bak a broker knows no topic: ConfigManager#loadBak
    assert refusal.file == "batchconsumequeue/B/0"
    unread = _load_made(replace(store, max_config=-1), "5.0.0")
    assert unread.refusal is None
    assert unread.unknown is not None
    assert _load_made(store, "4.9.8").refusal is None  # knows no such folder
    types = {"T": "SimpleCQ", "B": "BatchCQ"}
    text = {"topicConfigTable": {topic: {"attributes": {"queue.type": own}} for topic, own in types.items()}}
    (tmp_path / "config/topics.json").write_text(json.dumps(text))
    loaded = _load_made(open_store([str(tmp_path)]), "5.0.0")
    assert loaded.refusal is None
    assert sorted(loaded.queues) == [("batch_queue", "B", 0), ("queue", "T", 0)]


def test_a_batch_queue_without_topics_json_is_restored_before_it_is_moved(tmp_path: Path) -> None:
    store = _made(
        tmp_path, ("batchconsumequeue/B/0/", 0), (f"batchconsumequeue/B/0/{0:020d}", 46), ("config/delayOffset.json", 2)
    )
    refusal = _load_made(store, "5.3.3").refusal
    assert refusal is not None
    assert refusal.remedy.startswith("restore config/topics.json from a backup, a slave,")
    assert refusal.remedy.endswith("move batchconsumequeue/B/0 to a place outside of the store")
    assert refusal.moves


def test_ext_files_are_loaded_where_they_are_enabled(tmp_path: Path) -> None:
    store = _made(tmp_path, ("consumequeue/T/0/", 0), ("consumequeue_ext/T/0/" + "0" * 20, 5))
    assert _load_made(store, "4.9.8").refusal is None
    refusal = _load_made(store, "4.9.8", enable_consume_queue_ext=True).refusal
    assert refusal is not None
    assert refusal.file == "consumequeue_ext/T/0/" + "0" * 20


def test_a_queue_file_of_another_length_is_ignored_or_refused(tmp_path: Path) -> None:
    wrong = "consumequeue/T/0/00000000000000000100"
    store = _made(tmp_path, ("consumequeue/T/0/" + "0" * 20, SIZE), (wrong, 60))
    loaded = _load_made(store, "4.4.0")
    assert [file.base for file in loaded.queues["queue", "T", 0]] == [0]
    assert loaded.ignored == [wrong]
    refusal = _load_made(store, "5.5.0").refusal
    assert refusal is not None
    assert (refusal.file, refusal.rule) == (wrong, "wrong_length")
    assert f"truncate -s {SIZE} {wrong}" in refusal.remedy


@pytest.mark.parametrize("name", [name for name in oracle.cases("crash") if not oracle.truth("crash", name)["load_ok"]])
def test_what_is_left_of_abort_after_a_refused_start(name: str) -> None:
    truth, loaded = oracle.truth("crash", name), _load(name)
    if loaded.refusal:
        assert ("abort" in loaded.deleted) == (truth["abort_before"] and not truth["abort_after"])


def test_compaction_logs(tmp_path: Path) -> None:
    first, second = "0" * 20, "00000000000000000100"
    log, queue = "compaction/compactionLog/T/0/", "compaction/compactionCq/T/0/"
    sizes = {"compaction_mapped_file_size": 100, "compaction_cq_mapped_file_size": 46}
    store = _made(tmp_path, (log + first, 100), (queue + first, 46))
    assert _load_made(store, "5.5.0", **sizes).refusal is None
    store = _made(tmp_path, (log + second, 100))
    for release, refused in (("5.0.0", False), ("5.1.0", True), ("5.5.0", True)):
        refusal = _load_made(store, release, **sizes).refusal
        assert (refusal.file if refusal else None) == (log + second if refused else None)
    assert _load_made(store, "5.5.0", **sizes, enable_compaction=False).refusal is None
    assert _load_made(_made(tmp_path, (queue + second, 45)), "5.5.0", **sizes).refusal is not None


def test_the_timer_log(tmp_path: Path) -> None:
    settings = Settings(mapped_file_size_timer_log=100)
    store = _made(tmp_path, ("timerlog/" + "0" * 20, 99))
    for release, refused in (("4.9.8", False), ("5.0.0", True), ("5.5.0", True)):
        assert (load_timer_log(store, rules_of_start(release), settings).refusal is not None) == refused
    settings = Settings(mapped_file_size_timer_log=100, timer_wheel_enable=False)
    assert load_timer_log(store, rules_of_start("5.5.0"), settings).refusal is None


@pytest.mark.parametrize(
    ("unit", "flushed", "gone"),
    [(None, None, 0), (25, None, 1), (5, None, 0), (5, 0, 2), (44, 0, 0), (38, 0, 0)],
)
def test_behind_the_first_place_without_a_unit_files_of_the_timer_log_are_deleted(
    unit: int | None, flushed: int | None, gone: int, tmp_path: Path
) -> None:
    timer = timers.some()
    timer.flushed = flushed
    if unit is not None:
        timer.change(unit, magic=77)
    settings = Settings(mapped_file_size_timer_log=timers.FILE_SIZE)
    found = load_timer_log(timer.write(tmp_path), rules_of_start("5.5.0"), settings)
    assert [entry.name for entry in found.deleted] == sorted(entry.name for entry in found.loaded)[3 - gone :]


@pytest.mark.parametrize("name", [name for name in oracle.cases("broker") if "-5." in name])
def test_stores_of_real_brokers_are_loaded(name: str) -> None:
    store, release = open_store([str(oracle.store("broker", name))]), name.rpartition("-")[2]
    loaded = load(store, rules_of_start(release), settings_of(store)[0])
    assert (loaded.refusal, loaded.unknown, loaded.deleted, loaded.notes) == (None, None, [], [])


def _refusal(root: Path, release: str, **settings: object) -> Refusal | None:
    return open_refusal(open_store([str(root)]), rules_of_start(release), replace(Settings(), **settings))


def test_the_wheel_of_the_timer(tmp_path: Path) -> None:
    """TimerWheel of 5.1.4 to 5.5.0 was given these lengths."""
    for size, refused in ((0, False), (4096, True), (WHEEL_SIZE, False), (WHEEL_SIZE - 1, True)):
        _made(tmp_path, ("timerwheel", size))
        for release in ("4.9.8", "5.0.0", "5.5.0"):
            refusal = _refusal(tmp_path, release)
            assert (refusal is not None) == (refused and release != "4.9.8")
            assert refusal is None or refusal.moves
        assert _refusal(tmp_path, "5.5.0", timer_wheel_enable=False) is None


@pytest.mark.parametrize(
    ("name", "since"), [("lock", "4.0.0"), ("timerwheel", "5.0.0"), ("config/timercheck", "5.0.0"), ("abort", None)]
)
def test_a_folder_in_the_place_of_a_file(tmp_path: Path, name: str, since: str | None) -> None:
    _made(tmp_path, (f"{name}/", 0))
    for release in ("4.0.0", "4.9.8", "5.0.0", "5.5.0"):
        refusal = _refusal(tmp_path, release)
        assert (refusal.file if refusal else None) == (name if since and release >= since else None)


def test_a_folder_in_the_place_of_abort_is_an_unclean_exit(tmp_path: Path) -> None:
    store = _made(tmp_path, ("abort/", 0))
    assert Evidence(store).has_abort
    for release, refused in (("4.9.8", False), ("5.0.0", True)):
        assert (abort_refusal(store, rules_of_start(release)) is not None) == refused


def test_a_file_in_the_place_of_the_queues(tmp_path: Path) -> None:
    """5.3.3 tries the first unit for 30 seconds, and writes none of any queue from then on."""
    root = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    shutil.rmtree(root / "consumequeue/TopicA")
    (root / "consumequeue/TopicA").write_bytes(b"")
    outcome = forecast(open_store([str(root)]), ForecastRequest(release="5.3.3")).worst
    assert outcome.verdict is Verdict.LOSES
    assert outcome.unreachable > 0
    assert any(note.startswith("consumequeue/TopicA is a file: the unit of the record at ") for note in outcome.notes)
    assert all(queue.max_after == 0 for queue in outcome.queues if queue.topic == "TopicA")


@pytest.mark.parametrize("name", ["consumequeue", "consumequeue/TopicA"])
def test_a_file_in_the_way_of_queues_is_moved_away_by_a_way_that_is_walked(name: str, tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    shutil.rmtree(root / name)
    (root / name).write_bytes(b"")
    found = forecast(open_store([str(root)]), ForecastRequest(release="5.3.3", instead=True))
    best = found.instead[0]
    assert best.way.startswith(f"the same broker with {name} moved out of the store")
    assert (best.outcome.verdict, best.outcome.unreachable, best.is_better) == (Verdict.SAFE, 0, True)
    assert best.outcome.healed_units > 0


def test_a_file_in_the_place_of_the_index_is_named_where_no_file_is_made_at_once(tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.3.3-clean", tmp_path)
    shutil.rmtree(root / "index")
    (root / "index").write_bytes(b"")
    outcome = forecast(open_store([str(root)]), ForecastRequest(release="5.3.3")).worst
    assert outcome.verdict is Verdict.SAFE
    note = "index is a file, so that no index file can be made"
    assert any(text.startswith(note) for text in outcome.notes)
    assert any(line.startswith(note) for line in start_lines(Forecast([outcome]), None))


@pytest.mark.parametrize(
    ("name", "is_in_the_way"),
    [
        ("consumequeue/TopicA", True),
        ("consumequeue/TopicA/0", True),
        ("consumequeue/.DS_Store", False),
        ("consumequeue/TopicA/.DS_Store", False),
    ],
)
def test_a_file_in_the_way_of_queues_is_named_where_no_queue_is_made_at_once(
    name: str, is_in_the_way: bool, tmp_path: Path
) -> None:
    """5.1.4 dispatches nothing again after a clean exit."""
    root = oracle.copy("crash", "base-5.1.4-clean", tmp_path)
    if (root / name).exists():
        shutil.rmtree(root / name)
    (root / name).write_bytes(b"x")
    found = forecast(open_store([str(root)]), ForecastRequest(release="5.1.4", instead=True))
    note = f"{name} is a file in the place of a folder of queues"
    assert (found.worst.verdict, found.worst.blocked_by) == (
        (Verdict.LOSES, name) if is_in_the_way else (Verdict.SAFE, None)
    )
    assert any(text.startswith(note) for text in found.worst.notes) is is_in_the_way
    assert any(line.startswith(note) for line in start_lines(found, None)) is is_in_the_way
    better = [way for way in found.instead if way.is_better]
    assert bool(better) is is_in_the_way
    moved = [way for way in better if not way.tool]
    assert bool(moved) is is_in_the_way
    assert all(way.moved == (name,) and way.outcome.blocked_by is None for way in moved)
    assert (f"move_away {name}" in script(found, open_store([str(root)]))) is is_in_the_way


def test_a_folder_abort_is_moved_for_a_clean_exit_and_replaced_for_an_unclean_one(tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    (root / "abort").unlink()
    (root / "abort").mkdir()
    store = open_store([str(root)])
    found = forecast(store, ForecastRequest(release="5.3.3", instead=True))
    names = {way.way: way.outcome.clean_exit for way in found.instead if way.is_better and not way.tool}
    assert names == {
        "the same broker with abort moved out of the store": True,
        "the same broker with an empty file in the place of the folder abort": False,
    }
    assert not any("without the file abort" in way.way for way in found.instead)
    assert "unclean exit, because the folder abort is there" in "\n".join(screen(found, store, Look(UTC, queues=False)))
    prepared = {
        line.partition("#")[0].strip(): re.findall(r"^  (move_away .*|: > .*)$", case, re.MULTILINE)
        for case in script(found, store).split("\n1:")[1:]
        for line in case.splitlines()[:1]
    }
    # Nothing is prepared for the new store of salvage.
    assert sorted(prepared.values()) == [[], [], ["move_away abort"], ["move_away abort", ': > "$store/abort"']]


def test_the_end_of_a_queue_that_is_gone_is_told_by_the_last_records(tmp_path: Path) -> None:
    """5.1.4 dispatches nothing again after a clean exit."""
    root = oracle.copy("crash", "base-5.1.4-clean", tmp_path)
    whole = forecast(open_store([str(root)]), ForecastRequest(release="5.1.4")).worst
    files = sorted((root / "consumequeue/TopicA/0").iterdir())
    files[-1].unlink()
    outcome = forecast(open_store([str(root)]), ForecastRequest(release="5.1.4")).worst
    assert whole.lost_queues == []
    (queue,) = outcome.lost_queues
    assert queue == (
        "TopicA",
        0,
        queue_after(whole, "TopicA", 0).max_after - queue_after(outcome, "TopicA", 0).max_after,
    )
    assert queue_after(outcome, "TopicA", 0).given_twice == queue.given_twice
    assert outcome.unreachable_by_topic == {"TopicA": queue.given_twice}
    assert outcome.verdict is Verdict.LOSES


def queue_after(outcome: Outcome, topic: str, queue_id: int) -> QueueOutcome:
    return next(queue for queue in outcome.queues if (queue.topic, queue.queue_id) == (topic, queue_id))


@pytest.mark.parametrize(
    ("gone", "is_told"),
    [
        (("consumequeue/CourierLog",), True),
        (("consumequeue/CourierLog/1",), True),
        # Whether the topic was deleted: another queue of it is left, or nothing says so.
        (("consumequeue/CourierLog/1", "config/topics.json", "config/topics.json.bak"), True),
        (("consumequeue/CourierLog", "config/topics.json", "config/topics.json.bak"), False),  # but by groups' offsets
    ],
)
def test_a_queue_that_is_gone_is_told_where_its_topic_was_not_deleted(
    gone: tuple[str, ...], is_told: bool, tmp_path: Path
) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    # Else the start is refused without topics.json.
    shutil.rmtree(root / "batchconsumequeue")
    whole = forecast(open_store([str(root)]), ForecastRequest(release="5.2.0")).worst
    for name in gone:
        shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()
    outcome = forecast(open_store([str(root)]), ForecastRequest(release="5.2.0")).worst
    own = [queue for queue in outcome.lost_queues if queue.topic == "CourierLog"]
    ends = {queue.queue_id: queue.max_after for queue in whole.queues if queue.topic == "CourierLog"}
    is_left = {queue.queue_id for queue in outcome.queues if queue.topic == "CourierLog"}
    assert (
        own
        == [("CourierLog", queue_id, end) for queue_id, end in sorted(ends.items()) if queue_id not in is_left]
        * is_told
    )
    assert outcome.verdict is Verdict.LOSES
    left = sum(end for queue_id, end in ends.items() if queue_id not in is_left)
    assert outcome.unreachable_by_topic["CourierLog"] == left


def test_records_of_a_topic_that_was_deleted_are_not_lost(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    shutil.rmtree(root / "consumequeue" / "CourierLog")
    topics = json.loads((root / "config/topics.json").read_text())
    del topics["topicConfigTable"]["CourierLog"]
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text(json.dumps(topics))
    assert forecast(open_store([str(root)]), ForecastRequest(release="5.2.0")).worst.lost_queues == []
