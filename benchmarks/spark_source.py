"""Reads a store through the Spark data source, as a peer of benchmarks/export.py.

python -m benchmarks.spark_source count STORE MASTER
python -m benchmarks.spark_source parquet STORE MASTER OUTPUT
"""

import sys

from rmqinspect.spark.session import local_session
from rmqinspect.spark.source import RocketMQDataSource


def main(work: str, store: str, master: str, output: str = "") -> None:
    """Count the messages of a store, or write them as Parquet with Spark's own writer."""
    with local_session(master) as spark:
        spark.dataSource.register(RocketMQDataSource)
        messages = spark.read.format("rocketmq").load([store])
        if work == "count":
            print(messages.count())
        else:
            messages.write.parquet(output, compression="zstd")


if __name__ == "__main__":
    main(*sys.argv[1:])
