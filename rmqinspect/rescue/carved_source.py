"""What images hold, as a source of salvage: one log that was put together from them, in segments that are no files.

    images    carved and put together (carve.py, claims.py, assemble.py)
    log       one broker's, as it was last; with several, it has to be said which one
    source    segments of its size, whose bytes stand in fragments of the images (`CarvedSegment`); the rest are holes

Every record is read in its own place, and judged again as those of any source are. The blank record behind the last
record of a segment comes along where it follows in the image: it also tells how large a segment was.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd

from msgspec.structs import replace

from rmqinspect.codec.record_proof import blank_size
from rmqinspect.errors import NotAStore, Refused, Unreadable
from rmqinspect.rescue.assemble import Assembly, CarvedLog, Piece, without_hosts
from rmqinspect.rescue.carved_rows import Images, open_images
from rmqinspect.schemas import message
from rmqinspect.schemas.dledger import ENTRY_MAGICS, EntryHead
from rmqinspect.store.model import CarvedSegment, Fragment, Segment, Store
from rmqinspect.tables.request import Request
from rmqinspect.text import count, describe_offset, group_digits

_SEGMENT_SIZE = 1 << 30  # MessageStoreConfig: mappedFileSizeCommitLog
_LEAST_SIZE = 1 << 12
_BLANK: int = message.Blank.sizeof()
_ENTRY: int = EntryHead.sizeof()
_MOST_TOLD = 20  # ambiguities


def carve_sources(
    paths: Sequence[str],
    size: int | None = None,
    prefer: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    name_hosts: bool = True,
    note: Callable[[str], None],
    on_unreadable: Callable[[str], None],
    progress: Callable[[int], None] | None = None,
    leave_out: Callable[[str, Store], None] = lambda name, store: None,
) -> list[tuple[str, Store]]:
    """Return the log in images as (name, store): one, and what the clock does not tell from it as a second one.

    `size`: bytes of a segment, where it is known. `prefer`: the log's name, where the images hold several.
    `settings`: those of a broker.conf. `name_hosts`: whether logs are called by the hosts that stored them, or `log-1`.
    `leave_out` is called with the last log of each other broker.

    :raises NotAStore: no record is in them.
    :raises Refused: they hold logs of several brokers, and `prefer` names none of them; it is a DLedger log; or the
        size is not known.
    :raises Unreadable: an image cannot be opened.
    """
    store = replace(open_images(paths), settings=settings or {}, has_conf=settings is not None)
    with Images([file for file in store.files if isinstance(file, Segment)]) as images:
        for _ in images.found(Request(progress=progress, on_unreadable=on_unreadable)):
            pass
        assembly = images.assembly() if name_hosts else without_hosts(images.assembly())
        chosen = _choose(assembly, prefer, store)
        for log in chosen:
            _refuse_entries(log, images)
        for line in _told(assembly, chosen):
            note(line)
        used = {piece.image for log in assembly.logs for piece in log.pieces}
        for number, file in enumerate(images.files):
            if number not in used:
                note(f"not used: {file.name}: no whole record in it that the other images lack")
        found = [(log.name, _as_store(log, images, store, size, note)) for log in chosen]
        for log in assembly.last_lives():
            if log not in chosen:
                leave_out(log.name, _as_store(log, images, store, found[0][1].segment_size, note))
        return found


def readable_images(paths: Sequence[str], note: Callable[[str], None], *, alone: bool) -> list[str]:
    """Return the images that can be opened; the others are noted. `alone`: there is no other source.

    :raises NotAStore: one does not exist.
    :raises Unreadable: none can be opened, and there is no other source.
    """
    useless: list[Unreadable] = []
    kept = []
    for path in paths:
        try:
            open_images([path])
            kept.append(path)
        except Unreadable as error:
            useless.append(error)
    if useless and alone and not kept:
        raise useless[0]
    for why in useless:
        note(f"not used: {why}")
    return kept


def _choose(assembly: Assembly, prefer: str | None, store: Store) -> list[CarvedLog]:
    """Return the log that counts, and its rest where the clock decides nothing."""
    last = assembly.last_lives()
    if not last:
        raise NotAStore(f"{store.name}: no whole record is in it")
    log = next((one for one in last if one.name == (prefer or "").partition("#")[0]), None)
    if log is None and len(last) > 1:
        names = ", ".join(f"{one.name} ({count(one.size, 'byte')})" for one in last)
        raise Refused(f"{store.name}: logs of several brokers: {names}; --prefer NAME says which one is meant")
    log = log or last[0]
    if not any(one.log == log.name and one.kind == "undecided" for one in assembly.ambiguities):
        return [log]
    return [log, *(one for one in assembly.logs if one.life == 2 and one.name == f"{log.name}#2")]


def _refuse_entries(log: CarvedLog, images: Images) -> None:
    """Refuse a DLedger log, of which records alone make no log: index and term stand in the heads of entries.

    :raises Refused: in front of a record is the head of an entry that says the same place.
    """
    for piece in log.pieces:
        raw = images.read(piece.image, piece.position - _ENTRY, _ENTRY) if piece.position >= _ENTRY else b""
        if len(raw) < _ENTRY:
            continue
        head = EntryHead.parse(raw)
        if head.magic in ENTRY_MAGICS and head.position + _ENTRY == piece.physical_offset:
            raise Refused(
                f"{images.files[piece.image].name} at {describe_offset(piece.position - _ENTRY)}: {log.name} is a "
                "DLedger log, which is not put together from records: give salvage its segments as files of their own"
            )


def _told(assembly: Assembly, chosen: Sequence[CarvedLog]) -> Iterator[str]:
    """Yield what is left out of the logs that count, and what is ambiguous about them."""
    names = {log.name for log in chosen}
    for log in assembly.logs:
        if log.name not in names:
            what = "an older tail of the log" if log.life > 1 else "another broker's log"
            yield f"left out: {log.name}, {what}, {count(log.size, 'byte')} of records"
    about = [one for one in assembly.ambiguities if one.log in names]
    for one in about[:_MOST_TOLD]:
        yield f"ambiguous: {one.log}, {one.start} to {one.end}: {one.detail}"
    if len(about) > _MOST_TOLD:
        yield f"ambiguous: {group_digits(len(about) - _MOST_TOLD)} more ranges"


def _as_store(log: CarvedLog, images: Images, store: Store, size: int | None, note: Callable[[str], None]) -> Store:
    """Return a log as a store of carved segments; its files, which are watched, are the images.

    :raises Refused: the size of a segment is not known.
    """
    blanks = {piece: blank for piece in log.pieces if (blank := _blank_behind(piece, images))}
    if size is None:
        size = _segment_size([piece.end + blank for piece, blank in blanks.items()], log)
        note(f"{log.name}: segments of {group_digits(size)} bytes, as blank records say; --config gives another size")
    fragments: dict[int, list[Fragment]] = {}
    for piece in log.pieces:
        end = piece.end
        if blanks.get(piece) == size - end % size:
            end += _BLANK
        for start in _starts(piece.physical_offset, end, size):
            behind = min(end, start - start % size + size)
            position = piece.position + start - piece.physical_offset
            one = Fragment(start % size, behind - start, images.files[piece.image], position)
            fragments.setdefault(start - start % size, []).append(one)
    prefix = images.files[0].path
    segments = tuple(
        CarvedSegment(f"{prefix}:{log.name}/{base:020d}", f"{base:020d}", size, "segment", base, fragments=tuple(parts))
        for base, parts in sorted(fragments.items())
    )
    return replace(store, name=log.name, given="segment", segments=segments, segment_size=size)


def _starts(start: int, end: int, size: int) -> Iterator[int]:
    """Yield where the parts of a range begin that lie in one segment each."""
    while start < end:
        yield start
        start += size - start % size


def _blank_behind(piece: Piece, images: Images) -> int | None:
    """Return the size of the blank record that follows a piece in its image; None where none does."""
    raw = images.read(piece.image, piece.position + piece.size, _BLANK)
    size = blank_size(raw, in_dledger=False)
    return size if size is not None and size >= _BLANK else None


def _segment_size(ends: Sequence[int], log: CarvedLog) -> int:
    """Return the size of a segment: what divides all ends of segments that blank records say; else a broker's default.

    :raises Refused: one end says too little.
    """
    size, first = gcd(*ends), log.pieces[0].physical_offset
    if size % _SEGMENT_SIZE == 0:
        return _SEGMENT_SIZE
    if len(ends) == 1:
        # Its segment begins where the log does, or it is a multiple of a size that is not known.
        size = size - first if first < size and size % (size - first) == 0 else 0
    if size < _LEAST_SIZE:
        raise Refused(f"{log.name}: the size of its segments is not known; --config BROKER.CONF gives it")
    return size
