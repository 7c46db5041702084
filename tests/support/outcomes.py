"""Outcomes of starts, made by hand: one that loses data, one that is safe, one that does not start."""

from dataclasses import replace

from rmqinspect.forecast.instead import Tell
from rmqinspect.forecast.outcome import (
    Decision,
    GroupBeyond,
    Losses,
    Outcome,
    QueueOutcome,
    Refusal,
    Rejected,
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
    decisions=[Decision("scan", "ends at 97187", (("end", 97187),), "CommitLog#recoverAbnormally")],
)
REFUSAL = Refusal("index/1x", "index_folder", "the name is no number", "move index/1x out of the store", moves=True)
REFUSES = Outcome("5.1.4", "5.1.4", True, Verdict.REFUSES, refusal=REFUSAL)


def told_of(outcome: Outcome) -> Tell:
    """Return what tells an outcome of every release, and another one after the other exit."""
    return lambda release, clean: replace(outcome, release=release, clean_exit=clean)
