"""Stores in which real clients traced what they sent and consumed, and what the clients' own decoder made of that.

`tests/data/traces` has the programs that wrote them, and says how.
"""

import atexit
import gzip
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "traces"
NAMES = ("files-4.9.7", "files-5.3.3", "dledger-4.9.7", "rocksdb-5.3.3")

# Names of TraceContext and TraceBean -> columns of `traces`.
COLUMNS = {
    "TraceType": "type",
    "TimeStamp": "client_timestamp",
    "RegionId": "region_id",
    "GroupName": "group",
    "CostTime": "cost_ms",
    "isSuccess": "success",
    "RequestId": "request_id",
    "ContextCode": "result",
    "Topic": "topic",
    "MsgId": "msg_id",
    "OffsetMsgId": "offset_msg_id",
    "Tags": "tags",
    "Keys": "keys",
    "StoreHost": "broker_address",
    "ClientHost": "client_host",
    "RetryTimes": "reconsume_times",
    "BodyLength": "body_size",
    "MsgType": "message_type",
    "TransactionState": "transaction_state",
    "TransactionId": "transaction_id",
    "isFromTransactionCheck": "from_transaction_check",
}
# What the decoder takes from a context of each type. The rest of its objects are defaults, some of them random.
_HEAD = ("TimeStamp", "RegionId", "GroupName", "Topic", "MsgId")
TAKEN: Mapping[str, tuple[str, ...]] = {
    "Pub": (*_HEAD, "Tags", "Keys", "StoreHost", "BodyLength", "CostTime", "MsgType", "OffsetMsgId", "isSuccess"),
    "SubBefore": ("TimeStamp", "RegionId", "GroupName", "RequestId", "MsgId", "RetryTimes", "Keys"),
    "SubAfter": ("RequestId", "MsgId", "Keys", "CostTime", "isSuccess", "ContextCode", "TimeStamp", "GroupName"),
    "EndTransaction": (
        *(*_HEAD, "Tags", "Keys", "StoreHost", "MsgType"),
        *("TransactionId", "TransactionState", "isFromTransactionCheck"),
    ),
    "Recall": (*_HEAD, "isSuccess"),
}
RESULTS = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")  # ConsumeReturnType


def told(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client's decoder took from a context, by column, with the values of the table."""
    row = {COLUMNS[name]: _value(name, context[name]) for name in TAKEN[context["TraceType"]] if name in context}
    if context["TraceType"] == "SubAfter" and context["GroupName"] == "":  # the default: it took neither
        row |= {"client_timestamp": None, "group": None}
    return {"type": context["TraceType"]} | row


def _value(name: str, value: Any) -> Any:
    if value == "null":  # Java's text of a null
        return None
    if name == "Keys" and value is not None:
        return [key for key in value.split(" ") if key]
    return RESULTS[value] if name == "ContextCode" else value


def release_of(name: str) -> tuple[int, ...]:
    """Return the release of a store's name."""
    return tuple(map(int, name.rpartition("-")[2].split(".")))


@cache
def _root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="traced-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with tarfile.open(DATA / "stores.tar.xz") as tar:
        tar.extractall(root, filter="data")
    return root


def store(name: str) -> Path:
    """Return the root folder of a store, shared by all tests."""
    return _root() / name / "store"


@cache
def truth(name: str) -> dict[str, Any]:
    """Return what clients said: `sent`, `consumed`, and the `records` of the trace topics."""
    with gzip.open(DATA / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def codec_lines() -> Iterator[dict[str, Any]]:
    """Yield bodies of traces with what the decoder of their release makes of them."""
    with gzip.open(DATA / "codec.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
