"""Real stores judge a store: what consumers, searches and producers get of it is compared with what has to be there.

A store is started several times, one after the other, each time as after a clean or an unclean exit. Every start drains
each queue as a consumer does (pulls of 32, each at the nextBeginOffset of the one before), goes on where groups stand,
searches keys, and puts a message into every queue; `judge` says in words what is not as it must be. Before each start
forecast says what will come of it: that has to be what came.
"""

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqinspect.forecast.document import document
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.discover import open_store
from tests.support.broker_answers import answer_of as answer_of_start
from tests.support.broker_answers import differences
from tests.support.real_brokers import RealBrokers

Queue = tuple[str, int]  # topic, queue id
Answer = Mapping[str, Any]

_STEPS = ("construct", "load", "start", "drain", "consume", "find", "puts", "drain_again", "shutdown")
_NEEDED = _STEPS[:4]
# A pull that meets a place without a message may answer so, as long as it goes on behind it.
_GOES_ON = frozenset(["FOUND", "MESSAGE_WAS_REMOVING", "NO_MATCHED_MESSAGE"])
_MOST_FOUND = 64  # records; a broker never gives more of one key
_MOST_SAID = 12


class Message(NamedTuple):
    """A message that consumers get: its place in a queue, and its record."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    crc: int  # zlib.crc32 of all bytes of the record
    timeless: int  # the same with a store timestamp of 0


class Span(NamedTuple):
    """The least and the most that a number may be."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Truth:
    """What has to be in a store.

    `messages` have to come. Those of `maybe` may be lost; if they come, it is at their place, with these bytes, but for
    the store timestamp: of one that is wrong nothing but the order of the log says about what it was. Records that
    nobody can tell from sound ones are `forged`, (physical offset, CRC of all bytes): they may come anywhere.
    `next_offsets`: what the queue offset of the next message may be. `keys`: where a search by topic and key has to
    find records, at least. `consumers`: queue offsets at which groups go on. `elsewhere`: topics that a broker serves
    from its compaction log, which is no part of what is judged.
    """

    messages: Sequence[Message]
    next_offsets: Mapping[Queue, Span]
    keys: Mapping[tuple[str, str], frozenset[int]] = field(default_factory=dict)
    maybe: Sequence[Message] = ()
    forged: frozenset[tuple[int, int]] = frozenset()
    consumers: Mapping[Queue, Collection[int]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()


def message_of(raw: bytes, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> Message:
    """Return the message that a record's bytes make at a place of a queue."""
    time = 68 if raw[39] & SysFlag.BORNHOST_V6 else 56
    timeless = zlib.crc32(raw[:time] + bytes(8) + raw[time + 8 :])
    return Message(topic, queue_id, queue_offset, physical_offset, len(raw), zlib.crc32(raw), timeless)


def judge(
    brokers: RealBrokers,
    release: str,
    root: Path,
    truth: Truth,
    settings: Mapping[str, object] | None = None,
    *,
    unclean: Sequence[bool] = (False, True),
    puts: bool = True,
) -> list[str]:
    """Return what is wrong with the store at `root`, a line for each; its starts, one for each of `unclean`, change it.

    `puts`: put a message into each queue of `truth.next_offsets`, at every start.
    """
    wrong: list[str] = []
    wanted = _by_queue([one for one in truth.messages if one.topic not in truth.elsewhere])
    next_offsets = {queue: span for queue, span in truth.next_offsets.items() if queue[0] not in truth.elsewhere}
    maybe = _by_queue(truth.maybe)
    # Only queues in RocksDB have to be named: the store does not list them before they are asked for.
    rocks = str((settings or {}).get("storeType")) == "defaultRocksDB"
    named = {topic: 1 + max(number for name, number in next_offsets if name == topic) for topic, _ in next_offsets}
    for number, abort in enumerate(unclean, 1):
        (root / "abort").touch() if abort else (root / "abort").unlink(missing_ok=True)
        put = sorted(next_offsets) if puts else []
        # What was put makes the newest index file newer than the checkpoint: an unclean start deletes it.
        keys = [] if puts and any(unclean[1:number]) else sorted(truth.keys)
        consumers = [
            (*queue, place)
            for queue, places in sorted(truth.consumers.items())
            if queue in next_offsets
            for place in sorted(places)
        ]
        asked = {"keys": keys, "put": put, "queues": named if rocks else {}, "consumers": consumers}
        more = number < len(unclean)
        told = _told(release, root, settings or {})
        answer = brokers.ask(release, "open", root, settings, serve=True, end=more, **asked)
        _leave_out(answer, truth)
        found = list(_failures(answer, _STEPS if more else _STEPS[:-1]))
        if told["starts"] is not None:  # of a store with queues in RocksDB nothing is forecast
            unlike = differences(told, answer_of_start(answer))
            # The harness lists the segments of a plain log.
            skipped = ("segments_after: ",) if (settings or {}).get("enableDLegerCommitLog") else ()
            found += [f"told: {text}" for text in unlike if not text.startswith(skipped)]
        found += [*_served(answer, wanted, maybe, next_offsets), *_keys(answer, keys, truth.keys)]
        found += _consumed(answer, consumers, wanted, truth.forged)
        found += _puts(answer, put, wanted, maybe, next_offsets)
        exit_before = "unclean" if abort else "clean"
        wrong += [f"{release}, start {number} ({exit_before}): {text}" for text in found[:_MOST_SAID]]
        if any(answer.get(step) is None or not answer[step]["ok"] for step in _NEEDED):
            return wrong
        for queue, (status, physical, offset) in zip(put, answer.get("put") or (), strict=False):
            if status == "PUT_OK":
                came = [row for row in _rows(answer, "drained_again", queue) if row[0] == physical]
                _, size, crc, *_ = came[0] if came else (physical, 0, 0)
                wanted.setdefault(queue, {})[physical] = Message(*queue, offset, physical, size, crc, crc)
                next_offsets[queue] = Span(offset + 1, offset + 1)
    return wrong


def _told(release: str, root: Path, settings: Mapping[str, object]) -> Answer:
    """Return what forecast says of the next start."""
    config = root.with_name(f"{root.name}.conf")
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return document(forecast(open_store([str(root)], config=str(config)), ForecastRequest(release, instead=False)))


def _leave_out(answer: dict[str, Any], truth: Truth) -> None:
    for name in ("drained", "drained_again") if "drained" in answer else ():
        answer[name] = [row for row in answer.get(name) or () if row["topic"] not in truth.elsewhere]
        for queue in answer[name]:
            queue["got"] = [row for row in queue["got"] if (row[0], row[2]) not in truth.forged]


def _failures(answer: Answer, steps: Sequence[str]) -> Iterator[str]:
    """Yield the steps that failed."""
    for step in steps:
        end = answer.get(step)
        if not end or not end["ok"] or end.get("returned") is False:
            yield f"{step} fails: {json.dumps(end)[:300]}"
            if step in _NEEDED:
                return
    if not answer["dispatch"]["caught_up"]:
        yield f"dispatch does not end: {answer['dispatch']}"


def _served(
    answer: Answer,
    wanted: Mapping[Queue, Mapping[int, Message]],
    maybe: Mapping[Queue, Mapping[int, Message]],
    next_offsets: Mapping[Queue, Span],
) -> Iterator[str]:
    """Yield where the queues, as they were found, are not what they must be."""
    drained = {(row["topic"], row["queue_id"]): row for row in answer.get("drained") or ()}
    for queue in sorted(wanted.keys() | drained.keys()) if "drained" in answer else ():
        row = drained.get(queue, {})
        yield from _queue(queue, row.get("got", ()), wanted.get(queue, {}), maybe.get(queue, {}))
        stops = [pull for pull in row.get("pulls", ()) if pull[1] not in _GOES_ON or pull[2] <= pull[0]]
        if stops:
            yield f"{queue}: pulls do not go on: {stops[:3]}"
        elif row and row["end"] < row["max_offset"]:
            yield f"{queue}: draining ends at {row['end']} of {row['max_offset']}"
        end, span = row.get("max_offset", 0), next_offsets.get(queue)
        if span and not span.least <= end <= span.most:
            yield f"{queue}: ends at {end}, not at {' to '.join(map(str, sorted(set(span))))}"


def _queue(
    queue: Queue, got: Collection[Sequence[int]], wanted: Mapping[int, Message], maybe: Mapping[int, Message]
) -> Iterator[str]:
    """Yield where what came from a queue is not every message at its place with its bytes, and nothing else."""
    served = {row[0] for row in got}
    gone = [one for one in wanted.values() if one.physical_offset not in served]
    if gone:
        at = f"{gone[0].queue_offset} at {gone[0].physical_offset}"
        yield f"{queue}: {len(gone)} of {len(wanted)} messages do not come, first {at}"
    strange = [row for row in got if row[0] not in wanted and row[0] not in maybe]
    if strange:
        yield f"{queue}: {len(strange)} records come that are no messages of it, first {strange[0]}"
    known = [(row, wanted.get(row[0]) or maybe[row[0]]) for row in got if row[0] in wanted or row[0] in maybe]
    other = [row for row, one in known if row[2] != one.crc and (row[0] in wanted or row[5] != one.timeless)]
    if other:
        yield f"{queue}: {len(other)} messages come with other bytes, first {other[0]}"
    # Before 5.0 a broker does not say at which place of the queue a record was.
    places = {(row[0], row[4]) for row in got}
    moved = [(row, one) for row, one in known if row[4] >= 0 and (row[0], one.queue_offset) not in places]
    if moved:
        yield f"{queue}: {len(moved)} messages lie elsewhere, first {moved[0][1].queue_offset} at {moved[0][0][4]}"


def _consumed(
    answer: Answer,
    asked: Sequence[tuple[str, int, int]],
    wanted: Mapping[Queue, Mapping[int, Message]],
    forged: frozenset[tuple[int, int]],
) -> Iterator[str]:
    """Yield the groups that stand behind their queue, or do not get the message there; of a lost one, a neighbour.

    `asked`: topic, queue id, queue offset. Before the queue begins nothing is left: a consumer is told where it does.
    """
    bounds = {(row["topic"], row["queue_id"]): row for row in answer.get("drained") or ()}
    for (topic, number, place), (status, following, first) in zip(asked, answer.get("consumed") or (), strict=False):
        row = bounds.get((topic, number), {"min_offset": 0, "max_offset": 0, "got": ()})
        low, high = row["min_offset"], row["max_offset"]
        there = [one for one in wanted.get((topic, number), {}).values() if one.queue_offset == place]
        passed = [one for one in wanted.get((topic, number), {}).values() if place <= one.queue_offset < following]
        if (first and (first[0], first[2]) in forged) or (status in _GOES_ON and following > place and not passed):
            continue
        if place > high or (place < low and following != low):
            yield f"{(topic, number)}: a group stands at {place}, the queue is from {low} to {high}: {status}"
        elif low <= place < high and (not first or first[0] not in {got[0] for got in row["got"]}):
            yield f"{(topic, number)}: a group at {place} gets {status}, {first}"
        elif there and (not first or first[0] != there[0].physical_offset):
            yield f"{(topic, number)}: a group at {place} gets {status}, {first}, not {there[0]}"


def _keys(
    answer: Answer, asked: Sequence[tuple[str, str]], places: Mapping[tuple[str, str], frozenset[int]]
) -> Iterator[str]:
    """Yield the keys that do not find all their records."""
    for key, found in zip(asked, answer.get("found") or (), strict=False):
        missing = sorted(places[key] - set(found))
        if missing and len(found) < _MOST_FOUND:
            yield f"key {key} does not find {missing[:3]}, {len(missing)} of {len(places[key])}"


def _puts(
    answer: Answer,
    put: Sequence[Queue],
    wanted: Mapping[Queue, Mapping[int, Message]],
    maybe: Mapping[Queue, Mapping[int, Message]],
    next_offsets: Mapping[Queue, Span],
) -> Iterator[str]:
    """Yield the puts that got a wrong place or do not come, and what the queues have lost by them."""
    for queue, (status, physical, offset) in zip(put, answer.get("put") or (), strict=False):
        rows = _rows(answer, "drained_again", queue)
        least, most = next_offsets[queue]
        if status != "PUT_OK":
            yield f"{queue}: a put answers {status}"
            continue
        if not least <= offset <= most:
            yield f"{queue}: a put gets queue offset {offset}, not {' to '.join(map(str, sorted({least, most})))}"
        before = [row for row in rows if row[0] != physical]
        if len(before) == len(rows):
            yield f"{queue}: what was put at {physical} does not come"
        for text in _queue(queue, before, wanted.get(queue, {}), maybe.get(queue, {})):
            yield f"after the puts: {text}"


def _rows(answer: Answer, name: str, queue: Queue) -> list[Sequence[int]]:
    """Return what came from a queue, in its order."""
    found = [row["got"] for row in answer.get(name) or () if (row["topic"], row["queue_id"]) == queue]
    return list(found[0]) if found else []


def _by_queue(messages: Sequence[Message]) -> dict[Queue, dict[int, Message]]:
    found: dict[Queue, dict[int, Message]] = {}
    for message in messages:
        found.setdefault((message.topic, message.queue_id), {})[message.physical_offset] = message
    return found
