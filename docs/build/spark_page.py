"""`python -m docs.build.spark_page > docs/spark.md` writes the page about the data source from its options."""

from textwrap import fill

from rmqinspect.spark.options import OPTIONS, SCHEMAS, Option

_PAGE = """\
# The Spark data source

Written by `python -m docs.build.spark_page > docs/spark.md` from the options that the source reads.

```python spark
from rmqinspect.spark import RocketMQDataSource

spark.dataSource.register(RocketMQDataSource)
messages = spark.read.format("rocketmq").load(["a=samples/healthy-4.9.7", "b=samples/healthy-5.5.0"])
gaps = spark.read.format("rocketmq").option("table", "gaps").load("samples/zeroed-page-4.7.1")
```

`load` takes a store, a list of stores, each perhaps as `NAME=STORE`: a path that all executors see, or a URI
([what URIs can be](object-storage.md)). The rows are those of `rmqinspect decode`, with the column `store` first; the
columns are the same for all stores: [tables.md](tables.md). Tables:
{tables}.

| option | default | meaning |
|---|---|---|
{options}

Where several are possible, a JSON list or Python's own is taken for them. `columns` is worth its while: Spark does
not tell a source written in Python which columns it needs.

## Which Python

Spark runs the source in Python processes of its own: `PYSPARK_PYTHON`, else the first `python3` on `PATH`. It needs
this package, or `--py-files`, and `construct`, `pyarrow` and `numpy`; with the option `config` also `javaproperties`. A
notebook whose kernel is in an environment that is not on `PATH` ends with `ModuleNotFoundError`, unless it says, before
the session starts:

```python
import os, sys

os.environ["PYSPARK_PYTHON"] = sys.executable
```

`rmqinspect export` does so by itself where the workers are on this machine.

On a cluster, ship the package as a zip made from an unpacked wheel (in the repository `schemas/` lies beside the
package, in the wheel it is `rmqinspect/schemas`). The stores need the same path on all executors:

```sh
pip wheel --no-deps -w dist . && python3 -m zipfile -e dist/rmqinspect-*.whl dist/wheel
(cd dist/wheel && python3 -m zipfile -c ../rmqinspect.zip *)
spark-submit --master spark://HOST:7077 --py-files dist/rmqinspect.zip job.py
```

## Partitions

`messages` are cut into byte ranges of segments, `gaps` into segments, `queue_units` into groups of files,
`index_entries` into files; each other table is one partition per store. Where the borders lie does not matter to the
rows. A border inside of a segment costs a walk to it over the records before, so small `split_size` are for small
stores. Memory does not grow with the size of a partition. A task is handed paths and numbers, and with
`redact=…=hash:KEYFILE` the key.

## Damage

Damage never fails a job: rows say it in `status`, and what is no row is in the tables `gaps` and `findings`. With
`mode=FAILFAST` a job fails where `rmqinspect decode` would end with exit status 3 or 4. A file that cannot be opened
is no damage and always fails the job.

## Filters

`option("pushdown", "true")` takes filters of `where` on topic, queue id, offsets, times, tags, ids and `store`, so
that what they leave out is not read, or not decoded. It needs the configuration

```python spark
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
orders = spark.read.format("rocketmq").option("pushdown", "true").load("samples/healthy-5.5.0")
orders = orders.where("topic = 'orders' and physical_offset >= 65536")
```

and fails every load without it. The options `topic`, `since` and so on need nothing.
"""


def page() -> str:
    """Return the page in Markdown."""
    options = "\n".join(map(_row, OPTIONS))
    tables = fill(", ".join(f"`{name}`" for name in SCHEMAS), 118)
    return _PAGE.format(tables=tables, options=options)


def _row(option: Option) -> str:
    default = f"`{option.default}`" if option.default is not None else ""
    several = " Several are possible." if option.several else ""
    return f"| `{option.name}` | {default} | {option.meaning}{several} |"


if __name__ == "__main__":
    print(page(), end="")
