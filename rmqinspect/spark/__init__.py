"""Spark: the tables as a data source, the engines of an export, and sessions. The only importer of pyspark.

Notebooks and scripts use `from rmqinspect.spark import register`. pyspark is imported on first use, so that
its absence is reported in one line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqinspect.spark.session import local_session, spark_engine
    from rmqinspect.spark.source import RocketMQDataSource, register

_HOMES = {
    "RocketMQDataSource": "rmqinspect.spark.source",
    "register": "rmqinspect.spark.source",
    "local_session": "rmqinspect.spark.session",
    "spark_engine": "rmqinspect.spark.session",
}

__all__ = ["RocketMQDataSource", "local_session", "register", "spark_engine"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
