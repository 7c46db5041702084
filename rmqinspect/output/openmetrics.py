"""Numbers for a monitoring system: OpenMetrics text that is Prometheus text, too.

A node's textfile collector takes files in Prometheus text format, a scraper OpenMetrics. What both read alike is
written: gauges, no times of samples, no units, `# EOF` at the end, which is a comment to the one and the end to the
other.

    # HELP rmqinspect_group_lag_messages messages that a group has not consumed
    # TYPE rmqinspect_group_lag_messages gauge
    rmqinspect_group_lag_messages{store="a",group="billing",topic="orders"} 42.0
    # EOF

Source: OpenMetrics 1.0; node_exporter's collector/textfile.go, which refuses samples with times.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa

from rmqinspect.errors import NotInstalled
from rmqinspect.output.writer import Out, View, Writer


class Family(NamedTuple):
    """What a metric counts, and which labels its samples have besides `store`."""

    meaning: str
    labels: tuple[str, ...] = ()


FAMILIES = {
    "rmqinspect_run_timestamp_seconds": Family("when the run ended, in seconds since 1970", ("command",)),
    "rmqinspect_run_complete": Family("1 if everything that was asked for could be read, else 0", ("command",)),
    "rmqinspect_verify_verdict": Family("1 for the verdict of verify, 0 for the others", ("verdict",)),
    "rmqinspect_verify_errors": Family("findings of severity error"),
    "rmqinspect_verify_warnings": Family("findings of severity warning"),
    "rmqinspect_verify_findings": Family("findings of a code", ("code",)),
    "rmqinspect_verify_records": Family("records in the commit log"),
    "rmqinspect_verify_log_bytes": Family("bytes of the files of the commit log"),
    "rmqinspect_verify_taken_over_bytes": Family("bytes of log that were taken over from an earlier report"),
    "rmqinspect_verify_lost_messages": Family(
        "messages that queues point at and the log does not hold, at least", ("topic",)
    ),
    "rmqinspect_forecast_verdict": Family("1 for what the next start does, 0 for the others", ("verdict",)),
    "rmqinspect_forecast_messages_at_risk": Family(
        "messages that consumers do not get after the next start: deleted, out of reach, returned wrong, jumped over, "
        "or skipped by groups; absent where it starts empty, and nobody knows how many"
    ),
    "rmqinspect_forecast_topic_messages_at_risk": Family(
        "messages of a topic that consumers do not get after the next start, but for those that groups skip", ("topic",)
    ),
    "rmqinspect_group_lag_messages": Family("messages that a group has not consumed", ("group", "topic")),
    "rmqinspect_group_lost_messages": Family(
        "messages that a group can get no more, for they are gone from the queue", ("group", "topic")
    ),
    "rmqinspect_topic_bytes": Family("bytes of the records of a topic in the commit log", ("topic",)),
    "rmqinspect_topic_messages": Family("messages of a topic in the commit log", ("topic",)),
}


class Sample(NamedTuple):
    """One number of a family; `labels` are those of the family, in its order."""

    name: str
    store: str
    value: float
    labels: tuple[str, ...] = ()


def check_installed() -> None:
    """Find out whether metrics can be written, before anything is read.

    :raises NotInstalled: the library is not there.
    """
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise NotInstalled(
            "openmetrics needs prometheus-client: pip install '.[metrics]' in a clone of rmqinspect"
        ) from error


def metrics_text(samples: Iterable[Sample]) -> bytes:
    """Return samples as text, families in the order of `FAMILIES`; equal labels are added up."""
    from prometheus_client.metrics_core import GaugeMetricFamily
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.registry import Collector, CollectorRegistry

    sums: dict[str, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        sums[sample.name][(sample.store, *sample.labels)] += sample.value

    class Found(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for name, family in FAMILIES.items():
                if name in sums:
                    gauge = GaugeMetricFamily(name, family.meaning, labels=("store", *family.labels))
                    for labels, value in sums[name].items():
                        gauge.add_metric(labels, value)
                    yield gauge

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Found())
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


def run_samples(command: str, stores: Iterable[str], *, complete: bool) -> Iterator[Sample]:
    """Yield when a run ended, and whether all was read, of each store."""
    now = datetime.now(UTC).timestamp()
    for store in stores:
        yield Sample("rmqinspect_run_timestamp_seconds", store, now, (command,))
        yield Sample("rmqinspect_run_complete", store, float(complete), (command,))


# Column of a table -> family, and the columns with its labels.
_OF_GROUPS = {
    "lag": ("rmqinspect_group_lag_messages", ("group", "topic")),
    "lost": ("rmqinspect_group_lost_messages", ("group", "topic")),
}
_OF_USAGE = {
    "bytes": ("rmqinspect_topic_bytes", ("value",)),
    "messages": ("rmqinspect_topic_messages", ("value",)),
}


class OpenMetricsRows(Writer):
    """Rows of the tables groups and usage as sums by group and topic; both have the column `store`."""

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        """Take what `open_writer` has."""
        super().__init__(schema, out, view)
        self.is_usage = "dimension" in schema.names
        self._sums: dict[Sample, float] = defaultdict(float)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        if "store" not in self.schema.names:
            return  # another table has no numbers for a monitoring system
        columns = _OF_USAGE if self.is_usage else _OF_GROUPS
        for row in batch.to_pylist():
            if self.is_usage and row["dimension"] != "topic":
                continue
            for column, (name, labels) in columns.items():
                key = Sample(name, row["store"], 0, tuple(str(row[label] or "") for label in labels))
                self._sums[key] += row[column] or 0

    def finish(self) -> None:
        """Write the sums."""
        command = "usage" if self.is_usage else "groups"
        samples = [sample._replace(value=value) for sample, value in self._sums.items()]
        self.out.write(metrics_text([*run_samples(command, self.view.stores, complete=self.complete), *samples]))
