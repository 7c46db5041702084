"""`python -m docs.build.spark_page > docs/spark.md` writes the reference of the data source from its options."""

from textwrap import fill

from rmqinspect.spark.options import OPTIONS, SCHEMAS, Option
from rmqinspect.store.log_size import FEW, OPENING, SMALL

_PAGE = """\
# The Spark data source

Written by `python -m docs.build.spark_page > docs/spark.md` from the table of options.

```python spark
from rmqinspect.spark import register

register(spark)
messages = spark.read.format("rocketmq").load(["a=samples/healthy-4.9.7", "b=samples/healthy-5.5.0"])
gaps = spark.read.format("rocketmq").option("table", "gaps").load("samples/zeroed-page-4.7.1")
```

`register` tells Spark of the format, and the format how many tasks the cluster runs at a time: by that the default
`split_size` is chosen. `spark.dataSource.register(RocketMQDataSource)` registers it, too, and counts the driver's
processors instead.

`load` takes a store or a list of stores, each as `STORE` or `NAME=STORE`: a path that all executors see, or a URI
([supported URIs](object-storage.md)). The rows are those of `rmqinspect decode`, with the column `store` first; the
columns are the same for all stores: [tables.md](tables.md). Tables:
{tables}.

| option | default | meaning |
|---|---|---|
{options}

Options that take several values accept a JSON list or a Python list. Set `columns`: Spark does not tell a Python data
source which columns a query needs, so without it all are computed.

## Which Python

Spark runs the source in separate Python processes: `PYSPARK_PYTHON`, else the first `python3` on `PATH`. They need this
package (installed, or as an archive), `construct`, `msgspec`, `pyarrow` and `numpy`; with the option `config` also
`javaproperties`; to be fast also `isal`. If a notebook fails with `ModuleNotFoundError`, its environment is not on
`PATH`; set this before the session starts:

```python
import os, sys

os.environ["PYSPARK_PYTHON"] = sys.executable
```

`rmqinspect export` does this itself for workers on the same machine.

On a cluster, ship the package as an archive made from an unpacked wheel (in the repository `schemas/` lies beside the
package, in the wheel it is `rmqinspect/schemas`). The stores need the same path on all executors:

```sh
pip wheel --no-deps -w dist . && python3 -m zipfile -e dist/rmqinspect-*.whl dist/wheel
python3 -m compileall -q -b dist/wheel
(cd dist/wheel && python3 -m zipfile -c ../rmqinspect.zip *)
PYTHONPATH=dist/wheel spark-submit --master spark://HOST:7077 --archives dist/rmqinspect.zip#rmqinspect-package \
    --conf spark.executorEnv.PYTHONPATH=rmqinspect-package job.py
```

Executors unpack an archive. Python also imports from a zip that `--py-files` sends, but no
[compiled loops](install.md#compiled-loops): reading then takes up to a hundred times as long. They are for the
kind of machine that built the wheel. `compileall` spares each new Python worker a second or two; it is of use where all
have the Python that ran it. The libraries have to be there for `spark.pyspark.python` of the executors.
tests/spark/test_cluster.py runs this on two workers that have nothing else of this package.

## On a cluster

- **Exports.** `rmqinspect export --engine spark --master spark://HOST:7077` needs the package on the executors; a job
  that `spark-submit` starts sends it along, and calls `rmqinspect.cli.main(["export", STORE, "-o", DIR])`. DIR is a
  folder that all executors and the driver share, or object storage.
- **Credentials.** Tasks open the stores themselves, with what their executor has: the role of its machine, its files
  (`~/.aws`), or its environment: `--conf spark.executorEnv.AWS_ACCESS_KEY_ID=…`, which Spark's pages show to whoever
  may see them. The driver's environment does not reach them. What a URI names (`?region=…`, `?endpoint_override=…`, a
  password) does.
- **Retries.** Object storage is asked again within a task as for [any command](object-storage.md#limits). A task of a
  load that fails is begun again by Spark (`spark.task.maxFailures`, 4). A part of an export that does not reach the
  storage is tried once more, some seconds later. If it still does not, or if it is refused, it ends the export in one
  line; `--resume` goes on behind what is finished.
- **Speculation and lost executors** do no harm. Attempts of a task never share a file: each writes under a hidden
  name of its own, and the driver gives one of them the final name; on object storage all write the same bytes.
  Results are with the driver, so a lost executor costs the tasks that it ran. An attempt that outlives the commit may
  leave a hidden file, which no reader reads and the next export into the folder removes.

## Partitions

`messages` are split into byte ranges of segments, `gaps` into segments, `queue_units` into groups of files,
`index_entries` into files; any other table is one partition per store. The rows do not depend on where the borders
lie. A split that starts inside a segment first walks over the records before it, so a small `split_size` only suits
small stores. Memory does not grow with the size of a partition. A task receives paths and numbers, and with
`redact=…=hash:KEYFILE` the key.

Of more than {few} stores only the log is looked at first: one listing of a folder each, in threads. Those whose log
takes at most 64 MiB (or `split_size`, if that is less), holes not counted, share tasks, up to {shared} stores in one.
The task opens them, looks for the end of their log and reads them. The driver holds a name and a path of each: 1,000
stores are planned in a second, and in less than 20 on object storage that takes 50 ms to answer. Larger stores, and
any of several stores on object storage, are cut by that listing, too: a task gets a range of physical offsets, opens
the store, and reads the splits that begin in its range. So each split is read once, also if the log grows meanwhile.
The driver itself opens a few local stores, a single one anywhere, what is no folder with a log in it, `queue_units`
and `index_entries`, and stores of which it has to know more: `lost_at_start`, times that count from the last record,
`config`. Stores keep their order.

An export shares small stores out in the same way, on Spark and in the processes of `-j`: a task writes all tables of
a store and its entry of the manifest. Of the others, if they are many or several on object storage, Spark first runs a
job of a task a store, which opens, surveys and plans it and says what its parts are, or why it cannot be read; the
tasks of these parts follow; and last a task a store that makes the tables computed from its whole log (`segments`,
`gaps`, `queues`, `usage`, `findings`). The driver holds the parts, and of each store the list of its segments, but no
queue. Files, bytes and manifest are those of the local engine. Exports that depend on more than the store are planned
by the driver as a whole: `--incremental`, `--resume`, `--unconsumed`, `--lost-at-start`, times that count from the last
record, `--config`; and so is a store whose name is not its own alone.

## Damage

Damage does not fail a job: it shows in the column `status`, and in the tables `gaps` and `findings`. With
`mode=FAILFAST` a job fails where `rmqinspect decode` would exit with status 3 or 4. A file that cannot be opened always
fails the job, and so does a table that is in RocksDB where that is not read: no rows would look like none.

## Filters

`option("pushdown", "true")` pushes filters of `where` on topic, queue id, offsets, times, tags, ids and `store` down to
the source, which then skips reading or decoding the other rows. It needs this setting, and without it every load fails:

```python spark
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
orders = spark.read.format("rocketmq").option("pushdown", "true").load("samples/healthy-5.5.0")
orders = orders.where("topic = 'orders' and physical_offset >= 65536")
```

The options `topic`, `since` and so on work without it.
"""


def page() -> str:
    """Return the page in Markdown."""
    options = "\n".join(map(_row, OPTIONS))
    tables = fill(", ".join(f"`{name}`" for name in SCHEMAS), 118)
    return _PAGE.format(tables=tables, options=options, few=FEW, shared=SMALL // OPENING)


def _row(option: Option) -> str:
    default = f"`{option.default}`" if option.default is not None else ""
    several = " Takes several values." if option.several else ""
    return f"| `{option.name}` | {default} | {option.meaning}{several} |"


if __name__ == "__main__":
    print(page(), end="")
