"""What became of a half message, by the records of its life: what no lab store has."""

from collections.abc import Iterator

import pytest

from rmqinspect.broker.transactions import Surroundings
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.find.life import family, transaction_of
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.store.discover import open_store
from tests.support.lives import step
from tests.support.samples import sample

HALF = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true"}
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


class NoOps(LifeRecords):
    """Records of a store, with no op record behind any half message."""

    all_searched = True

    def behind(self, topic: str, place: int, most: int) -> tuple[Iterator[ParsedFields], bool]:
        return iter(()), self.all_searched


@pytest.fixture
def records() -> NoOps:
    return NoOps(open_store([str(sample("healthy-5.5.0"))]))


@pytest.mark.parametrize(
    ("steps", "state", "decided_by"),
    [
        ([step(0, sys_flag=PREPARED)], "pending", None),
        ([step(0, sys_flag=PREPARED), step(500, sys_flag=COMMIT)], "committed", 500),
        ([step(200, sys_flag=PREPARED), step(500, sys_flag=ROLLBACK, half=200, body=0)], "rolled_back", 500),
        ([step(500, sys_flag=COMMIT, half=200)], "committed", 500),
        ([step(500, "TRANS_CHECK_MAX_TIME_TOPIC", HALF)], "given_up", None),
    ],
    ids=["4.2, undecided", "4.2, committed", "4.2, rolled back", "expired half", "expired half, given up"],
)
def test_records_in_the_life_decide(records: NoOps, steps: list[Step], state: str, decided_by: int | None) -> None:
    copies, others = family(steps[0], steps)
    assert others == []
    found = transaction_of(records, Surroundings(check_offset=None), copies)
    assert found is not None
    assert (found.state, found.commit or found.op) == (state, decided_by)


def test_where_not_all_op_records_were_searched_that_is_the_doubt(records: NoOps) -> None:
    half = step(500, "RMQ_SYS_TRANS_HALF_TOPIC", HALF)
    found = transaction_of(records, Surroundings(check_offset=0), [half])
    assert found is not None
    assert (found.state, found.why) == ("pending", None)
    records.all_searched = False
    found = transaction_of(records, Surroundings(check_offset=0), [half])
    assert found is not None
    assert found.why is not None
    assert "later ones were not searched" in found.why
    assert transaction_of(records, Surroundings(check_offset=0), [step(0)]) is None
