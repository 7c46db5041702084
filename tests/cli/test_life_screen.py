"""The words for a message's life, on the screen and in the document."""

import json
from collections.abc import Iterator
from datetime import timedelta, timezone

import pytest
from msgspec.structs import replace

from rmqinspect.cli.life_screen import life_document, life_lines
from rmqinspect.find.consumers import Passed
from rmqinspect.find.life import GroupLife, Life, LifeTracer, Passing
from rmqinspect.find.life_records import Searched
from rmqinspect.store.discover import open_store
from rmqinspect.tables.redact import Redaction
from tests.support import oracle

STORE = "halt-5.3.3"
DEAD, POPPED, ROLLED_BACK, CHECKED, PENDING = 146186, 151252, 136304, 135816, 212347
PASSED = ": offset beyond it; filtered or processed, no file says which"
MIDNIGHT = timezone(timedelta(hours=15, minutes=5))  # in it midnight lies between a message and its retry


@pytest.fixture(scope="module")
def tracer() -> Iterator[LifeTracer]:
    with LifeTracer(open_store([str(oracle.store("broker", STORE))])) as tracer:
        yield tracer


def screen(life: Life) -> list[str]:
    """Return the words of a life, each label with its text in one line."""
    lines: list[str] = []
    for line in life_lines(life):
        if line.startswith(" " * 12):
            lines[-1] += line[11:]
        else:
            lines.append(" ".join(line.split(maxsplit=0)[0].split()))
    return lines


def test_a_dead_letter_has_a_chain_of_its_group(tracer: LifeTracer) -> None:
    assert screen(tracer.trace(DEAD)) == [
        "life sent to TariffWork queue 0 offset 2, 2026-11-21T08:54:57Z",
        "queue unit TariffWork queue 0 offset 2: present",
        "index msg id, key work-2: index/20261121085457110",
        "g_dlq_1 passed → delayed 1 s (level 1) → %RETRY%g_dlq_1 offset 0, 2026-11-21T08:55:02Z, passed → "
        "%DLQ%g_dlq_1 offset 0, 2026-11-21T08:55:21Z",
        f"passed g_retry_1{PASSED}",
    ]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            CHECKED,
            "half message RMQ_SYS_TRANS_HALF_TOPIC offset 0, 2026-11-21T08:54:57Z → checked 1 time → "
            "committed to LedgerTx queue 1 offset 2, 2026-11-21T08:55:04Z",
        ),
        (
            ROLLED_BACK,
            "half message RMQ_SYS_TRANS_HALF_TOPIC offset 1, 2026-11-21T08:54:57Z → "
            "rolled back by the op record at 178 601 (0x2b9a9)",
        ),
        (
            PENDING,
            "half message RMQ_SYS_TRANS_HALF_TOPIC offset 25, 2026-11-21T08:55:25Z → pending for LedgerTx queue 1",
        ),
    ],
)
def test_a_transaction_ends_as_the_records_say(tracer: LifeTracer, place: int, words: str) -> None:
    assert screen(tracer.trace(place))[0] == f"life {words}"


def test_timers_are_delivered_cancelled_or_wait(tracer: LifeTracer) -> None:
    waiting = [record.physical_offset for record in tracer.behind("rmq_sys_wheel_timer", 0, 13)[0]]
    endings = {screen(tracer.trace(place or 0))[0].rpartition(" → ")[2].partition(" at ")[0] for place in waiting}
    assert {ending.rpartition(" queue ")[0] or ending for ending in endings} >= {
        "cancelled by the record",
        "not delivered to RefundTimer",
    }
    assert any(ending.startswith("delivered to RefundTimer queue 0 offset 0, 2026-11-21T08:55:") for ending in endings)


def test_a_pop_says_whether_it_was_acknowledged(tracer: LifeTracer) -> None:
    lines = screen(tracer.trace(POPPED))
    assert (
        "g_pop_1 popped 2026-11-21T08:55:01Z, not acknowledged until 2026-11-21T08:55:10Z → "
        "%RETRY%g_pop_1_StockPop offset 3, 2026-11-21T08:55:14Z, popped 2026-11-21T08:55:25Z, "
        "not acknowledged until 2026-11-21T09:00:15Z" in lines
    )
    assert "g_popfly_1 popped 2026-11-21T08:55:01Z, acknowledged" in lines


def test_times_have_a_date_in_the_zone_that_is_asked_for(tracer: LifeTracer) -> None:
    text = " ".join(life_lines(tracer.trace(DEAD), MIDNIGHT))
    assert "TariffWork queue 0 offset 2, 2026-11-21T23:59:57+15:05" in text
    assert "%RETRY%g_dlq_1 offset 0, 2026-11-22T00:00:02+15:05" in text
    assert life_document(tracer.trace(DEAD), MIDNIGHT)["steps"][0]["store_timestamp"].endswith("23:59:57.664+15:05")


def group(number: int, offset: int, *, messages: int = 1, lost: bool = False) -> GroupLife:
    """Return a group with an offset in a queue, whose message is the fifth."""
    passed = Passed(f"g{number:02}", offset, offset > 5, lost)
    return GroupLife(passed.group, (Passing("orders", 0, 5, messages, passed),), (), ())


def test_groups_that_did_nothing_else_share_a_line(tracer: LifeTracer) -> None:
    groups = [group(number, 9 if number < 30 else 2) for number in range(40)]
    life = replace(tracer.trace(DEAD), groups=(*groups, group(40, 7, messages=4), group(41, 1, lost=True)))
    passed, not_passed, some, lost = screen(life)[3:]
    assert passed.startswith("passed g00, g01, ")
    assert passed.endswith(f", g19 and 10 groups more{PASSED}")
    assert not_passed == f"not passed {', '.join(f'g{number}' for number in range(30, 40))}"
    assert some == "passed 2 of 4 messages g40"
    assert lost == "lost g41"
    everything = list(life_lines(life, everything=True))
    assert len(everything) == 3 + 42
    assert everything[-10] == "g32         not passed: its offset is 2"


def test_what_was_not_searched_and_what_is_not_known_is_said(tracer: LifeTracer) -> None:
    life = tracer.trace(DEAD)
    life = replace(
        life, searched=Searched(1, (), ((0, 5_000_000),)), remarks=("\x1b[2J",), stored_twice=(1, 2), others=(3,)
    )
    assert screen(life)[-3:] == [
        "stored 3 times: the producer sent it again",
        "same id 1 other message, as in a batch of one id",
        r"not known copies in 5.0 MB of the log that the index does not cover; --scan reads them \x1b[2J",
    ]


@pytest.mark.parametrize("key", [None, b"secret"])
def test_redaction_hides_ids_and_keys(tracer: LifeTracer, key: bytes | None) -> None:
    life = tracer.trace(DEAD)
    assert life.record.msg_id is not None
    redaction = Redaction({"hosts": key, "keys": key, "tags": key})
    document = json.dumps(life_document(life, redaction=redaction))
    text = "\n".join(life_lines(life, redaction=redaction))
    for secret in (life.record.msg_id, "work-2", life.record.offset_msg_id):
        assert secret not in document
        assert secret not in text
    assert ("sha256:" in document) == (key is not None)


def test_the_document_has_the_steps_of_the_chain(tracer: LifeTracer) -> None:
    document = life_document(tracer.trace(DEAD))
    assert [(step["kind"], step["queue_offset"], step["group"]) for step in document["steps"]] == [
        ("sent", 2, None),
        ("scheduled", 2, "g_dlq_1"),
        ("retry", 0, "g_dlq_1"),
        ("dlq", 0, "g_dlq_1"),
    ]
    assert document["steps"][1]["due"] == "2026-11-21T08:55:02.110Z"
    (dead,) = (one for one in document["groups"] if one["group"] == "g_dlq_1")
    assert dead["steps"] == [step["physical_offset"] for step in document["steps"][1:]]
    assert [one["passed"] for one in dead["queues"]] == [True, True]
