"""The forecast for one release, for those that may have written the store, or for all.

A walk is made for each era of the releases asked for; all of them share what is read. Neighbouring eras whose outcomes
are the same become one. What is lost is counted once for each end of the log that a walk comes to.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rmqinspect.broker.eras import Era, rules_of_start
from rmqinspect.broker.version_estimate import RELEASES, estimate_version
from rmqinspect.forecast.evidence import Announce, Evidence
from rmqinspect.forecast.instead import other_ways, same_answer, without_files
from rmqinspect.forecast.losses import LossCounter, LossFold
from rmqinspect.forecast.outcome import Forecast, Outcome, Verdict
from rmqinspect.forecast.walk import walk
from rmqinspect.store.model import Store
from rmqinspect.text import text_of

_SERVES_NOTHING = (
    "no queue leads to what the log holds: consumers get none of it, and queue offsets begin at 0 again; after an "
    "unclean exit (with a file abort) a start makes queues of the part of the log that it scans"
)
_LOG_ELSEWHERE = (
    "the queues belong to a log that is not here: if it lies in another folder (storePathCommitLog), give that one, too"
)


@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """What is asked for."""

    release: str | None = None  # None: those that may have written the store
    all_versions: bool = False
    clean_exit: bool | None = None  # None: as the file `abort` says
    count_losses: bool = True  # False: what lies behind the new end is not counted
    instead: bool = False  # price the other ways to start, if this one is not safe
    jobs: int = 1
    progress: Callable[[int], None] | None = None
    announce: Announce | None = None  # of each scan of the log


def forecast(store: Store, request: ForecastRequest) -> Forecast:
    """Return what the next start does to a store."""
    evidence = Evidence(store, request.jobs, request.progress, request.announce)
    releases, version_from = _releases(store, evidence, request)
    clean = not evidence.has_abort if request.clean_exit is None else request.clean_exit
    teller = Teller(evidence, request)
    found = Forecast(teller.tell_all(releases, clean=clean), version_from=version_from, unread=evidence.unread)
    if request.instead and found.worst.verdict in (Verdict.LOSES, Verdict.REFUSES):
        found.instead = other_ways(
            found.worst,
            teller.tell,
            lambda: teller.tell_all(RELEASES, clean=clean),
            lambda moved: Teller(replace(evidence, store=without_files(store, moved)), request).tell,
        )
    return found


def _releases(store: Store, evidence: Evidence, request: ForecastRequest) -> tuple[Sequence[str], str]:
    if request.all_versions:
        return RELEASES, "all"
    if request.release is not None:
        return (request.release,), "given"
    reached = evidence.queues.last_offsets
    found = estimate_version(store, reached, None)
    return found.releases, ", ".join(found.clues)


def _one_of_each_era(releases: Sequence[str]) -> Iterable[str]:
    """Yield the last release of each run with equal rules."""
    for _, run in groupby(releases, key=rules_of_start):
        *_, last = run
        yield last


def _merged(outcomes: Sequence[Outcome], releases: Sequence[str]) -> Iterable[Outcome]:
    """Yield one outcome for each run of neighbours that are the same, named by all of its releases."""
    first = releases[0]
    for _, run in groupby(outcomes, key=same_answer):
        *_, last = run
        yield replace(last, era=str(Era(first, last.release)))
        following = releases.index(last.release) + 1
        if following < len(releases):
            first = releases[following]


class Teller:
    """Walks the starts of one store, and prices them."""

    def __init__(self, evidence: Evidence, request: ForecastRequest) -> None:
        self._evidence = evidence
        self._counts = request.count_losses
        self._losses = LossCounter(evidence.store, evidence.jobs, evidence.progress, evidence.unread)

    def tell_all(self, releases: Sequence[str], *, clean: bool) -> list[Outcome]:
        """Return the outcomes of starts of some releases, in their order; neighbours that are the same are one."""
        return list(_merged([self.tell(release, clean) for release in _one_of_each_era(releases)], releases))

    def tell(self, release: str, clean: bool) -> Outcome:
        """Return the outcome of a start of one release after a clean or an unclean exit."""
        outcome = walk(self._evidence, release, rules_of_start(release), clean=clean)
        outcome.losses_counted = self._counts
        if outcome.refusal is not None or outcome.unknown is not None:
            return outcome
        if self._counts:
            fold = self._losses.behind(outcome.end_offset)
            outcome.losses = fold.losses()
            _note_given_twice(outcome, fold)
        _note_units(outcome)
        if outcome.min_offset < 0 and outcome.losses.units:
            outcome.notes.append(_LOG_ELSEWHERE)
        if _serves_nothing(outcome):
            outcome.notes.append(_SERVES_NOTHING)
        outcome.verdict = verdict_of(outcome)
        if not self._counts and self._losses.any_behind(outcome.end_offset):
            outcome.verdict = Verdict.LOSES
        return outcome


def verdict_of(outcome: Outcome) -> Verdict:
    """Return the verdict of a start that was walked to its end.

    Queues that are deleted because the log is not there are a loss, too: if it is only in another place, nothing leads
    to its messages any more.
    """
    without_log = outcome.min_offset < 0 and outcome.losses.units
    return Verdict.LOSES if outcome.losses.messages or outcome.unreachable or without_log else Verdict.SAFE


def _serves_nothing(outcome: Outcome) -> bool:
    """Whether the log holds something, and no queue leads to it."""
    return 0 <= outcome.min_offset < outcome.end_offset and all(
        queue.min_after >= queue.max_after for queue in outcome.queues
    )


def _note_units(outcome: Outcome) -> None:
    """Note how many units are cut off, in all and by topic."""
    losses = outcome.losses
    for queue in outcome.queues:
        if queue.cut:
            losses.units += queue.cut
            losses.units_by_topic[queue.topic] = losses.units_by_topic.get(queue.topic, 0) + queue.cut


def _note_given_twice(outcome: Outcome, fold: LossFold) -> None:
    """Note for each queue how many offsets that are taken the broker gives out again."""
    taken = {(text_of(topic), queue_id): offset for (topic, queue_id), offset in fold.next_offsets.items()}
    for queue in outcome.queues:
        highest = max(queue.max_before, taken.get((queue.topic, queue.queue_id), 0))
        queue.given_twice = max(0, highest - queue.max_after)
