"""Batch queues in columns against the same rules written line by line, on random damage."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.commitlog.records import Records
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.queues import QueueEnds, Queues
from rmqinspect.forecast.settings import Settings
from rmqinspect.loops.record_rows import SLACK
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment
from tests.forecast.slow_batch_queue import BATCH_UNIT, SlowBatchQueue, unit
from tests.forecast.slow_queue import File
from tests.support.building import record

UNITS = 5  # in a file
FILE = UNITS * BATCH_UNIT
QUEUES = 40
TOPIC = "T"
END = 40_000


@pytest.mark.parametrize("seed", range(3))
def test_random_batch_queues_end_as_line_by_line(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    slow = [_queue(random) for _ in range(QUEUES)]
    for queue_id, queue in enumerate(slow[:-2]):
        folder = tmp_path / "batchconsumequeue" / TOPIC / str(queue_id)
        folder.mkdir(parents=True)
        for file in queue.files:
            (folder / f"{file.base:020d}").write_bytes(file.data)
    for queue in slow[-2:]:  # are made by the start
        queue.files.clear()
    (tmp_path / "config").mkdir()
    types = {"topicConfigTable": {TOPIC: {"attributes": {"queue.type": "BatchCQ"}}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(types))
    (tmp_path / "commitlog").mkdir()
    settings = Settings(mapper_file_size_batch_consume_queue=FILE)
    queues = Queues(QueueEnds.read(open_store([str(tmp_path)]), settings), rules_of_start("5.3.3"))
    for queue in slow:
        queue.recover()
    _expect_same(queues, slow)
    batch, puts = _batch(random)
    for end in (random.randrange(END), None):
        queues.dispatch(batch)
        for queue_id, *put in puts:
            slow[queue_id].put(*put)
        _expect_same(queues, slow)
        if end is not None:
            queues.truncate(end)
            for queue in slow:
                queue.truncate(end)
            _expect_same(queues, slow)
    queues.correct_minimum(END // 10)
    for queue in slow:
        queue.correct_minimum(END // 10)
    _expect_same(queues, slow)


def test_the_largest_queue_offset_is_survived(tmp_path: Path) -> None:
    folder = tmp_path / "batchconsumequeue" / TOPIC / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(unit(0, 200, 2**63 - 1, 3).ljust(FILE, b"\0"))
    (tmp_path / "commitlog").mkdir()
    settings = Settings(mapper_file_size_batch_consume_queue=FILE)
    queues = Queues(QueueEnds.read(open_store([str(tmp_path)]), settings), rules_of_start("5.3.3"))
    queues.truncate(END)
    queues.correct_minimum(END)
    (outcome,) = queues.outcomes(range(END))
    assert outcome.max_after == -(2**63) + 2, "the sum wraps, as in Java"


def _queue(random: Random) -> SlowBatchQueue:
    first, used, offset, base = random.choice((0, 0, 2)), random.choice((0, 3, 5, 8, 10, 14, 15, 21)), 0, 0
    files = [File((first + number) * FILE, bytearray(FILE), FILE) for number in range(-(-used // UNITS))]
    files += [File((first + len(files)) * FILE, bytearray(FILE), FILE)] * random.choice((0, 0, 1))
    for number in range(used):
        at, count = number % UNITS * BATCH_UNIT, random.randrange(1, 4)
        files[number // UNITS].data[at : at + BATCH_UNIT] = unit(offset, 200, base, count)
        offset, base = offset + random.randrange(200, 2000), base + count
    for file in files:
        if random.random() < 0.25:
            at = random.randrange(UNITS) * BATCH_UNIT
            junk = unit(*(random.randrange(-2, most) for most in (END, 300, 50, 4)))
            file.data[at : at + BATCH_UNIT] = random.choice((bytes(BATCH_UNIT), junk))
    return SlowBatchQueue(FILE, files)


def _batch(random: Random) -> tuple[Batch, list[tuple[int, int, int, int, int]]]:
    """Return records of all queues, and of each: queue id, offset, size, INNER_BASE, INNER_NUM."""
    log, starts, puts = b"", [], []
    bases = [random.randrange(40) for _ in range(QUEUES)]
    while len(log) < END - 1000:
        queue_id, count = random.randrange(QUEUES), random.randrange(1, 4)
        said = len(log) if random.random() < 0.95 else random.randrange(END)
        inner = {"INNER_BASE": str(bases[queue_id]), "INNER_NUM": str(count)}
        raw = record(said, topic=TOPIC, queue_id=queue_id, properties=inner)
        puts.append((queue_id, said, len(raw), bases[queue_id], count))
        starts.append(len(log))
        bases[queue_id] += count
        log += raw
    records = Records.at(memoryview(log + bytes(SLACK)), 0, np.array(starts, np.int64))
    numbers = np.array([put[0] for put in puts], np.int64)
    listed = [(TOPIC, number) for number in range(QUEUES)]
    return Batch(records, numbers, listed, Segment("", "", len(log), "segment", 0)), puts


def _expect_same(queues: Queues, slow: list[SlowBatchQueue]) -> None:
    outcomes = queues.outcomes(range(END))
    for outcome in outcomes:
        queue, own = slow[outcome.queue_id], queues.queues["batch_queue", TOPIC, outcome.queue_id]
        assert (outcome.min_after, outcome.max_after) == (queue.minimum, queue.maximum), outcome
        assert own.max_physic == queue.max_physic, outcome
    assert len(outcomes) in (QUEUES - 2, QUEUES)
