"""The Spark session of the test run."""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from typing import TYPE_CHECKING

import pytest

from rmqinspect.errors import NotInstalled
from rmqinspect.spark.session import check_spark, local_session
from tests.support.samples import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"

# Small, soon ready, and with pushed filters; other settings have their defaults.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
    "spark.python.daemon.module": "tests.support.spark_daemon",
    "spark.sql.codegen.wholeStage": "false",  # no classes of its own for a few rows
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}

# pyspark's own warnings: sockets that it never closes, and the version of pandas.
quiet = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning:pyspark")


def require_java() -> None:
    """Skip the test where Spark does not run; in CI fail it."""
    try:
        check_spark(MASTER)
    except NotInstalled as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One session for the whole run, opened for the first test that needs it.

    The JVM stays in the folder where it starts, and finds relative paths from there: that of the project, wherever the
    first test has gone.
    """
    require_java()
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        with chdir(ROOT):
            session = stack.enter_context(local_session(MASTER, settings=SETTINGS))
        from rmqinspect.spark import RocketMQDataSource

        session.dataSource.register(RocketMQDataSource)
        yield session
