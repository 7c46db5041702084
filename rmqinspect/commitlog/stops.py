"""Judging where the chain stopped: the segment's end, the window's end, or damage.

Asked for a position at which no sound record begins in the window. Most often the window ended in the
middle of a record; then it is loaded again from there, and the walk goes on.
"""

from typing import Literal, NamedTuple

from rmqinspect.codec.layout import place_of
from rmqinspect.commitlog.find_record import ChainFinder
from rmqinspect.commitlog.window import Window
from rmqinspect.schemas import dledger, message

_BLANK_SIZE = message.Blank.sizeof()
_SIZE, _MAGIC, _OWN_OFFSET = (
    place_of(message.HEADS[False, False], name) for name in ("total_size", "magic", "physical_offset")
)
_ENTRY_MAGIC, _ENTRY_SIZE, _ENTRY_BODY_SIZE, _ENTRY_POSITION = (
    place_of(dledger.EntryHead, name) for name in ("magic", "size", "body_size", "position")
)


class ChainStop(NamedTuple):
    """What stands where the chain stopped."""

    kind: Literal["more", "blank", "entry", "damage"]
    reason: str | None = None  # a key of `gaps.REASONS`; of a blank record None if its size is right
    end: int = 0  # of an entry: position behind it


# The window ended here, or in the middle of a plausible record; now it begins here.
_MORE = ChainStop("more")


class StopJudge:
    """Judges positions of one segment, through the window of its scan."""

    def __init__(self, window: Window, finder: ChainFinder, window_size: int) -> None:
        self._window = window
        self._finder = finder
        self._window_size = window_size
        self._base, self._size, self._lead = window.reader.base, window.reader.size, window.reader.lead

    def judge(self, position: int) -> ChainStop:
        """Return what stands at a position. May load the window again."""
        left = self._size - position
        if left < _BLANK_SIZE:
            return ChainStop("damage", "short")
        if not self._window.holds(position, _BLANK_SIZE):
            self._window.load(position)
            return _MORE
        return self._judge_entry(position, left) if self._lead else self._judge_record(position, left)

    def _judge_record(self, position: int, left: int) -> ChainStop:
        at = position - self._window.start
        size, magic = self._int(at + _SIZE), self._int(at + _MAGIC)
        if magic == message.MAGIC_BLANK:
            return ChainStop("blank", None if size == left else "blank_size")
        if magic not in message.RECORD_MAGICS:
            return ChainStop("damage", "zero" if magic == 0 else "magic")
        if size < message.FIXED_SIZE:
            return ChainStop("damage", "size")
        if size > left:
            in_place = self._int(at + _OWN_OFFSET, 8) == self._base + position
            return ChainStop("damage", "cut" if in_place else "size")
        return self._judge_size(position, size)

    def _judge_entry(self, position: int, left: int) -> ChainStop:
        at = position - self._window.start
        magic, size = self._int(at + _ENTRY_MAGIC), self._int(at + _ENTRY_SIZE)
        if magic == dledger.ENTRY_MAGIC_BLANK:
            return ChainStop("blank", None if size == left else "blank_size")
        if magic == 0:
            return ChainStop("damage", "zero")
        if magic not in dledger.ENTRY_MAGICS or not self._lead <= size <= left:
            return ChainStop("damage", "entry")
        if magic != dledger.ENTRY_MAGICS[0] and self._wraps_no_record(position, size):
            return ChainStop("entry", end=position + size)
        return self._judge_size(position, size)

    def _wraps_no_record(self, position: int, size: int) -> bool:
        """Whether a no-op or a configuration change stands here, whole by its own head."""
        at = self._window.need(position, self._lead)
        in_place = self._int(at + _ENTRY_POSITION, 8) == self._base + position
        return in_place and self._int(at + _ENTRY_BODY_SIZE) == size - self._lead

    def _judge_size(self, position: int, size: int) -> ChainStop:
        """Decide between a record that the window cut and one whose lengths disagree."""
        # Larger than a window is believed only when its own lengths lead to the same end.
        if not self._window.holds(position, size) and (
            size <= self._window_size
            or self._finder.frame_at(self._base + position + self._lead, anywhere=True) is not None
        ):
            self._window.need(position, size)
            return _MORE
        return ChainStop("damage", "entry" if self._lead else "length")

    def _int(self, at: int, size: int = 4) -> int:
        return int.from_bytes(self._window.raw[at : at + size], "big", signed=True)
