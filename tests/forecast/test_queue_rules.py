"""Queues in columns against the same rules written line by line, on random damage."""

import struct
from pathlib import Path
from random import Random

import numpy as np
import pytest

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.start_rules import Rules
from rmqinspect.commitlog.records import Records
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.queues import QueueEnds, Queues
from rmqinspect.forecast.settings import Settings
from rmqinspect.loops import record_rows as columns
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment
from tests.forecast.slow_queue import UNIT, File, SlowQueue

UNITS = 5  # in a file
FILE = UNITS * UNIT
QUEUES = 40
TOPIC = "T"
RELEASES = ("4.0.0", "4.2.0", "4.3.2", "4.9.7", "5.3.3", "5.4.0", "5.5.0")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("is_destroyed", [False, True], ids=["cut", "destroyed"])
def test_random_queues_end_as_line_by_line(release: str, is_destroyed: bool, tmp_path: Path) -> None:
    rules, random = rules_of_start(release), Random(f"{release} {is_destroyed}")
    slow = [_queue(rules, random) for _ in range(QUEUES)]
    for queue_id, queue in enumerate(slow):
        folder = tmp_path / "consumequeue" / TOPIC / str(queue_id)
        folder.mkdir(parents=True)
        for file in queue.files:
            (folder / f"{file.base:020d}").write_bytes(file.data)
    settings = Settings(mapped_file_size_consume_queue=FILE)
    (tmp_path / "commitlog").mkdir()
    queues = Queues(QueueEnds.read(open_store([str(tmp_path)]), settings), rules)
    for queue in slow:
        queue.recover()
    _expect_same(queues, slow)

    batch = _batch(random)
    _dispatch(batch, queues, slow)
    _expect_same(queues, slow)
    end = random.choice((random.randrange(4000), 2000, 4000))
    if is_destroyed:
        queues.destroy()
    else:
        queues.truncate(end)
    for queue in slow:
        queue.destroy() if is_destroyed else queue.truncate(end)
    _expect_same(queues, slow)
    _dispatch(batch, queues, slow)
    _expect_same(queues, slow)
    log_min = random.choice((0, 500, 1500))
    refused = [not queue.correct_minimum(log_min) for queue in slow]
    assert (queues.correct_minimum(log_min) is not None) == any(refused)
    for queue, outcome, is_refused in zip(slow, _outcomes(queues), refused, strict=True):
        assert is_refused or outcome[0] == queue.min_logic // UNIT


def _queue(rules: Rules, random: Random) -> SlowQueue:
    """Return a queue of up to five files, sparsely damaged."""
    first, offset, files = random.choice((0, 0, 0, 2)), random.randrange(300), []
    used = random.choice((0, 3, 5, 7, 10, 14, 15, 22))
    for number in range(-(-used // UNITS) + random.choice((0, 0, 1))):
        data = bytearray(FILE)
        for at in range(UNITS if (number + 1) * UNITS <= used else max(0, used - number * UNITS)):
            size = random.randrange(90, 250)
            struct.pack_into(">qiq", data, at * UNIT, offset, size, 0)
            offset += size if random.random() < 0.9 else 0
        files.append(File((first + number) * FILE, data, FILE))
    for file in files:
        if random.random() < 0.25:
            what = random.choice(
                (bytes(UNIT), struct.pack(">qiq", random.randrange(-5, 5000), random.randrange(-3, 300), 7))
            )
            at = random.randrange(UNITS) * UNIT
            file.data[at : at + UNIT] = what
    return SlowQueue(rules, FILE, files)


def _batch(random: Random) -> Batch:
    """Return records of all queues; a few lie elsewhere than they say, or have strange queue offsets."""
    count = QUEUES * 12
    rows = np.zeros((count, columns.PROPERTIES_END + 1), np.int64)
    next_numbers = [random.choice((0, 3, 7, 12)) for _ in range(QUEUES)]
    numbers = np.array([random.randrange(QUEUES) for _ in range(count)], np.int64)
    place = 200
    for row, queue_id in zip(rows, numbers, strict=True):
        size = random.randrange(1, 16)
        said = place if random.random() < 0.95 else random.randrange(5000)
        number = next_numbers[queue_id] + (random.choice((-2, 1, 3)) if random.random() < 0.05 else 0)
        row[[columns.START, columns.TOTAL_SIZE, columns.PHYSICAL_OFFSET]] = place, size, said
        row[columns.QUEUE_OFFSET] = max(0, number)
        next_numbers[queue_id] += 1
        place += size
    records = Records(memoryview(bytes(8192)), 0, rows)
    return Batch(records, numbers, [(TOPIC, number) for number in range(QUEUES)], Segment("", "", 8192, "segment", 0))


def _dispatch(batch: Batch, queues: Queues, slow: list[SlowQueue]) -> None:
    queues.dispatch(batch)
    records = batch.records
    columns = (batch.numbers, records.physical_offset, records.total_size, records.field("queue_offset"))
    for queue_id, *unit in zip(*(column.tolist() for column in columns), strict=True):
        slow[queue_id].put(*unit)


def _outcomes(queues: Queues) -> list[tuple[int, int]]:
    return [
        (outcome.min_after, outcome.max_after) for outcome in queues.outcomes(range(1 << 62)) if outcome.topic == TOPIC
    ]


def _expect_same(queues: Queues, slow: list[SlowQueue]) -> None:
    for queue_id, (queue, outcome) in enumerate(zip(slow, _outcomes(queues), strict=True)):
        own = queues.queues["queue", TOPIC, queue_id]
        assert outcome == (queue.min_logic // UNIT, queue.max_offset // UNIT), queue_id
        assert own.max_physic == queue.max_physic, queue_id
        assert [file.base for file in own.files] == [file.base for file in queue.files], queue_id
        for file, (base, units) in zip(own.files, queue.units(), strict=True):
            offsets, sizes = own.units(file, 0, len(units)).tolist()
            assert list(zip(offsets, sizes, strict=True)) == units, (queue_id, base)


def test_units_that_are_given_up_leave_the_ends_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long dispatch only the newest units are kept; ends, cut and minimum do not ask for the others."""
    monkeypatch.setattr("rmqinspect.forecast.queue._KEPT", 0)
    rules, settings = rules_of_start("5.3.3"), Settings(mapped_file_size_consume_queue=FILE)
    (tmp_path / "commitlog").mkdir()
    slow = [SlowQueue(rules, FILE, []) for _ in range(2)]
    rows = np.zeros((60, columns.PROPERTIES_END + 1), np.int64)
    rows[:, columns.START] = rows[:, columns.PHYSICAL_OFFSET] = 100 * np.arange(60)
    rows[:, columns.TOTAL_SIZE], rows[:, columns.QUEUE_OFFSET] = 100, np.arange(60) // 2 + 7
    rows[41, columns.PHYSICAL_OFFSET] = 9_000  # lies elsewhere than it says: it is cut
    records, listed = Records(memoryview(bytes(8192)), 0, rows), [(TOPIC, number) for number in range(2)]
    queues = Queues(QueueEnds.read(open_store([str(tmp_path)]), settings), rules)
    for part in (slice(0, 20), slice(20, 60)):
        chosen = records.select(part)
        batch = Batch(chosen, np.arange(60)[part] % 2, listed, Segment("", "", 8192, "segment", 0))
        _dispatch(batch, queues, slow)
        assert queues.max_physic_offset == max(one.max_physic for one in slow)  # what was pending is put
    queues.truncate(6_000)
    for one in slow:
        one.truncate(6_000)
    assert [own.max_physic for own in queues.queues.values()] == [one.max_physic for one in slow]
    queues.correct_minimum(0)
    for one in slow:
        one.correct_minimum(0)
    assert _outcomes(queues) == [(one.min_logic // UNIT, one.max_offset // UNIT) for one in slow]
