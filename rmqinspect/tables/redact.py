"""--redact: sensitive values masked with null, or replaced by keyed hashes. The columns stay.

A message id contains its producer's address, so `hosts` masks ids too, and the properties that hold them.
"""

import hmac
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

# Columns of findings that may quote any value, for example the byte of a flipped bit.
_QUOTING = frozenset({"expected", "found", "message"})

# Columns masked by each word, in every table that has them.
_COLUMNS: dict[str, frozenset[str]] = {
    "body": frozenset({"body"}),
    # Hashes of 32 bits are included: a key or tag is found from them by brute force.
    "keys": frozenset({"keys", "key", "key_hash"}),
    "tags": frozenset({"tags", "tags_code", "ext_tags_code"}),
    "properties": frozenset({"properties"}),
    "hosts": frozenset(
        {
            *(
                "born_host",
                "born_port",
                "store_host",
                "store_port",
                "msg_id",
                "offset_msg_id",
                "client_host",
                "deletes",
            ),
            *("broker_address", "request_id", "transaction_id"),
        }
    ),
}

# The same of tables with columns `dimension` and `value`: dimensions whose values are masked.
_DIMENSIONS = {"tags": "tag", "hosts": "host"}

# Properties that hold the same values. Source: MessageConst.
_PROPERTIES: dict[str, frozenset[str]] = {
    # The checksum of the whole record: from it and the rest of the record a short body is found by brute force.
    "body": frozenset({"__CRC32#"}),
    "keys": frozenset({"KEYS", "__SHARDINGKEY"}),
    "tags": frozenset({"TAGS"}),
    "properties": frozenset(),
    "hosts": frozenset(
        {
            "UNIQ_KEY",
            "__transactionId__",
            "ORIGIN_MESSAGE_ID",
            "DLQ_ORIGIN_MESSAGE_ID",
            "EXTEND_UNIQ_INFO",
            "TIMER_DEL_UNIQKEY",
            "REPLY_TO_CLIENT",
            "__BORNHOST",
        }
    ),
}

REDACTABLE = tuple(_COLUMNS)


class Redaction(Struct, frozen=True):
    """The words to mask, each with the key of its hash; None masks with null."""

    keys: dict[str, bytes | None]

    @property
    def words(self) -> tuple[str, ...]:
        """The masked words, sorted, for metadata."""
        return tuple(sorted(self.keys))

    def hides(self, word: str) -> bool:
        """Return whether values of a word are masked."""
        return word in self.keys

    def value(self, word: str, raw: bytes) -> str | None:
        """Return the keyed hash that stands for a masked value, None without a key."""
        key = self.keys[word]
        return None if key is None else hash_value(raw, key)

    def of_property(self, name: str) -> str | None:
        """Return the word that masks a property, None if it is shown."""
        words = (word for word in self.keys if word == "properties" or name in _PROPERTIES[word])
        return next(words, None)

    def one_key(self, key: str) -> str | None:
        """Return one of the keys of a message as it may be shown; None: not at all."""
        return self.value("keys", key.encode("utf-8", "surrogateescape")) if self.hides("keys") else key

    def mask(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with masked values; the schema stays."""
        for word, key in self.keys.items():
            for position, field in enumerate(batch.schema):
                if field.name in _COLUMNS[word] | _QUOTING:
                    masked = _mask_column(batch.column(position), key)
                elif field.name == "value" and word in _DIMENSIONS and "dimension" in batch.schema.names:
                    which = pc.equal(batch.column("dimension"), _DIMENSIONS[word])
                    masked = pc.if_else(which, _mask_column(batch.column(position), key), batch.column(position))
                elif field.name == "properties" and _PROPERTIES[word]:
                    masked = _mask_properties(batch.column(position), _PROPERTIES[word], key)
                else:
                    continue
                batch = batch.set_column(position, field, masked)
        return batch


def parse_redaction(text: str) -> Redaction:
    """Parse `body,keys=hash:KEYFILE,hosts`; each word may have its own key file.

    The key is the file's content without a trailing line end.

    :raises ValueError: an unknown word, or a key file that is missing or empty.
    """
    keys: dict[str, bytes | None] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        word, how_given, how = item.partition("=")
        if word not in _COLUMNS:
            raise ValueError(f"{word!r} cannot be redacted; these can: {', '.join(REDACTABLE)}")
        if how_given and not how.startswith("hash:"):
            raise ValueError(f"{item!r}: expected hash:KEYFILE after =")
        keys[word] = _read_key(how.removeprefix("hash:")) if how_given else None
    if not keys:
        raise ValueError(f"nothing to redact; these can be: {', '.join(REDACTABLE)}")
    return Redaction(keys)


def _read_key(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            key = file.read().rstrip(b"\r\n")
    except OSError as error:
        raise ValueError(f"key file {path}: {error.strerror}") from error
    if not key:
        raise ValueError(f"key file {path}: is empty")
    return key


def hash_value(value: bytes, key: bytes) -> str:
    """Return the keyed hash of one value, the same wherever the value stands: `sha256:` and 64 hex digits."""
    return f"sha256:{hmac.digest(key, value, 'sha256').hex()}"


def _mask_column(array: pa.Array, key: bytes | None) -> pa.Array:
    if key is None:
        return pa.nulls(len(array), array.type)
    return pa.array([_hashed(value, key) for value in array.to_pylist()], array.type)


def _hashed(value: Any, key: bytes) -> Any:
    """Return a value with every text in it hashed; the names of a map stay."""
    match value:
        case str():
            return hash_value(value.encode(), key)
        case bytes():
            return hash_value(value, key).encode()
        case list():
            return [_hashed(one, key) for one in value]
        case (name, held):
            return name, _hashed(held, key)
        case _:
            return None  # a number: a hash does not fit


def _mask_properties(array: pa.Array, names: frozenset[str], key: bytes | None) -> pa.Array:
    """Mask the values of some properties; their names stay."""
    if not pc.any(pc.is_in(array.keys, pa.array(sorted(names)))).as_py():
        return array

    def mask(name: str, value: str | None) -> str | None:
        if name not in names:
            return value
        return None if key is None or value is None else hash_value(value.encode(), key)

    rows = array.to_pylist()
    masked = [None if row is None else [(name, mask(name, value)) for name, value in row] for row in rows]
    return pa.array(masked, array.type)
