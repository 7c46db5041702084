"""The daemon that forks Spark's Python workers, with what all of them import: each would take a second for that."""

import pyarrow.parquet  # noqa: F401
from pyspark.daemon import manager

import rmqinspect.export.part
import rmqinspect.spark.source
import rmqinspect.verify.run  # noqa: F401

if __name__ == "__main__":
    manager()
