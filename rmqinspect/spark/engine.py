"""The parts of an export as a Spark job: each task writes its files by itself, and no row reaches the JVM.

A task gives back what `write_part` says of its part, a few hundred bytes. Files have names of their own for
each attempt, so tasks that are repeated, or run twice, hurt nobody.
"""

import base64
import pickle
import re
import threading
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import AccumulatorParam, InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from rmqinspect.errors import RmqinspectError
from rmqinspect.export.part import Orders, Part, PartRead, write_part
from rmqinspect.spark.jvm_errors import first_line
from rmqinspect.system.workers import WorkerLost

# In what Spark says of a failed job, whose order differs: the exception at a traceback's end, and its own reason.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)")
_ABORTED = re.compile(r"Job aborted.*")

_LOOK = 0.1  # seconds between two looks at what has come


def _attempt(part: Part, orders: Orders) -> bytes:
    """Write a part; what can go wrong on purpose is an answer, too."""
    try:
        answer: PartRead | RmqinspectError = write_part(part, orders)
    except RmqinspectError as error:
        answer = error
    return pickle.dumps(answer, protocol=5)


def _open_answer(raw: bytes) -> PartRead:
    answer: PartRead | RmqinspectError = pickle.loads(raw)
    if isinstance(answer, RmqinspectError):
        raise answer
    return answer


# --- a job over the parts ---------------------------------------------------------------------------


class _Answers(AccumulatorParam[dict[int, bytes]]):
    """An accumulator of answers by number. Spark takes it from each task once, as soon as the task is done."""

    def zero(self, value: dict[int, bytes]) -> dict[int, bytes]:
        return {}

    def addInPlace(self, value1: dict[int, bytes], value2: dict[int, bytes]) -> dict[int, bytes]:  # noqa: N802
        value1.update(value2)
        return value1


@dataclass(frozen=True)
class SparkEngine:
    """Runs the parts as tasks of one job."""

    context: SparkContext
    name: str = "spark"

    @property
    def words(self) -> str:
        """How it runs them, for people."""
        return f"Spark {self.context.version}, {self.context.master}"

    def run(self, parts: Sequence[Part], orders: Orders) -> Generator[PartRead, None, None]:
        """Yield what `write_part` gives for each part, in order, while the others still run.

        :raises WorkerLost: the job failed, with Spark's reason.
        """
        if not parts:
            return
        answers = self.context.accumulator({}, _Answers())
        job = _Job(self.context, partial(_run_task, orders=orders, answers=answers), parts)
        job.thread.start()
        try:
            for number in range(len(parts)):
                while number not in answers.value and job.thread.is_alive():
                    job.thread.join(_LOOK)
                if number not in answers.value:
                    raise WorkerLost(f"the Spark job failed: {job.failure or 'an answer is missing'}")
                yield _open_answer(answers.value.pop(number))
        finally:
            job.end()


def _run_task(numbered: tuple[int, Part], orders: Orders, answers: Any) -> None:
    number, part = numbered
    answers.add({number: _attempt(part, orders)})


class _Job:
    """A job in a thread of its own: Spark's call returns when the last task is done."""

    def __init__(self, context: SparkContext, task: Any, parts: Sequence[Part]) -> None:
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
        """Stop what still runs."""
        if self.thread.is_alive():
            self._context.cancelJobGroup(self._group)
            self.thread.join()


def _reason(error: Exception) -> str:
    """Return why a job failed, in a line: what Python said in a task, else what Spark says of it."""
    raised = _RAISED.search(str(error))
    if raised is not None:
        return f"a task ended with {raised[1].strip()}"
    aborted = _ABORTED.search(str(error))
    return first_line(error) if aborted is None else aborted[0].strip()


# --- Spark Connect ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConnectEngine:
    """Runs the parts as partitions of a data source: behind a Spark Connect server there are no other jobs."""

    session: SparkSession
    name: str = "spark"

    @property
    def words(self) -> str:
        """How it runs them, for people."""
        return f"Spark {self.session.version}, by Spark Connect"

    def run(self, parts: Sequence[Part], orders: Orders) -> Generator[PartRead, None, None]:
        """Yield what `write_part` gives for each part, in order.

        :raises WorkerLost: the job failed, with Spark's reason.
        """
        if not parts:
            return
        self.session.dataSource.register(PartSource)
        work = base64.b85encode(zlib.compress(pickle.dumps((list(parts), orders)))).decode()
        rows = self.session.read.format(PartSource.name()).option("work", work).load().toLocalIterator()
        waiting: dict[int, bytes] = {}
        ended = False
        try:
            for number in range(len(parts)):
                while number not in waiting:
                    row = next(rows)
                    waiting[row.number] = bytes(row.answer)
                yield _open_answer(waiting.pop(number))
            ended = True
        except (StopIteration, Py4JError, PySparkException) as error:
            raise WorkerLost(f"the Spark job failed: {_reason(error)}") from error
        finally:
            if not ended:
                self.session.interruptAll()


class PartSource(DataSource):
    """A data source that reads a part by writing its files; the row says what came of it."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "rocketmq_export"

    def schema(self) -> StructType:
        """Return the columns: which part, and the pickled answer."""
        return StructType([StructField("number", IntegerType()), StructField("answer", BinaryType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what writes the parts."""
        return _PartReader(*pickle.loads(zlib.decompress(base64.b85decode(self.options["work"]))))


@dataclass(frozen=True)
class _NumberedPart(InputPartition):
    number: int
    part: Part


class _PartReader(DataSourceReader):
    def __init__(self, parts: Sequence[Part], orders: Orders) -> None:
        self._orders = orders
        self._partitions = [_NumberedPart(number, part) for number, part in enumerate(parts)]

    def partitions(self) -> Sequence[InputPartition]:
        partitions, self._partitions = self._partitions, []
        return partitions

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        assert isinstance(partition, _NumberedPart)
        yield partition.number, _attempt(partition.part, self._orders)
