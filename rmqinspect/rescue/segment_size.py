"""How large the segments of the salvaged log are: no file says it, and a broker refuses a log of another size.

    given    --config                                     counts alone
    store    two segments and more of a store             their bases are one size apart; of sources that differ in
                                                          it the first one counts, the others are left out
    loose    |...file...|...next file...|                 a file that ends where the next one begins, by their records
             |record|record|blank.......|                 the blank record that ends a segment says how much is left
             |file|            |file|                     the distances of their bases, if the files are no longer
             |file|                                       its length, if its base is a multiple of it
             else                                         the broker's default

A broker keeps the size in a Java int. Source: MessageStoreConfig#mappedFileSizeCommitLog, MappedFileQueue#load.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import gcd

from msgspec.structs import replace

from rmqinspect.commitlog.gaps import BRIDGED, Gap, plan_splits
from rmqinspect.commitlog.scan import scan_split
from rmqinspect.errors import NotAStore, Refused, Unreadable
from rmqinspect.rescue.sources import read_log
from rmqinspect.schemas import message
from rmqinspect.store.broker_conf import setting_size
from rmqinspect.store.model import CarvedSegment, Segment, Store
from rmqinspect.text import group_digits

LARGEST = 2**31 - 1  # bytes: Integer.MAX_VALUE
DEFAULT = 1 << 30

_SIZE: int = message.Blank.total_size.sizeof()
_MOST_SCANNED = 4  # loose files in which a blank record is looked for
_SPLIT = 64 << 20

Named = Sequence[tuple[str, Store]]


def choose_segment_size(given: Named) -> tuple[int, list[tuple[str, Store]], list[str]]:
    """Return the size in bytes, the sources that have it, and what is to be said; sources in the order they count.

    :raises NotAStore: no segment holds a byte.
    :raises Refused: --config gives a size that no broker takes.
    """
    if not any(segment.size for _, store in given for segment in store.segments):
        raise NotAStore("the size of a segment is not known: no segment holds a byte")
    for _, store in given:
        configured = setting_size(store.settings, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
        if configured is not None:
            if configured > LARGEST:
                raise Refused(f"segments of {configured} bytes: a broker takes no more than {LARGEST}")
            return configured, list(given), []
    sizes = {name: size for name, store in given if (size := _size_of(store)) is not None}
    if not sizes:
        size, why = _from_loose([segment for _, store in given for segment in store.segments if segment.size])
        return size, list(given), [f"segments of {group_digits(size)} bytes: {why}; --config gives another size"]
    size = next(iter(sizes.values()))
    used = [(name, store) for name, store in given if sizes.get(name, size) == size or _size_of(store) in (None, size)]
    notes = [
        f"not used: {store.name}: its segments have {group_digits(_size_of(store) or 0)} bytes, those of the log "
        f"{group_digits(size)}; --config says which size counts"
        for name, store in given
        if (name, store) not in used
    ]
    return size, used, notes


def _size_of(store: Store) -> int | None:
    """Return the size of segments that a source shows by itself."""
    size = store.segment_size
    is_carved = any(isinstance(segment, CarvedSegment) for segment in store.segments)
    shows = is_carved or (store.given == "store" and len({one.base for one in store.segments}) > 1)
    return size if shows and size is not None and 0 < size <= LARGEST else None


def _from_loose(segments: Sequence[Segment]) -> tuple[int, str]:
    """Return the size, and what shows it."""
    bases = sorted({segment.base for segment in segments})
    steps = [after - before for before, after in pairwise(bases)]
    for segment in sorted(segments, key=lambda one: (-one.size, one.base)):
        if segment.size <= LARGEST and segment.end in bases and not any(step % segment.size for step in steps):
            return segment.size, f"{segment.name} ends where the next file begins"
    fits = [(size, segment) for size, segment in _ends(segments) if not any(step % size for step in steps)]
    if fits:
        size, segment = fits[0]
        return size, f"the blank record in {segment.name} says where it ends"
    longest = max((segment.size for segment in segments if segment.size <= LARGEST), default=0)
    apart = gcd(*steps, *bases[:1]) if steps else bases[0]
    if longest and apart % longest == 0:
        return longest, "the length of the longest file; no blank record and no second file tells it"
    if longest <= DEFAULT and apart % DEFAULT == 0:
        return DEFAULT, "the broker's default; neither a blank record nor the length of a file tells it"
    if steps and longest <= gcd(*steps) <= LARGEST:
        return gcd(*steps), "the distance of the files"
    shown = "the length of the longest file" if longest else "the broker's default"
    return longest or DEFAULT, f"{shown}, though its place in the log is no multiple of it"


def _ends(segments: Sequence[Segment]) -> Iterator[tuple[int, Segment]]:
    """Yield where the blank record of a file says that its segment ends, and the file."""
    plain = [one for one in segments if one.kind == "segment" and not isinstance(one, CarvedSegment)]
    for segment in islice(sorted(plain, key=lambda one: (-one.size, one.base)), _MOST_SCANNED):
        reached = min(segment.size, LARGEST)
        cut = segment if reached == segment.size else replace(segment, size=reached, length=reached)
        end = _blank_end(cut)
        if end is not None and 0 < end <= LARGEST:
            yield end, segment


def _blank_end(segment: Segment) -> int | None:
    """Return the position at which the blank record of a segment says that it ends; None without one."""
    store = Store(
        name=segment.name,
        paths=(segment.path,),
        given="segment",
        files=(segment,),
        segments=(segment,),
        segment_size=None,
        queue_files=(),
        index_files=(),
        checkpoint=None,
        config_files={},
        oddities=(),
        neighbours=False,
    )
    try:
        for split in plan_splits([segment], _SPLIT):
            for event in scan_split(split):
                if isinstance(event, Gap) and event.kind == "filler" and event.reason != BRIDGED:
                    said = int.from_bytes(read_log(store, event.start, _SIZE), "big", signed=True)
                    return event.start - segment.base + said if said >= message.Blank.sizeof() else None
    except Unreadable:
        pass
    return None
