"""The comparison of a forecast with what a real store said."""

from typing import Any

import pytest

from tests.support.broker_answers import NEW, Answer, differences, recorded_answer

# A cut log with segments and index files deleted, a queue that ends elsewhere, and a start that is refused.
CUT = "magic_third-5.5.0-h"
REFUSED = "seg_zero_len_last-4.9.7-c"


@pytest.mark.parametrize("name", [CUT, REFUSED, "log_empty-5.2.0-c", "idx_lost-4.9.7-h"])
def test_a_forecast_that_says_what_the_broker_says_has_no_differences(name: str) -> None:
    answer = recorded_answer(name)
    assert differences(forecast_of(answer), answer) == []


def test_each_field_that_a_broker_answers_is_compared() -> None:
    answer = recorded_answer(CUT)
    assert answer.serves is not None
    for name, wrong in {
        "starts": False,
        "deleted_files": ["commitlog/1"],
        "min_offset": 1,
        "end_offset": 1,
        "segments_after": [1],
        "deleted_segments": [1],
        "index_files_after": ["1"],
        "deleted_index_files": ["1"],
        "new_index_files": 7,
    }.items():
        found = differences(forecast_of(answer) | {name: wrong}, answer)
        assert [line.partition(":")[0] for line in found] == [name]


def test_a_queue_that_is_missing_or_ends_elsewhere_is_a_difference() -> None:
    answer = recorded_answer(CUT)
    document = forecast_of(answer)
    document["queues"][0]["max_offset_after"] += 1
    del document["queues"][1]
    assert [line.partition(":")[0] for line in differences(document, answer)] == [
        f"queue {topic}/{queue_id}" for topic, queue_id in sorted(_bounds(answer))[:2]
    ]


def test_a_start_that_was_not_foreseen_is_the_first_difference() -> None:
    served, refused = recorded_answer(CUT), recorded_answer(REFUSED)
    assert differences(forecast_of(served), refused)[0] == "starts: forecast True, broker False"
    assert refused.failure == "load: returned false"


def _bounds(answer: Answer) -> list[tuple[str, int]]:
    assert answer.serves is not None
    return [key for key, bounds in answer.serves.queues.items() if bounds.maximum]


def forecast_of(answer: Answer) -> dict[str, Any]:
    """Return the document of a forecast that says what the broker said."""
    document: dict[str, Any] = {"starts": answer.starts, "deleted_files": sorted(answer.deleted_files)}
    if answer.serves is None:
        return document
    serves = answer.serves
    return document | {
        "min_offset": serves.min_offset,
        "end_offset": serves.end_offset,
        "segments_after": [base for base, _ in serves.segments],
        "deleted_segments": [
            int(name.rpartition("/")[2]) for name in sorted(answer.deleted_files) if name.startswith("commitlog/")
        ],
        "queues": [
            {
                "topic": topic,
                "queue_id": queue_id,
                "min_offset_after": serves.queues[topic, queue_id].minimum,
                "max_offset_after": serves.queues[topic, queue_id].maximum,
            }
            for topic, queue_id in sorted(_bounds(answer))
        ],
        "index_files_after": [file.name for file in serves.index_files if file.name != NEW],
        "deleted_index_files": [name.rpartition("/")[2] for name in answer.deleted_files if name.startswith("index/")],
        "new_index_files": sum(file.name == NEW for file in serves.index_files),
    }
