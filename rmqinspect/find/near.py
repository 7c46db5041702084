"""Keys and ids that are nearly the ones asked for.

A key is near if it differs in case alone, in up to two characters, by one character more or less, or in what
follows: `order-4711` and `ORDER-4711`, `order-4771`, `order-471`, `order-4711-2`. An id of a Java client is near if
the same process made it: its ids ascend, so the nearest before and behind show when the one asked for was made.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.message_id import ClientId, client_zone, decode, instants_around

_KEPT = 5
_MOST_WRONG = 2  # characters
_FAR = 1 << 20  # more than characters are apart
_TOPIC = 40  # characters of a topic that are shown
_LONGEST = 256  # characters of a key that is compared
_TIME_DIGITS = 12  # of an id, for time and counter; what stands before them is the process


class NearKeys:
    """The keys nearest to one."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._found: dict[tuple[str, str], int] = {}  # (key, topic) -> distance

    def take(self, batch: pa.RecordBatch) -> None:
        """Look at the keys of a batch."""
        lists = batch.column("keys")
        keys = pc.list_flatten(lists)
        length = pc.utf8_length(keys)
        near = pc.and_(pc.less_equal(pc.abs(pc.subtract(length, len(self._key))), 1), pc.less(length, _LONGEST))
        longer = pc.starts_with(keys, self._key) if self._key else pc.equal(length, -1)
        rows = np.flatnonzero(pc.or_(near, longer).to_numpy(zero_copy_only=False))
        if not len(rows):
            return
        unique = keys.take(pa.array(rows)).unique()
        close = [(text, far) for text in _nearby(unique, self._key) if (far := distance(text, self._key)) is not None]
        if not close:
            return
        topics = batch.column("topic").take(pc.list_parent_indices(lists))
        for text, far in sorted(close, key=lambda pair: pair[1])[:_KEPT]:
            topic = topics[pc.index(keys, text).as_py()].as_py()
            self._found[text, topic or ""] = far
        self._found = dict(sorted(self._found.items(), key=self._order)[:_KEPT])

    def _order(self, item: tuple[tuple[str, str], int]) -> tuple[int, int, int, str, str]:
        """Return what sorts the nearest first; of equals, those that differ late and little, as K97 and K98."""
        (text, topic), far = item
        at = _first_difference(text, self._key)
        pair = text[at : at + 1], self._key[at : at + 1]
        apart = abs(ord(pair[0]) - ord(pair[1])) if all(pair) and len(text) == len(self._key) else _FAR
        return far, -at, apart, text, topic

    def texts(self, shown: Callable[[str], str]) -> list[str]:
        """Return the keys, as `shown` returns them, with their topics: those of which none is nearer."""
        nearest = min(self._found.values(), default=0)
        names = {topic: topic if len(topic) <= _TOPIC else f"{topic[:_TOPIC]}…" for _, topic in self._found}
        return [f"{shown(key)} ({names[topic]})" for (key, topic), far in self._found.items() if far == nearest]


def _nearby(keys: pa.Array, key: str) -> list[str]:
    """Return those of some keys that may be near: of the same length, few characters differ."""
    wanted = np.frombuffer(key.encode("utf-32-le"), np.uint32)
    folded = np.frombuffer(key.casefold().encode("utf-32-le"), np.uint32)
    texts: list[str] = keys.to_pylist()
    same = [text for text in texts if len(text) == len(key)]
    close = [text for text in texts if len(text) != len(key)]
    if same and len(folded) == len(wanted):
        matrix = np.frombuffer("".join(same).encode("utf-32-le", "surrogatepass"), np.uint32).reshape(len(same), -1)
        differs = matrix != wanted
        apart = np.abs(matrix.astype(np.int64) - wanted).sum(axis=1)
        best = np.lexsort((apart, -differs.argmax(axis=1), differs.sum(axis=1)))[: 4 * _KEPT].tolist()
        close += [same[row] for row in best]
        close += [text for text in same if text.casefold() == key.casefold()]
    return list(dict.fromkeys(close))


def distance(text: str, key: str) -> int | None:
    """Return how many characters of a text are wrong, missing or too many; None for far or equal ones."""
    if text == key:
        return None
    if text.casefold() == key.casefold():
        return 0
    if len(text) == len(key):
        wrong = sum(a != b for a, b in zip(text, key, strict=True))
        return wrong if wrong <= min(_MOST_WRONG, len(key) // 2) else None
    short, long = sorted((text, key), key=len)
    if len(long) == len(short) + 1 and len(short) >= _MOST_WRONG:
        at = _first_difference(short, long)
        if short[at:] == long[at + 1 :]:
            return 1
    return _MOST_WRONG + 1 if key and text.startswith(key) else None


def _first_difference(text: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))


class Neighbour(NamedTuple):
    """A record whose id the same producer made."""

    msg_id: str
    physical_offset: int
    born: int  # microseconds


class NearIds:
    """The ids of one producer process next to one, and when that was made."""

    def __init__(self, text: str) -> None:
        readings = [one for one in decode(text) if isinstance(one, ClientId) and not one.doubts]
        self.reading = readings[0] if readings else None
        self._id = text.strip().upper()
        self.before: Neighbour | None = None
        self.behind: Neighbour | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        """Look at the ids of a batch."""
        if self.reading is None:
            return
        ids = pc.utf8_upper(batch.column("msg_id"))
        same = pc.and_(pc.starts_with(ids, self._id[:-_TIME_DIGITS]), pc.equal(pc.utf8_length(ids), len(self._id)))
        rows = batch.select(["physical_offset", "born_timestamp"]).append_column("id", ids)
        rows = rows.filter(pc.and_(pc.fill_null(same, False), batch.column("born_timestamp").is_valid()))
        if not rows.num_rows:
            return
        for name, text, is_nearer in (
            ("before", pc.max(pc.filter(rows.column("id"), pc.less(rows.column("id"), self._id))), str.__gt__),
            ("behind", pc.min(pc.filter(rows.column("id"), pc.greater(rows.column("id"), self._id))), str.__lt__),
        ):
            known: Neighbour | None = getattr(self, name)
            found = text.as_py()
            if found is not None and (known is None or is_nearer(found, known.msg_id)):
                row = rows.slice(pc.index(rows.column("id"), found).as_py(), 1)
                born = row.column("born_timestamp").cast(pa.timestamp("us")).cast(pa.int64())[0].as_py()
                setattr(self, name, Neighbour(found, row.column("physical_offset")[0].as_py(), born))

    def made(self) -> int | None:
        """Return when the id was made, in microseconds, by the clock of its process; None without a neighbour."""
        neighbour = self.before or self.behind
        if self.reading is None or neighbour is None:
            return None
        born = datetime.fromtimestamp(neighbour.born / 1_000_000, UTC)
        reading = next(one for one in decode(neighbour.msg_id) if isinstance(one, ClientId))
        zone = client_zone(reading, born)
        if zone is None:
            return None
        instants = instants_around(self.reading, born, zone)
        return round(instants[0].timestamp() * 1_000_000) if instants else None
