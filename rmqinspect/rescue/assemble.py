"""Runs of carved records -> logs: which records stood in one log together, by what they say themselves.

    host      records of different store hosts are of different logs, unless the hosts are linked (claims.Claims)
    offset    in one log each byte belongs to one record
    clock     and a later record has a later store time, but for the second by which a clock is set back now and then

Of one host's runs, the last log is put together backwards in time. Each run counts as far as it lies below all that was
stored later; what is left over stood there before, and makes an earlier life of the log in the same way:

    runs      |===== 09:00 =====|  |== 09:30 ==|      |=== 08:00 ===|        clock: 09:00 .. of the first record
              |== 09:10 ==|
    last      |== 09:10 ==|        |== 09:30 ==|
    earlier   ............|=09:00=|                   |=== 08:00 ===|        told, with the reason

So the tail that a broker leaves behind the end of its log when it starts after a crash is an earlier life, and so is
the log of a store that was made anew on the same host. Source: MappedFileQueue#truncateDirtyFiles.

A single time that is out of order between neighbours that are in order is damage: it decides nothing, and is told.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from ipaddress import ip_address
from statistics import median_low
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.rescue.claims import MOST_ORIGINS, OLDER_MS, Claims, Runs, image_and_position
from rmqinspect.schemas import message
from rmqinspect.schemas.places import place_of

MOST_LIVES = 8  # of one host; what is left over then is told as one rest

_NEIGHBOURS = 3  # on each side, that judge a time


class Piece(NamedTuple):
    """Consecutive records of a log, as they stand in an image. A record that goes on behind its end is none of its."""

    physical_offset: int
    image: int  # its number, in the order given
    position: int  # in the image
    size: int  # bytes
    first_time: int  # store time of the first and the last record, ms
    last_time: int

    @property
    def end(self) -> int:
        """Physical offset behind it."""
        return self.physical_offset + self.size


class Ambiguity(NamedTuple):
    """What the records do not decide. A range of physical offsets, and where the two that differ stand."""

    log: str
    kind: str  # rival, undecided, earlier_life, clock, many_hosts
    start: int
    end: int
    image: int
    position: int
    detail: str


class CarvedLog(Struct):
    """One life of one broker's log: pieces, ascending, that do not overlap."""

    name: str  # address:port of the broker that stored most of it; of an earlier life with its number
    hosts: list[str]  # of all that stored some of it, in turn
    life: int  # 1: the last one
    pieces: list[Piece] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes in records."""
        return sum(piece.size for piece in self.pieces)


class Assembly(Struct):
    """What a set of images holds, put together again."""

    logs: list[CarvedLog]  # by host; the last life of each first
    ambiguities: list[Ambiguity]

    def last_lives(self) -> list[CarvedLog]:
        """Return the last life of each host's log: with one, nothing is to be chosen."""
        return [log for log in self.logs if log.life == 1]


def without_hosts(assembly: Assembly) -> Assembly:
    """Return the same with logs called `log-1`, `log-2`, where their hosts must not be told."""
    brokers = dict.fromkeys(log.name.partition("#")[0] for log in assembly.logs)
    new = {name: f"log-{number}" for number, name in enumerate(brokers, 1)}

    def renamed(name: str) -> str:
        broker, mark, life = name.partition("#")
        return f"{new[broker]}{mark}{life}"

    logs = [replace(log, name=renamed(log.name), hosts=[]) for log in assembly.logs]
    return Assembly(logs, [one._replace(log=renamed(one.log)) for one in assembly.ambiguities])


def assemble(claims: Claims) -> Assembly:
    """Return the logs of all records that count, and what is ambiguous about them."""
    logs: list[CarvedLog] = []
    ambiguities: list[Ambiguity] = []
    for origins, runs in claims.runs():
        hosts = [_name_of(claims.origins[origin]) for origin in origins if origin != MOST_ORIGINS]
        name = hosts[0] if hosts else "other hosts"
        pieces = list(_pieces(runs))
        odd = _out_of_order(pieces)
        ambiguities += (
            _ambiguity(name, "clock", one, "its store time does not fit; those around it do") for one in odd
        )
        for life, (taken, left) in enumerate(_lives(pieces, odd), 1):
            log = CarvedLog(name if life == 1 else f"{name}#{life}", hosts, life, taken)
            logs.append(log)
            if life == 1:
                ambiguities += _left_over(name, taken, left)
        if MOST_ORIGINS in origins:
            detail = f"records of more than {MOST_ORIGINS} hosts: the others are taken for one"
            ambiguities.append(_ambiguity(name, "many_hosts", pieces[0], detail))
    return Assembly(logs, ambiguities)


def _name_of(raw: bytes) -> str:
    """Return a stored host as address:port."""
    layout = message.HostV4 if len(raw) == message.HostV4.sizeof() else message.HostV6
    port_at: int = place_of(layout, "port")
    address = ip_address(raw[:port_at])
    port = int.from_bytes(raw[port_at:], "big", signed=True)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def _pieces(runs: Runs) -> Iterator[Piece]:
    for start, end, place, first, last in zip(*(column.tolist() for column in runs), strict=True):
        yield Piece(start, *image_and_position(place), end - start, first, last)


def _out_of_order(pieces: Sequence[Piece]) -> set[Piece]:
    """Return the pieces whose time does not fit between neighbours that fit each other."""
    ordered = sorted(pieces)
    middles = [median_low((piece.first_time, piece.last_time)) for piece in ordered]
    odd = set()
    for number, piece in enumerate(ordered):
        before = middles[max(0, number - _NEIGHBOURS) : number]
        after = middles[number + 1 : number + 1 + _NEIGHBOURS]
        if len(before) < _NEIGHBOURS or len(after) < _NEIGHBOURS:
            continue  # at an end of the log, or in a log of so few pieces, the clock decides
        low, high = min(before), max(after)
        in_order = max(before) <= min(after) + OLDER_MS
        if in_order and not low - OLDER_MS <= middles[number] <= high + OLDER_MS:
            odd.add(piece)
    return odd


def _lives(pieces: Sequence[Piece], odd: set[Piece]) -> Iterator[tuple[list[Piece], list[Piece]]]:
    """Yield the pieces of each life, the last one first, and what is left over for those before it."""
    left = list(pieces)
    for _ in range(MOST_LIVES - 1):
        if not left:
            return
        taken, left = _last_life(left, odd)
        yield taken, left
    if left:
        yield _without_overlaps(left), []


def _last_life(pieces: Sequence[Piece], odd: set[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces of the log as it was last, ascending; and the others, or the parts that were replaced."""
    taken: list[Piece] = []
    left: list[Piece] = []
    # Those taken, whose first time is not yet later than that of all that follow: (-first time, start).
    waiting: list[tuple[int, int]] = []
    limit = 1 << 62  # what was stored before lies below
    for piece in sorted(pieces, key=lambda piece: (piece in odd, -piece.last_time, -piece.physical_offset)):
        below = 1 << 62
        if piece not in odd:
            while waiting and -waiting[0][0] > piece.last_time + OLDER_MS:
                limit = min(limit, heappop(waiting)[1])
            below = limit
        number = bisect_left(taken, piece)
        if number < len(taken):
            below = min(below, taken[number].physical_offset)
        covered = number > 0 and taken[number - 1].end > piece.physical_offset
        if covered or below <= piece.physical_offset:
            left.append(piece)
            continue
        if below < piece.end:
            left.append(_part(piece, below, piece.end))
            piece = _part(piece, piece.physical_offset, below)
        insort(taken, piece)
        if piece not in odd:
            heappush(waiting, (-piece.first_time, piece.physical_offset))
    return taken, left


def _part(piece: Piece, start: int, end: int) -> Piece:
    return piece._replace(
        physical_offset=start, position=piece.position + start - piece.physical_offset, size=end - start
    )


def _without_overlaps(pieces: Sequence[Piece]) -> list[Piece]:
    taken: list[Piece] = []
    for piece in sorted(pieces):
        if not taken or piece.physical_offset >= taken[-1].end:
            taken.append(piece)
    return taken


def _left_over(log: str, taken: Sequence[Piece], left: Sequence[Piece]) -> Iterator[Ambiguity]:
    """Yield why pieces are not in the last life: other records are there, or what lies in front was stored later."""
    starts = [piece.physical_offset for piece in taken]
    for piece in sorted(left):
        number = bisect_left(starts, piece.end)
        if number and taken[number - 1].end > piece.physical_offset:
            other = taken[number - 1]
            where = max(piece.physical_offset, other.physical_offset)
            position = other.position + where - other.physical_offset
            decided = other.first_time - piece.last_time > OLDER_MS
            kind, when = ("rival", "stored before") if decided else ("undecided", "the clock does not tell from")
            detail = f"{when} the other records at these offsets, in image {other.image + 1} at {position}"
            yield _ambiguity(log, kind, piece, detail)
        else:
            yield _ambiguity(log, "earlier_life", piece, "stored before the records that lie in front of it")


def _ambiguity(log: str, kind: str, piece: Piece, detail: str) -> Ambiguity:
    return Ambiguity(log, kind, piece.physical_offset, piece.end, piece.image, piece.position, detail)
