"""What is lost behind a new end of the log, against what the writer put there."""

from collections import Counter
from typing import Any

import pytest

from rmqinspect.forecast.losses import LossCounter
from rmqinspect.store.discover import open_store
from tests.support import oracle

UNDAMAGED = [name for name in oracle.cases("crash") if name.startswith("base-")]


def records(put: dict[str, Any]) -> int:
    """Return how many records a put has made: one for each message of a client's batch."""
    return len(put.get("items", [put]))


@pytest.mark.parametrize("name", UNDAMAGED[::3])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_all_records_at_or_behind_an_end_are_lost_once(name: str, share: float) -> None:
    puts = [put for put in oracle.puts(name) if put["status"] == "PUT_OK"]
    first = puts[int(len(puts) * share)]
    lost = [put for put in puts if put["phys"] >= first["phys"]]
    unread: list[str] = []
    fold = LossCounter(open_store([str(oracle.store("crash", name))]), 2, None, unread).behind(first["phys"])
    losses = fold.losses()
    assert losses.messages == losses.intact == sum(map(records, lost))
    assert losses.by_topic == by_topic(lost)
    assert losses.bytes == sum(put["size"] for put in lost)
    assert losses.end == lost[-1]["phys"] + lost[-1]["size"]
    assert (losses.first_timestamp, losses.last_timestamp) == (lost[0]["store_timestamp"], lost[-1]["store_timestamp"])
    assert not unread


def by_topic(puts: list[dict[str, Any]]) -> Counter[str]:
    """Return the number of records of each topic."""
    counts: Counter[str] = Counter()
    for put in puts:
        counts[put["topic"]] += records(put)
    return counts


def test_nothing_is_lost_behind_the_end_of_an_undamaged_log() -> None:
    name = UNDAMAGED[0]
    end = max(put["phys"] + put["size"] for put in oracle.puts(name) if put["status"] == "PUT_OK")
    fold = LossCounter(open_store([str(oracle.store("crash", name))]), 1, None, []).behind(end)
    assert fold.losses().messages == 0
    assert fold.next_offsets == {}


def test_the_refused_record_counts_and_is_not_intact() -> None:
    store = open_store([str(oracle.store("crash", "flip_body_third-5.3.3-h"))])
    end = oracle.truth("crash", "flip_body_third-5.3.3-h")["after_load"]["max_phy"]
    losses = LossCounter(store, 1, None, []).behind(end).losses()
    assert (losses.messages, losses.intact) == (145, 144)


def test_the_next_offset_of_a_queue_is_behind_its_highest() -> None:
    store = open_store([str(oracle.store("crash", "flip_body_third-5.3.3-h"))])
    fold = LossCounter(store, 1, None, []).behind(97187)
    assert fold.next_offsets[b"TopicA", 0] == 51


def test_counting_behind_several_ends_gives_what_counting_behind_each_gives() -> None:
    name = UNDAMAGED[-1]
    store = open_store([str(oracle.store("crash", name))])
    ends = [put["phys"] for put in oracle.puts(name) if put["status"] == "PUT_OK"][::40]
    shared = LossCounter(store, 1, None, [])
    for end in [*ends[1::2], *ends[::2]]:
        alone = LossCounter(store, 1, None, []).behind(end)
        assert shared.behind(end).losses() == alone.losses()
        assert shared.behind(end).next_offsets == alone.next_offsets
