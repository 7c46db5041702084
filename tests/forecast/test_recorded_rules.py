"""Recorded starts hold the rules: with another value of a rule, the walk no longer does what the broker did."""

import pytest
from msgspec.structs import replace

from rmqinspect.broker.rules import Value
from rmqinspect.broker.start_rules import Rules
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.outcome import Outcome
from rmqinspect.forecast.walk import walk
from rmqinspect.store.discover import open_store
from tests.support import oracle

# Rule, a value of other releases, a case of the oracle: `test_recorded_starts` compares it with the broker.
HELD = (
    ("clean_dispatch", "none", "cq_lost-5.3.3-r"),
    ("clean_dispatch", "behind_queues", "cq_lost+size_small_old-4.7.1-c"),
    ("clean_start", "third", "none-5.4.0-g-forceVerifyPropCRC"),
    ("clean_start", "base", "blank_magic-4.7.1-c"),
    ("clean_without_log", "destroy", "log_only_zero_len-4.3.2-c"),
    ("clean_without_log", "keep", "log_dir_lost-5.3.3-c"),
    ("empty_last_file", "delete", "seg_zero_len_last-4.9.7-c"),
    ("empty_last_file", "as_wrong", "seg_zero_len_last-5.1.4-h"),
    ("empty_queue_file", "refuse", "cq_last_file_zeroed-4.2.0-c"),
    ("failed_start", "shutdown", "stray_ds-5.2.0-h"),
    ("failed_start", "exit", "stray_ds-5.5.0-h"),
    ("folder_entry", "skip", "stray_dir-4.9.7-c"),
    ("folder_entry", "as_file", "stray_dir-5.3.3-c"),
    ("index_folder", "refuse", "idx_dir-4.9.7-c"),
    ("index_folder", "stop", "idx_dir-5.3.3-c"),
    ("ipv6_hosts", False, "cq_lost-5.3.3-r"),
    ("ipv6_hosts", True, "none-4.7.1-h-to-4.3.2"),
    ("minimum", "scan", "cq_lost-5.4.0-L-commitLogRecoverMaxNum"),
    ("minimum", "search", "seg_missing_first-4.2.0-c"),
    ("offset_check", False, "phys_far_last-5.5.0-h-checkCommitLogOffsetOnRecover"),
    ("property_crc", "none", "none-5.4.0-g-forceVerifyPropCRC"),
    ("queue_cut", "unclean_always", "none-5.4.0-g-forceVerifyPropCRC"),
    ("queue_cut", "at_or_behind", "torn_last-4.2.0-c"),
    ("queue_cut_end", "before_dispatch", "cq_tail_zero_all-5.5.0-c"),
    ("queue_cut_end", "after_dispatch", "cq_tail_zero_all-5.3.3-c"),
    ("queue_end", "start", "abort_removed-5.3.3-b"),
    ("record_times", "logics_offset", "blank_magic-5.4.0-h"),
    ("record_times", "min_timestamp", "magic_third-5.5.0-h"),
    ("reput_from", "log_end", "cq_lost+size_small_old-4.7.1-c"),
    ("reput_from", "queue_end", "cq_lost-5.2.0-c"),
    ("schedule_queues", True, "cq_lost-5.3.3-r"),
    ("schedule_queues", False, "seg_missing_prev-4.9.7-h"),
    ("size_fits", True, "blank_size_large-4.3.2-c"),
    ("size_fits", False, "size_huge_third-5.4.0-h"),
    ("tag_keys", True, "base-4.3.2-halt"),
    ("tag_keys", False, "cp_missing-5.5.0-LH"),
    ("unclean_mismatch", "data", "torn_last-4.3.2-h-to-4.7.1"),
    ("unclean_mismatch", "stop", "size_small_end-4.2.0-h"),
    ("unclean_start", "record", "cp_missing-5.2.0-LH"),
    ("unclean_start", "head", "magic_third-5.5.0-h"),
    ("v2_records", False, "cq_lost-5.3.3-r"),
    ("v2_records", True, "none-5.3.3-h-to-4.9.7"),
    ("wrong_length", "ignore", "seg_zero_len_last-4.9.7-c"),
    ("wrong_length", "refuse", "log_only_zero_len-4.3.2-c"),
)


@pytest.mark.parametrize(("name", "other", "case"), HELD)
def test_a_recorded_start_holds_a_rule(name: str, other: Value, case: str) -> None:
    settings, release = oracle.case("crash", case)["settings"], oracle.truth("crash", case)["opened_by"]
    evidence = Evidence(replace(open_store([str(oracle.store("crash", case))]), settings=settings, has_conf=True))
    # An empty queue file matters only where the minimum is searched.
    given: dict[str, Value] = {"minimum": "search"} if name == "empty_queue_file" else {}
    rules, clean = Rules(release, **given), not evidence.has_abort
    ours = walk(evidence, release, rules, clean=clean)
    theirs = walk(evidence, release, Rules(release, **given, **{name: other}), clean=clean)
    assert _seen(ours) != _seen(theirs)


def _seen(outcome: Outcome) -> tuple[object, ...]:
    """Return what a broker's answer shows."""
    queues = [(queue.topic, queue.queue_id, queue.min_after, queue.max_after) for queue in outcome.queues]
    log = outcome.min_offset, outcome.end_offset, outcome.segments_after
    return outcome.refusal is None, log, queues, sorted(outcome.deleted_files), outcome.new_index_files
