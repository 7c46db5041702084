"""One Spark session for all tests that need one, and what these tests share."""

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rmqinspect.errors import NotInstalled
from rmqinspect.spark.session import check_spark, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"

# Small, and with what pushed filters need; the rest is as a user has it.
_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}

# pyspark's own: of sockets that it leaves to the garbage collector, of versions of pandas where that is installed.
quiet = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning:pyspark")


def require_java() -> None:
    """Skip the test where Spark does not run; where everything has to be checked that is a failure."""
    try:
        check_spark(MASTER)
    except NotInstalled as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Open the session when the first test asks for it, for the rest of the run."""
    require_java()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with local_session(MASTER, settings=_SETTINGS) as session:
            from rmqinspect.spark import RocketMQDataSource

            session.dataSource.register(RocketMQDataSource)
            yield session
