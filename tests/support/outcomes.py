"""Outcomes of starts, made by hand: one that loses data, one that is safe, one that does not start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from rmqinspect.forecast.outcome import (
    NO_REMEDY,
    Decision,
    GroupBeyond,
    GroupStart,
    Losses,
    LostQueue,
    Outcome,
    QueueOutcome,
    Refusal,
    Rejected,
    Remedy,
    Verdict,
)

SAFE = Outcome("5.5.0", "5.5.0", False, Verdict.SAFE, scan_start=196608, min_offset=0, end_offset=217698)
LOSES = Outcome(
    "5.3.3",
    "5.2.0 to 5.3.3",
    False,
    Verdict.LOSES,
    scan_start=0,
    rejected=Rejected(97187, "body_crc", "commitlog/00000000000000065536", 31651),
    min_offset=0,
    end_offset=97187,
    segments_after=[0, 65536],
    deleted_segments=[131072],
    losses=Losses(145, 217698, 144, 137, 119633, 1_795_250_921_617, None, {"TopicA": 145}, {"TopicA": 119633}),
    queues=[QueueOutcome("TopicA", 0, 0, 51, 0, 20, cut=31, given_twice=31)],
    groups_beyond=[GroupBeyond("billing", "TopicA", 0, 51, 20)],
    groups=[GroupStart("billing", (("TopicA", 0),), 0, 31, 0)],
    lost_queues=[LostQueue("TopicB", 0, 5)],
    judged=True,
    decisions=[Decision("scan", "ends at 97187", (("end", 97187),), "CommitLog#recoverAbnormally")],
)
REFUSAL = Refusal("index/1x", "index_folder", "the name is no number", "move index/1x out of the store", moves=True)
REFUSES = Outcome("5.1.4", "5.1.4", True, Verdict.REFUSES, refusal=REFUSAL)


@dataclass(frozen=True)
class Told:
    """Walks that tell one outcome of every release, and others of all together after the exit of the first of them."""

    outcome: Outcome
    eras: tuple[Outcome, ...] = ()

    def tell(self, release: str, clean: bool) -> Outcome:
        return replace(self.outcome, release=release, clean_exit=clean)

    def tell_all(self, releases: Sequence[str], *, clean: bool) -> list[Outcome]:
        return [one for one in self.eras if one.release in releases and one.clean_exit is clean]


def after(plain: Told, remedied: Outcome = SAFE) -> Callable[[Remedy], Told]:
    """Return what walks a store as it is, and as it is after any remedy."""
    return lambda remedy: plain if remedy == NO_REMEDY else Told(remedied)
