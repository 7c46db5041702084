"""The lives of the messages that `find` has found: which hits are traced, once for each message."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.find.life import Life, LifeTracer
from rmqinspect.text import group_digits

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.store.model import Store

MOST_LIVES = 5  # that are traced unless all are asked for
_MOST_HITS = 50  # of which some are traced: more are an overview


class Traced(NamedTuple):
    """The life of a message in one store."""

    store: "Store"
    life: Life


class Lives:
    """Takes hits, and traces their lives. Copies of one message have one life."""

    def __init__(self, life: bool | None, *, scan: bool, jobs: int) -> None:
        """Trace all hits, none, or a few of few (None); `scan`: by reading the whole log, in so many threads."""
        self._all = life is True
        self._wanted = life is not False
        self._scan, self._jobs = scan, jobs
        self._hits: list[tuple[Store, int]] = []
        self._left = 0
        self._problems: list[str] = []

    def take(self, store: "Store", rows: "pa.RecordBatch") -> None:
        """Take some hits."""
        if self._wanted and (self._all or len(self._hits) <= _MOST_HITS):
            self._hits += ((store, place) for place in rows.column("physical_offset").to_pylist())

    def traced(self) -> Iterator[Traced]:
        """Yield the lives, in the order of the hits."""
        if not self._all and len(self._hits) > _MOST_HITS:
            return
        shown, met = 0, set[tuple[str, int]]()
        tracers: dict[str, LifeTracer] = {}
        with ExitStack() as stack:
            for store, place in self._hits:
                if (store.name, place) in met:
                    continue
                if shown == MOST_LIVES and not self._all:
                    self._left += 1
                    continue
                if store.name not in tracers:
                    tracers[store.name] = stack.enter_context(LifeTracer(store))
                life = self._trace(tracers[store.name], place)
                if life is not None:
                    shown += 1
                    met |= {(store.name, step.physical_offset) for step in life.steps}
                    yield Traced(store, life)

    def _trace(self, tracer: LifeTracer, place: int) -> Life | None:
        try:
            return tracer.trace(place, everything=self._scan, jobs=self._jobs)
        except (NothingFound, Unreadable) as error:  # the files may change while they are read
            self._problems.append(str(error))
            return None

    def remarks(self) -> Iterator[str]:
        """Yield what was not traced, after `traced`."""
        yield from self._problems
        if self._wanted and not self._all and len(self._hits) > _MOST_HITS:
            yield "--life shows what became of each message"
        if self._left:
            yield f"the lives of {group_digits(MOST_LIVES)} messages are shown; --life shows those of all hits"
