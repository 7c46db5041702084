"""Where queues begin and end that have lost messages of which neither heads nor units tell."""

import json
import shutil
from pathlib import Path

import numpy as np

from rmqinspect.consumequeue.units import messages_in
from rmqinspect.rescue.units import are_likely
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import salvage, sound_records
from tests.support.samples import sample

TOPIC = "TopicA"


def without_queues(folder: Path, lost: int, *, first: bool) -> tuple[Path, int]:
    """Return a store without queue files that has lost so many bytes at the begin or at the end of its log.

    Also the number of messages that the topic's queue 0 had.
    """
    store = shutil.copytree(sample("healthy-5.5.0"), folder / "store")
    store.chmod(0o755)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    places = sorted(sound_records(open_store([str(store)])))
    start = 0 if first else places[-1] - lost
    for path in sorted((store / "commitlog").iterdir()):
        raw, base = bytearray(path.read_bytes()), int(path.name)
        for at in range(max(start, base), min(start + lost if first else 1 << 62, base + len(raw))):
            raw[at - base] = 0
        path.write_bytes(raw)
    whole = [file for file in open_store([str(sample("healthy-5.5.0"))]).queue_files if file.topic == TOPIC]
    return store, sum(len(units) for file in whole if not file.queue_id for _, units in messages_in(file))


def offsets(root: Path) -> list[int]:
    files = [file for file in open_store([str(root)]).queue_files if (file.topic, file.queue_id) == (TOPIC, 0)]
    return [int(one) for file in files for places, _ in messages_in(file) for one in places]


def test_a_queue_reaches_to_the_offset_of_its_groups(tmp_path: Path) -> None:
    store, count = without_queues(tmp_path, 20_000, first=False)
    (store / "config").mkdir(exist_ok=True)
    place = store / "config/consumerOffset.json"
    for offset, reaches in ((count, True), (1 << 40, False)):
        place.write_text(json.dumps({"offsetTable": {f"{TOPIC}@g": {"0": offset}}}))
        made, _ = salvage(tmp_path / f"new{reaches}", store)
        assert made.holds
        assert (offsets(tmp_path / f"new{reaches}") == list(range(count))) is reaches


def test_queues_of_the_broker_reach_to_what_it_has_delivered(tmp_path: Path) -> None:
    """Their topics are in no topics.json; what it delivers from delay levels has no group."""
    store, _ = without_queues(tmp_path, 20_000, first=False)
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: {}}}))
    own = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    offsets = {f"{own}@CID_RMQ_SYS_TRANS": {"0": 3}, "Gone@g": {"0": 5}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (config / "delayOffset.json").write_text(json.dumps({"offsetTable": {"4": 7, "0": 3}}))
    made, _ = salvage(tmp_path / "new", store)
    assert made.holds
    files = {(file.topic, file.queue_id): file for file in open_store([str(tmp_path / "new")]).queue_files}
    ends = {queue: max(int(one[-1]) + 1 for one, _ in messages_in(file)) for queue, file in files.items()}
    assert (ends[own, 0], ends["SCHEDULE_TOPIC_XXXX", 3]) == (3, 7)
    assert not {("Gone", 0), ("SCHEDULE_TOPIC_XXXX", -1)} & files.keys()


def test_a_queue_of_a_log_that_begins_at_0_begins_at_0(tmp_path: Path) -> None:
    store, count = without_queues(tmp_path, 20_000, first=True)
    made, _ = salvage(tmp_path / "new", store)
    assert made.holds
    assert offsets(tmp_path / "new") == list(range(count))


def test_likely_units() -> None:
    layout = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])

    def likely(*units: tuple[int, int, int], middle: float = -1) -> list[bool]:
        offsets = np.array([offset for offset, _, _ in units])
        rows = np.array([(place, size, 0) for _, place, size in units], layout)
        return [bool(one) for one in are_likely(offsets, rows, 1000, middle)]

    assert likely((4, 100, 200), (5, 300, 200)) == [True, True]
    assert likely((4, 100, 200), (40, 500, 200)) == [True, True], "behind zeros, and fits"
    assert likely((4, 100, 200), (40, 900, 200)) == [True, False], "over the end of its segment"
    assert likely((4, 100, 200), (40, 500, 20)) == [True, False], "no record is so small"
    assert likely((4, 100, 200), (40, 0, 200)) == [True, False], "behind the unit before it"
    assert likely((4, 100, 200), (5, 900, 2000), (6, 400, 200)) == [True, True, True], "damaged, but a unit"
    assert likely((54, 100, 200), (55, 300, 200), middle=200) == [False, False], "a copy of the file before it"


def test_a_unit_whose_message_stands_elsewhere_tells_of_no_lost_one(tmp_path: Path) -> None:
    store = shutil.copytree(sample("healthy-5.5.0"), tmp_path / "store")
    file = next(file for file in open_store([str(store)]).queue_files if (file.topic, file.queue_id) == (TOPIC, 0))
    path = Path(file.path)
    raw = bytearray(path.read_bytes())
    raw[2 * 20 + 4] ^= 1 << 2  # of the place of the third unit: behind the log's end
    path.chmod(0o644)
    path.write_bytes(raw)
    end = max(sound_records(open_store([str(store)])))
    made, records = salvage(tmp_path / "new", store)
    assert made.holds
    assert not made.receipt.lost_offsets
    assert not made.receipt.bridged
    assert max(records) == end
