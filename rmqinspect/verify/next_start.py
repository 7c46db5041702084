"""The next start of a broker: what it does, the block `NEXT START` of the screen, `next_start` of the report.

At level quick, and in `info` of a long log, nothing is read but what the start itself would read: what consumers lose
is not counted then, and a start that seems to lose nothing has no verdict.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

from rmqinspect.broker.acknowledged import acknowledged_words
from rmqinspect.document import Part, means
from rmqinspect.forecast.advice import Action, FirstStep, first_step
from rmqinspect.forecast.check import REASONS
from rmqinspect.forecast.outcome import Forecast, Outcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import (
    NOT_COUNTED,
    already_lost,
    consumer_words,
    delay_words,
    deleted_words,
    healed_words,
    is_uncounted,
    no_queue_words,
    outcome_words,
    reach_words,
    span_of,
)
from rmqinspect.store.model import Store
from rmqinspect.text import count, group_digits


def next_start(store: Store, request: ForecastRequest) -> Forecast | None:
    """Return what the next start does to a store; None for files that are not a whole store."""
    return forecast(store, request) if is_told(store) else None


def is_told(store: Store) -> bool:
    """Whether the next start can be told: of a whole store."""
    return store.given == "store" and store.neighbours


# Codes of findings -> what is lost there before the start; units that lead nowhere are in `already_lost`.
_LOST = (
    (("CL-MAGIC", "CL-LENGTH", "CL-ZERO-INSIDE", "CL-TORN-TAIL"), "damaged place", "in the log"),
    (("CL-CRC-BODY", "CL-CRC-RECORD"), "record", "with a wrong CRC"),
)
_WITHOUT_UNIT = ("CQ-MISSING", "CQ-BEHIND")  # codes of records that no unit leads to

# --- the screen -------------------------------------------------------------------------------------


def start_lines(
    found: Forecast, log_end: int | None, counts: Mapping[str, int] | None = None, stores: Sequence[str] = ()
) -> list[str]:
    """Return the lines of the block: the verdict, and why.

    Where the releases differ, a line for each run of them says what it alone does; what all do follows once. Where
    another program wrote the store, a line says what that means. The last one says what to do first.

    `log_end` is the physical offset where the log ends now, None if that is not known; `counts` are those of findings
    by code, where the log was compared with the queues; `stores` are the words that name the store in a command.
    """
    counts = counts or {}
    alike = groupby(found.outcomes, key=lambda one: (outcome_words(one), _details(one, log_end, "", counts)))
    runs = [(run[0], span_of(run)) for run in (list(members) for _, members in alike)]
    verdicts = [outcome_words(one, f" with {eras}") for one, eras in runs]
    details = [_details(one, log_end, eras, counts) for one, eras in runs]
    about = [found.other_writer] if found.other_writer else []
    about += _first_lines(found, stores)
    if len(runs) == 1:
        return [verdicts[0], *details[0], *about]
    same = [line for line in details[0] if all(line in others for others in details)]
    own = ([line for line in lines if line not in same] for lines in details)
    of_runs = ("; ".join((words, *lines)) for words, lines in zip(verdicts, own, strict=True))
    return [_summary(found), *of_runs, *same, *about]


def _first_lines(found: Forecast, stores: Sequence[str]) -> list[str]:
    """Return the line that says what to do first; none where it is to start, or where the remedy stands there."""
    first = first_step(found)
    if first.action in (Action.START, Action.REMEDY):
        return []
    command = f": {first.command(stores)}" if is_uncounted(found.worst) else ""
    return [f"do first: {first.text}{command}"]


def _summary(found: Forecast) -> str:
    """Return the verdict of all releases, where they differ."""
    verdict = told_verdict(found.worst) or f"STARTS; {NOT_COUNTED}"
    worst = "" if len({outcome.verdict for outcome in found.outcomes}) == 1 else " at worst"
    return f"{verdict}{worst}: the version is not certain"


def told_verdict(outcome: Outcome) -> str | None:
    """Return the verdict of an outcome; None where it only seems to lose nothing, since nothing was counted."""
    return None if is_uncounted(outcome) else str(outcome.verdict)


def start_words(found: Forecast) -> str:
    """Return the verdict of the worst outcome: `STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records`."""
    alike = [outcome for outcome in found.outcomes if outcome_words(outcome) == outcome_words(found.worst)]
    is_run = len(alike) == len(found.outcomes)
    return outcome_words(found.worst, f" with {span_of(alike) if is_run else found.worst.era}")


def _details(outcome: Outcome, log_end: int | None, eras: str, counts: Mapping[str, int]) -> list[str]:
    """Return what helps a broker that does not start; of one that starts, where the log ends, and what it changes."""
    if outcome.refusal is not None:
        return [outcome.refusal.why, f"remedy: {outcome.refusal.remedy}"]
    if outcome.unknown is not None:
        return outcome.notes if outcome.verdict is Verdict.RUNS else []
    end = "" if outcome.rejected is None else _end_words(outcome, log_end, eras)
    deleted = ", ".join(deleted_words(outcome))
    missing = sum(counts.get(code, 0) for code in _WITHOUT_UNIT)
    labelled: tuple[tuple[str, str], ...] = (
        ("heals", healed_words(outcome, missing)),
        ("groups", consumer_words(outcome)),
        ("consumers", "; ".join(reach_words(outcome))),
        ("delayed", "; ".join(delay_words(outcome))),
        ("no queue", no_queue_words(outcome)),
        ("already lost", "; ".join((*already_lost(outcome, missing), *found_lost(counts)))),
    )
    if outcome.acknowledged is not None:
        labelled += (("gone", acknowledged_words(outcome.acknowledged)),)
    named = (f"{label}: {text}" for label, text in labelled if text)
    return [*filter(None, (end, f"{deleted} deleted" if deleted else "")), *named, *outcome.conf_notes]


def found_lost(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield what the findings, counted by code, say of messages that are lost before a start."""
    for codes, what, where in _LOST:
        if number := max(counts.get(code, 0) for code in codes):  # a record may have both of two codes
            yield f"{count(number, what)} {where}"


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
    "already_lost",
    "healed_units",
    "empty_segments",
    "proofs",
    "groups",
    "unreachable_by_topic",
    "wrong_messages",
    "wrong_by_topic",
    "jumped_messages",
    "jumped_by_topic",
    "skipped_messages",
    "undelivered_messages",
    "delay_levels",
    "timer",
    "transactions",
    "again",
    "unread",
    "in_no_queue",
    "judged",
    "acknowledged",
)

# Null where nothing was counted.
_COUNTED_FIELDS = (
    "lost_messages",
    "lost_by_topic",
    "unreachable_messages",
    "unreachable_by_topic",
    "wrong_messages",
    "wrong_by_topic",
    "jumped_messages",
    "jumped_by_topic",
)


class NextStart(Part, frozen=True):
    """What the next start of a broker does to the store."""

    verdict: Annotated[
        str | None,
        means(
            "the worst of all versions: `STARTS, LOSES NOTHING MORE`, `STARTS, LOSES DATA`, `STARTS EMPTY`, "
            "`WILL NOT START` or `CANNOT TELL`; null: it starts, and what consumers lose by it was not counted (level "
            "quick, `info` of a long log)"
        ),
    ]
    lines: Annotated[list[str], means("the lines of the screen")]
    log_end: Annotated[int | None, means("where the log ends now: physical offset behind its last record")]
    versions_from: Annotated[str, means("why these versions: `given`, or the clues in the content")]
    versions: Annotated[list[dict[str, Any]], means("one object for each run of versions that do the same")]
    do_first: Annotated[FirstStep | None, means("what to do first; null in reports of releases before 2.0.0")] = None


def start_document(
    found: Forecast | None, log_end: int | None, counts: Mapping[str, int] | None = None, stores: Sequence[str] = ()
) -> NextStart | None:
    """Return the object of the report, None without a forecast; see `start_lines`."""
    if found is None:
        return None
    return NextStart(
        verdict=told_verdict(found.worst),
        lines=start_lines(found, log_end, counts, stores),
        log_end=log_end,
        versions_from=found.version_from,
        versions=[_version(outcome) for outcome in found.outcomes],
        do_first=first_step(found),
    )


def _version(outcome: Outcome) -> dict[str, Any]:
    from rmqinspect.forecast.document import outcome_document  # for a report, and no screen

    whole = outcome_document(outcome)
    counted = {name: whole[name] for name in VERSION_FIELDS}
    if outcome.losses_counted:
        return counted
    return counted | {"verdict": told_verdict(outcome)} | dict.fromkeys(_COUNTED_FIELDS)
