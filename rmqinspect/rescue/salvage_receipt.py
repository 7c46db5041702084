"""The receipt of a salvage: sources, what was kept, repaired, bridged, not taken over and lost, and what was proven.

It holds names of files and topics, offsets, sizes and times: no body, key, tag or host of a message; of a repaired
field the bytes before and after, of a body the one that was changed.

`docs/salvage.md` has a row for each field.
"""

from typing import Annotated, Any

from rmqinspect.document import Part, means
from rmqinspect.rescue.receipt import RUN, Brought, Derived, Head, LeftOut


class SourceRow(Part, frozen=True):
    """A source, as it was judged."""

    name: Annotated[str, means("name of the source: as given, else the last part of its path")]
    path: Annotated[str, means("its path")]
    verdict: Annotated[str, means("of `verify --level deep` of it")]
    segments: Annotated[int, means("segments of it")]
    sound_bytes: Annotated[int, means("bytes of its log that it proves")]
    taken_bytes: Annotated[int, means("of these, those that are in the new store from it")]
    differs_from: Annotated[
        int | None,
        means("physical offset from which it differs from a source that counts more, so that nothing is taken"),
    ]
    renamed: Annotated[list[str], means("files whose names are not the offset that their records say")]
    stale_bytes: Annotated[int, means("bytes of records that were cut off earlier: they stay out")]


class Digest(Part, frozen=True):
    """A file of the sources."""

    file: Annotated[str, means("path of the file")]
    size: Annotated[int, means("bytes")]
    sha256: Annotated[str | None, means("SHA-256 of its content; null without `--hash`")]


class Repair(Part, frozen=True):
    """One field that was repaired."""

    physical_offset: Annotated[int, means("of the record; of a blank record its own")]
    source: Annotated[str | None, means("name of the source whose record was repaired")]
    file: Annotated[str | None, means("segment in that source")]
    position: Annotated[int | None, means("position of the first changed byte in that file")]
    field: Annotated[str, means("name of the field")]
    bit: Annotated[int | None, means("the one bit that was flipped, 0 is the least significant; null: more than one")]
    before: Annotated[str, means("bytes that were found, in hex")]
    after: Annotated[str, means("bytes that were written, in hex")]
    proof: Annotated[str, means("what determines them")]
    exact: Annotated[bool, means("false: a time that is proven to lie between those around it, and no better known")]
    topic: Annotated[str | None, means("topic of the record")]
    queue_id: Annotated[int | None, means("its queue")]
    queue_offset: Annotated[int | None, means("its queue offset")]


class Bridged(Part, frozen=True):
    """A part of the log in which bridges stand."""

    start: Annotated[int, means("physical offset of the first byte")]
    end: Annotated[int, means("physical offset behind the last byte")]


class Aside(Part, frozen=True):
    """Something that could not be saved."""

    start: Annotated[int, means("physical offset of the first byte")]
    end: Annotated[int, means("physical offset behind the last byte")]
    why: Annotated[str, means("a clause")]
    source: Annotated[str | None, means("name of the source whose bytes lie in NEW.aside; null: no source has any")]
    file: Annotated[str | None, means("file in NEW.aside that has the bytes")]
    topic: Annotated[str | None, means("topic of the message, if it is known")]
    queue_id: Annotated[int | None, means("its queue")]
    queue_offset: Annotated[int | None, means("its queue offset")]


class NotChosen(Part, frozen=True):
    """Sound records that are not in the new store, because only a source has them that does not count there."""

    source: Annotated[str, means("name of the source")]
    path: Annotated[str, means("its path")]
    start: Annotated[int, means("physical offset of the first of them")]
    end: Annotated[int, means("physical offset behind the last one")]
    records: Annotated[int, means("how many: all of them lie in NEW.aside")]
    topics: Annotated[dict[str, int], means("how many, by topic")]


class LostOffsets(Part, frozen=True):
    """Queue offsets whose messages are lost."""

    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]
    kept: Annotated[int, means("queue offsets of it that lead to a message")]
    lost: Annotated[list[int], means("queue offsets that do not, as far as they are known")]


class Timers(Part, frozen=True):
    """What becomes of the timer wheel and its log."""

    kept: Annotated[bool, means("whether they are in the new store")]
    why: Annotated[str | None, means("why they are left out")]
    lost: Annotated[int, means("units of the timer log whose message is lost: the timer passes over them")]
    moved: Annotated[
        int | None,
        means("of these, those that were changed: they led to the first byte of a bridge; null with `--dry-run`"),
    ]
    again: Annotated[
        int | None, means("messages that were delivered, and come again because they are left out; null where kept")
    ]
    again_pops: Annotated[
        int | None, means("the same of the broker's own messages: what pop consumers had acknowledged; null where kept")
    ]


class SalvageReceipt(Head, frozen=True):
    """The whole receipt of a salvage."""

    dry_run: Annotated[bool, means("whether nothing was written")]
    sources: Annotated[list[SourceRow], means("sources, in the order in which they count")]
    files: Annotated[list[Digest], means("files of the sources")]
    log_start: Annotated[int, means("physical offset of the first byte of the new log")]
    log_end: Annotated[int, means("physical offset behind its last record")]
    kept_bytes: Annotated[int, means("bytes of the log that are as their source has them")]
    repaired: Annotated[list[Repair], means("fields that were repaired")]
    bridged: Annotated[list[Bridged], means("where bridges stand")]
    aside: Annotated[list[Aside], means("what could not be saved")]
    not_chosen: Annotated[list[NotChosen], means("sound records that only a source has which was not chosen")]
    lost_offsets: Annotated[list[LostOffsets], means("by queue; queues that have lost nothing are left out")]
    timers: Annotated[Timers | None, means("timer wheel and timer log; null where the store has none")]
    brought: Annotated[list[Brought], means("files that were brought; with `--dry-run` those that would be")]
    left_out: Annotated[list[LeftOut], means("files that were not, and why")]
    derived: Annotated[
        Derived,
        means("what was written anew from the log; with `--dry-run` what would be, without the index of entries"),
    ]
    notes: Annotated[list[str], means("sentences")]
    verdict: Annotated[str | None, means("of `verify --level deep` of the new store; null with `--dry-run`")]
    next_start: Annotated[str | None, means("of `forecast` of it, for `broker_version`; null with `--dry-run`")]
    run: Annotated[dict[str, Any], means(RUN)]
