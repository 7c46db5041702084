"""The table `transactions` against what real brokers and their clients said, and on logs built for the rest."""

from typing import Any

import pytest

from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.transactions import TRANSACTIONS
from tests.support import oracle
from tests.support.side_tables import BROKERS, broker, crash, rows

WITH_TRANSACTIONS = tuple(name for name in BROKERS if not name.startswith(("ext-", "lmq-", "compaction-")))
WITHOUT = tuple(name for name in BROKERS if name not in WITH_TRANSACTIONS)
BASES = tuple(name for name in oracle.cases("crash") if name.startswith("base-"))


def transactions(store: Store) -> list[dict[str, Any]]:
    with unpacked(store, only=TRANSACTIONS.databases) as whole:
        return rows(TRANSACTIONS, whole, Request(jobs=2))


# --- real brokers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_TRANSACTIONS)
def test_each_transaction_is_as_its_producer_saw_it(name: str) -> None:
    truth = oracle.truth("broker", name)
    found = {row["msg_id"]: row for row in transactions(broker(name))}
    told = {row["msg_id"]: row for row in truth["transactions"]}
    assert told
    assert found.keys() == told.keys()
    for msg_id, row in told.items():
        mine = found[msg_id]
        assert mine["state"] == row["expected_state"]
        assert mine["copies"] == row["half_copies_served"]
        assert mine["first_queue_offset"] == row["half_queue_offset"]
        assert (mine["real_topic"], mine["real_queue_id"]) == (row["topic"], row["real_queue_id"])
        # With a delay the commit goes to the topic of the delay; its copy there is delivered again in the real topic.
        assert mine["commits"] == (row["copies_in_schedule_topic"] or row["copies_in_real_topic"])
        assert mine["check_times"] >= row["checks_seen_by_producer"]
        assert mine["kept_in"] == "half_topic"


@pytest.mark.parametrize("name", WITH_TRANSACTIONS)
def test_half_commit_and_op_are_records_of_the_brokers_log(name: str) -> None:
    log = {row["physical_offset"]: row for row in oracle.truth("broker", name)["log"]}

    def place(offset: int) -> tuple[str, int, int]:
        return log[offset]["topic"], log[offset]["queue_id"], log[offset]["queue_offset"]

    for row in transactions(broker(name)):
        assert place(row["physical_offset"]) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, row["queue_offset"])
        if (commit := row["commit_physical_offset"]) is not None:
            assert place(commit) == (row["commit_topic"], row["commit_queue_id"], row["commit_queue_offset"])
            assert log[commit]["sys_flag"] & 0xC == 0x8
        if (op := row["op_physical_offset"]) is not None:
            assert log[op]["topic"] == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
        if (given_up := row["given_up_physical_offset"]) is not None:
            assert log[given_up]["topic"] == "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.mark.parametrize("name", WITHOUT)
def test_a_store_without_half_messages_has_no_rows(name: str) -> None:
    assert transactions(broker(name)) == []


def test_a_broker_killed_before_its_op_was_written_asks_again() -> None:
    (row,) = (row for row in transactions(broker("halt-5.3.3")) if row["state"] == "committed" and row["why"])
    assert row["why"] == "committed, op missing: will be checked again, and may be committed twice"
    assert row["op_physical_offset"] is None


@pytest.mark.parametrize("name", BASES)
def test_records_of_the_old_kind_are_joined_by_the_prepared_offset(name: str) -> None:
    put = {
        kind: [row for row in oracle.puts(name) if row["kind"] == kind] for kind in ("prepared", "commit", "rollback")
    }
    ends = {row["prepared_transaction_offset"]: "rolled_back" for row in put["rollback"]}
    ends |= {row["prepared_transaction_offset"]: "committed" for row in put["commit"]}
    expected = {
        row["phys"]: (row["topic"], row["queue_id"], ends.get(row["phys"], "pending")) for row in put["prepared"]
    }
    found = transactions(crash(name))
    assert expected
    assert {r["physical_offset"]: (r["real_topic"], r["real_queue_id"], r["state"]) for r in found} == expected
    ids = {row["phys"]: row.get("uniq_key") for row in put["prepared"]}
    assert {row["physical_offset"]: row["msg_id"] for row in found} == ids
    assert {row["kept_in"] for row in found} == {"real_topic"}
