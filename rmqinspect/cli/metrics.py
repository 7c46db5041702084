"""`-f openmetrics` of verify and forecast: which of their numbers a monitoring system gets."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqinspect.output import open_destination
from rmqinspect.output.openmetrics import Sample, check_installed, metrics_text, run_samples
from rmqinspect.system.output_file import METRICS_HEAD

if TYPE_CHECKING:
    from rmqinspect.forecast.outcome import Forecast
    from rmqinspect.verify.report import Report

__all__ = ["check_installed", "of_failed", "of_forecast", "of_report", "write_metrics"]

_VERDICTS = ("WHOLE", "DAMAGED", "INCOMPLETE")


def write_metrics(samples: Iterable[Sample], path: str | None, evidence: Sequence[str]) -> None:
    """Write samples to stdout, or to a file that appears at once; one of an earlier run is replaced.

    :raises Refused: another file exists there, it lies inside the evidence, or it cannot be written.
    """
    with open_destination(path, evidence, replaces=METRICS_HEAD) as out:
        out.write(metrics_text(samples))


def of_failed(command: str, store: str) -> Sequence[Sample]:
    """Return what is said of a store that could not be read: nothing but that."""
    return list(run_samples(command, [store], complete=False))


def of_report(report: "Report", store: str) -> Iterator[Sample]:
    """Yield the numbers of a report of verify."""
    from rmqinspect.forecast.document import messages_at_risk

    yield from run_samples("verify", [store], complete=report.complete)
    # WHOLE may be followed by the number of warnings, INCOMPLETE by what was read.
    word = report.verdict.split(",")[0].split(":")[0]
    yield from (Sample("rmqinspect_verify_verdict", store, float(one == word), (one,)) for one in _VERDICTS)
    yield Sample("rmqinspect_verify_errors", store, report.errors)
    yield Sample("rmqinspect_verify_warnings", store, report.warnings)
    for code, number in report.counts.items():
        yield Sample("rmqinspect_verify_findings", store, number, (code,))
    yield Sample("rmqinspect_verify_records", store, sum(account.records for account in report.segments))
    yield Sample("rmqinspect_verify_log_bytes", store, sum(account.file_size for account in report.segments))
    yield Sample("rmqinspect_verify_taken_over_bytes", store, report.taken_over.bytes if report.taken_over else 0)
    for topic, number in (report.loss.messages if report.loss else {}).items():
        yield Sample("rmqinspect_verify_lost_messages", store, number, (topic,))
    if report.next_start is not None and report.next_start.verdict is not None:
        risks = map(messages_at_risk, report.next_start.versions)
        yield from _start(store, report.next_start.verdict, max(risks, default=0))


def of_forecast(forecast: "Forecast", store: str) -> Iterator[Sample]:
    """Yield the numbers of a forecast: those of the worst answer."""
    worst = forecast.worst
    yield from run_samples("forecast", [store], complete=not forecast.unread and worst.unknown is None)
    yield from _start(store, str(worst.verdict), worst.at_risk)
    by_topic = Counter(worst.losses.by_topic)
    for more in (worst.unreachable_by_topic, worst.wrong_by_topic, worst.jumped_by_topic):
        by_topic.update(more)
    for topic, number in by_topic.items():
        yield Sample("rmqinspect_forecast_topic_messages_at_risk", store, number, (topic,))


def _start(store: str, verdict: str, lost: int) -> Iterator[Sample]:
    from rmqinspect.forecast.outcome import Verdict

    yield from (Sample("rmqinspect_forecast_verdict", store, float(one == verdict), (str(one),)) for one in Verdict)
    if lost or verdict != str(Verdict.EMPTY):  # where more was there nobody knows how much
        yield Sample("rmqinspect_forecast_messages_at_risk", store, lost)
