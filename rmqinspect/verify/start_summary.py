"""The next start of a broker in short: the block `NEXT START` of the screen, the object `next_start` of the report."""

from itertools import groupby
from typing import Any

from rmqinspect.forecast.check import REASONS
from rmqinspect.forecast.document import outcome_document
from rmqinspect.forecast.outcome import Forecast, Outcome
from rmqinspect.forecast.words import outcome_words, span_of
from rmqinspect.text import count, group_digits

_QUEUES = ("consumequeue/", "batchconsumequeue/")

# --- the screen -------------------------------------------------------------------------------------


def start_lines(found: Forecast, log_end: int | None) -> list[str]:
    """Return the lines of the block: the verdict, and why; where the releases differ, those of each.

    `log_end` is the physical offset where the log ends now, None if that is not known.
    """
    alike = groupby(found.outcomes, key=lambda outcome: (outcome_words(outcome), _details(outcome, log_end, "")))
    runs = [(run[0], span_of(run)) for run in (list(members) for _, members in alike)]
    texts = [(outcome_words(one, f" with {eras}"), *_details(one, log_end, eras)) for one, eras in runs]
    if len(texts) == 1:
        return list(texts[0])
    worst = "" if len({outcome.verdict for outcome in found.outcomes}) == 1 else " at worst"
    return [f"{found.worst.verdict}{worst}: the version is not certain", *("; ".join(text) for text in texts)]


def start_words(found: Forecast) -> str:
    """Return the verdict of the worst outcome: `STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records`."""
    alike = [outcome for outcome in found.outcomes if outcome_words(outcome) == outcome_words(found.worst)]
    is_run = len(alike) == len(found.outcomes)
    return outcome_words(found.worst, f" with {span_of(alike) if is_run else found.worst.era}")


def _details(outcome: Outcome, log_end: int | None, eras: str) -> list[str]:
    """Return what helps a broker that does not start, or where one that starts ends the log, and what it deletes."""
    if outcome.refusal is not None:
        return [outcome.refusal.why, f"remedy: {outcome.refusal.remedy}"]
    if outcome.unknown is not None:
        return []
    queue_files = [file for file in outcome.deleted_files if file.startswith(_QUEUES)]
    kinds = (
        (outcome.deleted_segments, "segment"),
        (queue_files, "queue file"),
        (outcome.deleted_index_files, "index file"),
    )
    deleted = [count(len(files), what) for files, what in kinds if files]
    details = []
    if outcome.rejected is not None:
        details.append(_end_words(outcome, log_end, eras))
    if deleted:
        details.append(f"{', '.join(deleted)} deleted")
    return details


def _end_words(outcome: Outcome, log_end: int | None, eras: str) -> str:
    """Return where the log would end and why, or in one sentence what an older release cannot read."""
    rejected = outcome.rejected
    assert rejected is not None
    end = f"the log would end at {group_digits(outcome.end_offset)}"
    if log_end not in (None, outcome.end_offset):
        end += f" of {group_digits(log_end)}"
    if rejected.rule == "v2":
        return f"{eras} cannot read V2 records: {end}"
    return f"{end}: {REASONS.get(rejected.rule, rejected.rule)}"


# --- the report -------------------------------------------------------------------------------------

# Of the document of `forecast`; the lists by queue are there alone.
VERSION_FIELDS = (
    "verdict",
    "starts",
    "broker_version",
    "era",
    "clean_exit",
    "scan_start_base",
    "rejected",
    "end_offset",
    "deleted_segments",
    "lost_messages",
    "lost_by_topic",
    "unreachable_messages",
    "deleted_index_files",
    "deleted_files",
    "refusal",
    "cannot_tell",
    "assumptions",
)


def start_document(found: Forecast | None, log_end: int | None) -> dict[str, Any] | None:
    """Return the object of the report, None without a forecast."""
    if found is None:
        return None
    return {
        "verdict": str(found.worst.verdict),
        "lines": start_lines(found, log_end),
        "log_end": log_end,
        "versions_from": found.version_from,
        "versions": [_version(outcome) for outcome in found.outcomes],
    }


def _version(outcome: Outcome) -> dict[str, Any]:
    whole = outcome_document(outcome)
    counted = {name: whole[name] for name in VERSION_FIELDS}
    return counted if outcome.losses_counted else counted | dict.fromkeys(("lost_messages", "lost_by_topic"))
