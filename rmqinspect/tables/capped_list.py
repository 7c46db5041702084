"""Capped lists: memory stays bounded however many rows damage or a hostile file produces.

With a limit of 2 and keys a, b:

    added     a1  a2  b1  a3  a4  b2
    counted   rows [a1 a2 b1 b2]           suppressed {a: 2}
    merged    rows [a1 a2 b1+b2 a3+a4]     (`merge` given: the limit is of all rows together)

Invariant: rows and overflow together hold the exact total.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)


class CappedList(Generic[Row, Key]):
    """Capped list: overflow is merged per key, totals stay exact."""

    def __init__(
        self,
        limit: int,
        key: Callable[[Row], Key],
        *,
        size: Callable[[Row], int] = lambda row: 1,
        merge: Callable[[Row, Row], Row] | None = None,
    ) -> None:
        """Keep `limit` rows of each key and count the others, each as `size(row)`.

        With `merge`, keep `limit` rows in all, since keys may be many too; the others become one row per key.
        """
        self.limit = limit
        self.rows: list[Row] = []
        self.suppressed: Counter[Key] = Counter()  # not in `rows`
        self._key, self._size, self._merge = key, size, merge
        self._used: Counter[Key | None] = Counter()
        self._merged: dict[Key, int] = {}  # position of the row that takes the overflow of a key

    def add(self, row: Row) -> None:
        """Add a row."""
        key = self._key(row)
        cap = key if self._merge is None else None
        if self._used[cap] < self.limit:
            self._used[cap] += 1
            self.rows.append(row)
        elif self._merge is None:
            self.suppressed[key] += self._size(row)
        elif (at := self._merged.setdefault(key, len(self.rows))) < len(self.rows):
            self.rows[at] = self._merge(self.rows[at], row)
        else:
            self.rows.append(row)

    def extend(self, rows: Iterable[Row]) -> None:
        """Add rows in their order."""
        for row in rows:
            self.add(row)

    def room(self, key: Key) -> int:
        """Return how many more rows of a key are kept."""
        return max(0, self.limit - self._used[key])

    def admit(self, key: Key, which: Sequence[int]) -> Sequence[int]:
        """Return the first of `which` for as many rows of a key as there is room for; count the others.

        For callers whose rows are expensive to make: they make and add only these.
        """
        room = self.room(key)
        if len(which) > room:
            self.suppressed[key] += len(which) - room
        return which[:room]
