"""The engines of an export on Spark. Each task writes its files itself; no row reaches the JVM.

                       classic session                      Spark Connect
    parts go out as    a job over an RDD                    partitions of a data source
    results come back  through an accumulator               as rows
    stopped by         cancelling the job group             interrupting the session

Both yield (number of a part, pickled result) as tasks finish, in any order; `_in_order` turns that into the results in
the order of the parts. A result is a few hundred bytes. Every attempt of a task writes its own files, so repeated and
speculative tasks are harmless.
"""

import base64
import pickle
import re
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import AccumulatorParam, InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from rmqinspect.errors import RmqinspectError, Unreachable
from rmqinspect.export.job import Engine, Work, WorkRead, run_part
from rmqinspect.export.part import ExportSpec
from rmqinspect.spark.jvm_errors import first_line

Answers = Generator[tuple[int, bytes], None, None]  # number of a part, pickled result

# In Spark's message about a failed job, in any order: the exception that ends a traceback, and Spark's own reason.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)")
_ABORTED = re.compile(r"Job aborted.*")

_POLL_INTERVAL = 0.1  # seconds
_PAUSE = 5.0  # seconds until a task asks a storage again that did not answer


class JobFailed(RmqinspectError):
    """A Spark job ended without all results."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the Spark job failed: {reason}")


def context_engine(context: SparkContext) -> Engine:
    """Return the engine that runs the parts as the tasks of one job."""
    return Engine("spark", f"Spark {context.version}, {context.master}", partial(_in_order, partial(_run_job, context)))


def connect_engine(session: SparkSession) -> Engine:
    """Return the engine that runs the parts as partitions of a data source: Spark Connect has no other jobs."""
    return Engine("spark", f"Spark {session.version}, by Spark Connect", partial(_in_order, partial(_load, session)))


def _in_order(
    answer: Callable[[Sequence[Work], ExportSpec], Answers], parts: Sequence[Work], spec: ExportSpec
) -> Generator[WorkRead, None, None]:
    """Yield the result of each part, in order, while the others still run.

    :raises JobFailed: with Spark's reason.
    """
    early: dict[int, bytes] = {}  # results of later parts
    with closing(answer(parts, spec)) as answers:
        for number in range(len(parts)):
            while number not in early:
                done = next(answers, None)
                if done is None:
                    raise JobFailed("an answer is missing")
                early[done[0]] = done[1]
            yield _unpickle(early.pop(number))


def _write_and_pickle(part: Work, spec: ExportSpec) -> bytes:
    """Write a part; return the pickled result, or the pickled error if it is one of ours.

    Of thousands of tasks one meets a storage that does not answer for a while: it tries once more.
    """
    try:
        result: WorkRead | RmqinspectError = _run_again_if_unreachable(part, spec)
    except RmqinspectError as error:
        result = error
    return pickle.dumps(result, protocol=5)


def _run_again_if_unreachable(part: Work, spec: ExportSpec) -> WorkRead:
    try:
        return run_part(part, spec)
    except Unreachable:
        time.sleep(_PAUSE)
        return run_part(part, spec)


def _unpickle(content: bytes) -> WorkRead:
    result: WorkRead | RmqinspectError = pickle.loads(content)
    if isinstance(result, RmqinspectError):
        raise result
    return result


def _reason(error: Exception) -> str:
    """Return why a job failed, in one line: the Python exception of a task, else Spark's own reason."""
    raised = _RAISED.search(str(error))
    if raised is not None:
        return f"a task ended with {raised[1].strip()}"
    aborted = _ABORTED.search(str(error))
    return first_line(error) if aborted is None else aborted[0].strip()


# --- a job ------------------------------------------------------------------------------------------


class _Results(AccumulatorParam[dict[int, bytes]]):
    """An accumulator of results by number. Spark merges each task's value once, when the task ends."""

    def zero(self, value: dict[int, bytes]) -> dict[int, bytes]:
        return {}

    def addInPlace(self, value1: dict[int, bytes], value2: dict[int, bytes]) -> dict[int, bytes]:  # noqa: N802
        value1.update(value2)
        return value1


def _run_job(context: SparkContext, parts: Sequence[Work], spec: ExportSpec) -> Answers:
    results = context.accumulator({}, _Results())
    job = _Job(context, partial(_run_task, spec=spec, results=results), parts)
    job.thread.start()
    try:
        running = True
        while running:
            running = job.thread.is_alive()  # before the last look at the results
            for number in list(results.value):
                yield number, results.value.pop(number)
            job.thread.join(_POLL_INTERVAL)
        if job.failure is not None:
            raise JobFailed(job.failure)
    finally:
        job.end()


def _run_task(numbered: tuple[int, Work], spec: ExportSpec, results: Any) -> None:
    number, part = numbered
    results.add({number: _write_and_pickle(part, spec)})


class _Job:
    """A job in its own thread: Spark's call blocks until the last task is done."""

    def __init__(self, context: SparkContext, task: Any, parts: Sequence[Work]) -> None:
        self.failure: str | None = None
        self._context, self._task, self._parts = context, task, parts
        self._group = f"rmqinspect export {id(self)}"
        self.thread: threading.Thread = InheritableThread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, "rmqinspect export", interruptOnCancel=True)
            self._context.parallelize(list(enumerate(self._parts)), len(self._parts)).foreach(self._task)
        except (Py4JError, PySparkException, OSError) as error:
            self.failure = _reason(error)

    def end(self) -> None:
        """Cancel what still runs."""
        if self.thread.is_alive():
            self._context.cancelJobGroup(self._group)
            self.thread.join()


# --- Spark Connect ------------------------------------------------------------------------------------


def _load(session: SparkSession, parts: Sequence[Work], spec: ExportSpec) -> Answers:
    session.dataSource.register(PartSource)
    work = base64.b85encode(zlib.compress(pickle.dumps((list(parts), spec)))).decode()
    rows = session.read.format(PartSource.name()).option("work", work).load().toLocalIterator()
    pending = len(parts)
    try:
        for row in rows:
            pending -= 1
            yield row.number, bytes(row.answer)
    except (Py4JError, PySparkException) as error:
        raise JobFailed(_reason(error)) from error
    finally:
        if pending:
            session.interruptAll()


class PartSource(DataSource):
    """A data source that reads a part by writing its files; its row holds the result."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "rocketmq_export"

    def schema(self) -> StructType:
        """Return the columns: number of the part, pickled result."""
        return StructType([StructField("number", IntegerType()), StructField("answer", BinaryType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader that writes the parts."""
        return _PartReader(*pickle.loads(zlib.decompress(base64.b85decode(self.options["work"]))))


@dataclass(frozen=True)
class _NumberedPart(InputPartition):
    number: int
    part: Work


class _PartReader(DataSourceReader):
    def __init__(self, parts: Sequence[Work], spec: ExportSpec) -> None:
        self._spec = spec
        self._partitions = [_NumberedPart(number, part) for number, part in enumerate(parts)]

    def partitions(self) -> Sequence[InputPartition]:
        partitions, self._partitions = self._partitions, []
        return partitions

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        assert isinstance(partition, _NumberedPart)
        yield partition.number, _write_and_pickle(partition.part, self._spec)
