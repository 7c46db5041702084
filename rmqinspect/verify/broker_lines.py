"""What the next start of a broker does at the place of a finding: the lines `broker` of the screen.

Every line follows from the outcomes of the forecast, and from nothing else:

    code -> kind of place (`PLACES`) -> rule -> words, one for each outcome -> one line

    place in the log        before the scan start | in the scan       | at its end | behind it | segment deleted
    words                   not read              | read, not noticed | ends here  | not read  | deleted

Where the version is not certain and the outcomes differ, each era is named with its words. What a client gets as long
as a start leaves the damage (column `client` of codes.toml) follows where one does.
"""

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from rmqinspect.broker.own_rules import DelayRules
from rmqinspect.forecast.outcome import Forecast, Outcome, QueueOutcome
from rmqinspect.text import count, group_digits
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.findings import Finding


class Words(NamedTuple):
    """What a start does at a place."""

    text: str
    left: bool = False  # the place is still as it was after the start, so the words about clients hold


class Start:
    """One outcome, with what the rules look up in it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    @cached_property
    def deleted(self) -> frozenset[str]:
        """The files that this start deletes, relative to the store."""
        return frozenset(self.outcome.deleted_files)

    @cached_property
    def queues(self) -> Mapping[tuple[str, int], QueueOutcome]:
        """The queues by topic and queue id."""
        return {(queue.topic, queue.queue_id): queue for queue in self.outcome.queues}

    @cached_property
    def bases(self) -> list[int]:
        """The segments that are loaded, also those that are deleted behind the end."""
        return sorted((*self.outcome.segments_after, *self.outcome.deleted_segments))

    def base_of(self, physical_offset: int) -> int | None:
        """Return the base of the last loaded segment that begins at or before an offset."""
        number = bisect_right(self.bases, physical_offset)
        return self.bases[number - 1] if number else None

    def queue_of(self, finding: Finding) -> QueueOutcome | None:
        """Return the queue that a finding is about; None if the broker does not have it."""
        if finding.topic is None or finding.queue_id is None:
            return None
        return self.queues.get((finding.topic, finding.queue_id))


Rule = Callable[[Finding, Start], Words | None]


# --- the log --------------------------------------------------------------------------------------


def _in_log(finding: Finding, start: Start) -> Words | None:
    """Judge a place in the log by where the scan begins and ends."""
    at, outcome = finding.physical_offset, start.outcome
    if at is None:
        return None
    behind = _not_read(finding, start, at)
    if behind is not None:
        return behind
    end = outcome.end_offset
    if at == end:
        return Words(f"this start ends the log here: {_lost(outcome)}")
    if at < end < at + (finding.length or 0):
        return Words(f"this start ends the log at {group_digits(end)}, within these bytes: {_lost(outcome)}")
    return Words("read by this start, and not noticed", left=True)


def _not_read(finding: Finding, start: Start, at: int) -> Words | None:
    """Return why a start does not read a place in the log; None if it does."""
    outcome = start.outcome
    if finding.file in start.deleted or start.base_of(at) in outcome.deleted_segments:
        end = group_digits(outcome.end_offset)
        return Words(f"deleted by this start with its segment: it ends the log before it, at {end}")
    if outcome.scan_start is None or not _is_loaded(finding.file, start):
        return Words("not read by this start: its segment is not loaded")
    if at > outcome.end_offset:
        return Words(f"not read by this start: the log ends before it, at {group_digits(outcome.end_offset)}")
    if at < outcome.scan_start:
        return _before_scan(outcome, at)
    return None


def _before_scan(outcome: Outcome, at: int) -> Words:
    begin = group_digits(outcome.scan_start or 0)
    if outcome.dispatch_start is not None and outcome.dispatch_start <= at:
        return Words(f"not scanned by this start, which begins at segment {begin}; its dispatch reads it", left=True)
    return Words(f"not read by this start: its scan begins behind it, at segment {begin}", left=True)


def _is_loaded(file: str | None, start: Start) -> bool:
    """Whether a segment is among those that the broker loads; a place without a file lies between them."""
    name = posixpath.basename(file or "")
    return not name.isdecimal() or int(name) in start.bases


def _lost(outcome: Outcome) -> str:
    losses = outcome.losses
    if not outcome.losses_counted:
        return "what is lost by it was not counted"
    if not losses.messages:
        # Not that none is lost: what a producer was told is stored may have lain behind the end.
        return "no record of the log is cut off"
    return f"{count(losses.messages, 'message')} of {count(len(losses.by_topic), 'topic')} from here on are lost"


def _hole(finding: Finding, start: Start) -> Words | None:
    """Judge a missing segment: recovery goes on with the next one, which it takes for the neighbour."""
    words = _in_log(replace(finding, file=None), start)
    if words is None or not words.text.startswith("read by"):
        return words
    return Words("not noticed by this start: it goes on with the segment behind it", left=True)


# --- files ----------------------------------------------------------------------------------------


def _entry(finding: Finding, start: Start) -> Words | None:
    """Judge a file that is out of place, or of a wrong length."""
    if finding.file in start.deleted:
        return Words("deleted by this start")
    if finding.file in start.outcome.ignored_files:
        others = len(start.outcome.ignored_files) - 1
        more = f", with {count(others, 'other file')}" if others else ""
        return Words(f"not loaded by this start{more}")
    return Words("not touched by this start", left=True)


def _index_file(finding: Finding, start: Start) -> Words | None:
    """Judge an index file: startup deletes it or keeps it."""
    name, outcome = posixpath.basename(finding.file or ""), start.outcome
    if finding.file in start.deleted:
        return Words(f"this start deletes the file{_indexed_again(outcome)}")
    if name in outcome.index_files_after:
        return Words("this start keeps the file as it is", left=True)
    return Words("this start does not load the file", left=True)


def _indexed_again(outcome: Outcome) -> str:
    if outcome.dispatch_start is None:
        return ", and indexes nothing again"
    return f", and indexes again only records from {group_digits(outcome.dispatch_start)} on"


# --- queues ---------------------------------------------------------------------------------------


def _unit(finding: Finding, start: Start) -> Words | None:
    """Judge a unit by what this start leaves of its queue."""
    if finding.file in start.deleted:
        return Words("this start deletes the file of the unit")
    if finding.file in start.outcome.ignored_files:
        return Words("this start does not load the file of the unit")
    queue, at = start.queue_of(finding), finding.queue_offset
    if queue is None or at is None:
        return None
    if at >= queue.stays:
        return Words(_cut(queue))
    if at + finding.count > queue.stays:
        return Words(f"{_cut(queue)}; the units before that are kept as they are", left=True)
    if at < queue.min_after:
        minimum = group_digits(queue.min_after)
        return Words(f"kept by this start, before the queue's minimum {minimum}: not served")
    return Words("kept by this start as it is", left=True)


def _cut(queue: QueueOutcome) -> str:
    """Return the words about a queue that is cut, and maybe written again from there."""
    words = (
        f"this start cuts the queue at {group_digits(queue.stays)}" if queue.stays else "this start empties the queue"
    )
    if (again := queue.max_after - queue.stays) > 0:
        words += f" and writes {count(again, 'unit')} behind that"
    if queue.cut:
        words += f", {count(queue.cut, 'unit')} lost"
    return words + _given_twice(queue)


def _given_twice(queue: QueueOutcome) -> str:
    if not queue.given_twice:
        return ""
    begin = "the queue starts again at 0" if not queue.max_after else f"it goes on at {group_digits(queue.max_after)}"
    return f"; {begin}: {count(queue.given_twice, 'queue offset')} given out twice"


def _without_unit(finding: Finding, start: Start) -> Words | None:
    """Judge records that have no unit: does this start dispatch them?"""
    at, outcome = finding.physical_offset, start.outcome
    if at is None:
        return None
    if at >= outcome.end_offset and outcome.scan_start is not None:
        return _not_read(finding, start, at) or Words(f"this start ends the log here: {_lost(outcome)}")
    queue = start.queue_of(finding)
    if queue is None or not queue.added:
        twice = _given_twice(queue) if queue else ""
        return Words(f"this start adds no unit to the queue{twice}", left=True)
    units = f"this start adds {count(queue.added, 'unit')} to the queue, which then ends at "
    return Words(units + group_digits(queue.max_after) + _given_twice(queue), left=queue.added < finding.count)


def _without_entry(finding: Finding, start: Start) -> Words | None:
    """Judge records that are not in the index: does this start dispatch them?"""
    at, outcome = finding.physical_offset, start.outcome
    if at is None:
        return None
    if at >= outcome.end_offset and outcome.scan_start is not None:
        return _not_read(finding, start, at) or Words(f"this start ends the log here: {_lost(outcome)}")
    if outcome.dispatch_start is None or at < outcome.dispatch_start:
        return Words("this start does not index it", left=True)
    return Words("this start reads it again, and indexes it unless an index file that stays ends behind it")


# --- the store ------------------------------------------------------------------------------------


def _abort(finding: Finding, start: Start) -> Words | None:
    outcome = start.outcome
    if outcome.clean_exit:
        return None
    words = f"this start counts as unclean: {_scan_words(outcome)}"
    if outcome.deleted_index_files:
        words += f", and it deletes {count(len(outcome.deleted_index_files), 'index file')}"
    return Words(words)


def _scan_words(outcome: Outcome) -> str:
    if outcome.scan_start is None:
        return "it loads no segment"
    return f"its scan begins at segment {group_digits(outcome.scan_start)}"


def _checkpoint(finding: Finding, start: Start) -> Words | None:
    if start.outcome.clean_exit:
        return Words("not used by this start: the last stop counts as clean")
    return Words(f"used by this start: {_scan_words(start.outcome)}")


def _config(finding: Finding, start: Start) -> Words | None:
    name = posixpath.basename(finding.file or "")
    if name in map(posixpath.basename, start.outcome.config_from_backup):
        return Words(f"this start reads {name}.bak in its place")
    return None


def _group(finding: Finding, start: Start) -> Words | None:
    queue = start.queue_of(finding)
    if queue is None:
        return None
    return Words(f"the queue ends at {group_digits(queue.max_after)} after this start", left=True)


def _level(finding: Finding, start: Start) -> Words | None:
    """Judge the offset of a delay level; a level without a queue ends at 0."""
    queue, offset = start.queue_of(finding), finding.queue_offset or 0
    end = queue.max_after if queue is not None else 0
    if offset <= end:
        return Words(f"this start leaves the level at {group_digits(offset)}", left=True)
    if DelayRules(first_release(start.outcome.era)).level_beyond == "end":
        return Words(f"this start sets the level to {group_digits(end)}, the end of its queue", left=True)
    return Words(
        f"nothing of the level is delivered until its queue, which ends at {group_digits(end)} after this start, has "
        f"grown to {group_digits(offset)}",
        left=True,
    )


# --- the table ------------------------------------------------------------------------------------

PLACES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "CL-MAGIC",
            "CL-LENGTH",
            "CL-OFFSET",
            "CL-CRC-BODY",
            "CL-CRC-RECORD",
            "CL-BLANK-SIZE",
            "CL-BLANK-INSIDE",
            "CL-TORN-TAIL",
            "CL-ZERO-INSIDE",
            "CL-STALE-TAIL",
            "CL-QUEUE-OFFSET",
            "CL-TIME",
            "CL-FIELD",
        ),
        _in_log,
    ),
    "CL-HOLE": _hole,
    **dict.fromkeys(("CL-NAME", "CL-SIZE", "CQ-NAME", "CQ-SIZE", "IX-NAME"), _entry),
    **dict.fromkeys(
        (
            "CQ-DANGLING",
            "CQ-BEYOND",
            "CQ-MISMATCH",
            "CQ-TAG",
            "CQ-SHIFT",
            "CQ-ORDER",
            "CQ-HOLE",
            "BQ-COUNT",
            "BQ-ORDER",
            "EX-ADDRESS",
        ),
        _unit,
    ),
    **dict.fromkeys(("CQ-MISSING", "CQ-BEHIND"), _without_unit),
    **dict.fromkeys(("IX-SIZE", "IX-HEADER", "IX-CHAIN", "IX-DANGLING", "IX-BEYOND", "IX-KEY", "IX-TIME"), _index_file),
    **dict.fromkeys(("IX-MISSING", "IX-NONE"), _without_entry),
    "ST-ABORT": _abort,
    "ST-CHECKPOINT": _checkpoint,
    "ST-CONFIG": _config,
    "ST-GROUP-OFFSET": _group,
    "ST-DELAY-OFFSET": _level,
}
"""The rule for each code. Codes without one are about nothing that a start looks at."""


class BrokerLines:
    """The lines about one store; without a forecast there are none."""

    def __init__(self, forecast: Forecast | None) -> None:
        self._starts = [Start(outcome) for outcome in forecast.outcomes] if forecast else []

    def line(self, finding: Finding) -> str | None:
        """Return what the next start does at a finding, each era with another answer by name; None if nothing."""
        rule = PLACES.get(finding.code)
        words = [_words(finding, start, rule) for start in self._starts]
        parts = [_by_era([start.outcome.era for start in self._starts], words)]
        client = BY_CODE[finding.code].client
        if client and self._starts and (rule is None or any(said is not None and said.left for said in words)):
            parts.append(client)
        return "; ".join(filter(None, parts)) or None


def _words(finding: Finding, start: Start, rule: Rule | None) -> Words | None:
    outcome = start.outcome
    if rule is None:
        return None
    if outcome.refusal is not None:
        return Words(_refused(finding, start))
    if outcome.unknown is not None:
        return Words(f"cannot be told: {outcome.unknown}")
    return rule(finding, start)


def _refused(finding: Finding, start: Start) -> str:
    """Return why the broker does not start; at its cause with the reason, elsewhere with the file."""
    refusal = start.outcome.refusal
    assert refusal is not None
    if finding.file in start.deleted:
        return "deleted by this start, which then fails"
    if finding.file == refusal.file:
        return f"the broker does not start: {refusal.why}"
    return f"the broker does not start, because of {refusal.file}"


def _by_era(eras: list[str], words: list[Words | None]) -> str:
    """Return the words; where eras differ, each with its releases in front."""
    numbers: dict[str, list[int]] = {}
    for number, said in enumerate(words):
        if said is not None:
            numbers.setdefault(said.text, []).append(number)
    if len(numbers) == 1 and None not in words:
        return next(iter(numbers))
    return "; ".join(f"{join_eras(eras, found)}: {text}" for text, found in numbers.items())


def first_release(era: str) -> str:
    """Return the first release of an era: `5.2.0` of `5.2.0 to 5.3.3`."""
    return era.partition(" ")[0]


def join_eras(eras: Sequence[str], numbers: Sequence[int]) -> str:
    """Return the eras of these numbers, neighbours joined: `5.2.0 to 5.3.3, 5.5.0`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ends = ((eras[run[0]].split(" to ")[0], eras[run[-1]].split(" to ")[-1]) for run in runs)
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in ends)
