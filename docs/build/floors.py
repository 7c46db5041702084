"""The floors of the package: which folder may import which, and which library is used where.

tests/test_architecture.py compares these lists with the imports of the code; docs/architecture.md draws them
(`python -m docs.build.architecture_page > docs/architecture.md`).
"""

from typing import NamedTuple


class Folder(NamedTuple):
    """One folder of the package. It imports the folders in `imports`, all of them on lower floors, and the leaves."""

    floor: int
    name: str
    imports: str
    holds: str


# Modules that every folder may import; leaves import only each other.
LEAVES = frozenset(["commands", "document", "errors", "prose", "statuses", "text", "times", "topics", "version"])

FLOORS = (
    Folder(1, "schemas", "", "the layout of every record on disk, declared once, in construct"),
    Folder(1, "system", "", "files, URIs, worker threads, output files, memory limits"),
    Folder(
        2, "codec", "schemas system", "bytes to values: numpy types from layouts, hashes, properties; compiled loops"
    ),
    Folder(3, "store", "codec schemas system", "which file of a path is what; the only reader of evidence"),
    Folder(4, "commitlog", "codec schemas store", "records and gaps of the commit log; scan and resynchronisation"),
    Folder(4, "consumequeue", "codec schemas store", "queue units, and where queues begin and end"),
    Folder(4, "index", "codec schemas store", "index files: header, slots, entries"),
    Folder(4, "output", "store system", "record batches as table, JSON, CSV, Parquet or Arrow"),
    Folder(4, "config", "codec schemas store system", "the JSON files of config/ and the checkpoint"),
    Folder(5, "timer", "codec schemas store", "timer log and timer wheel"),
    Folder(
        5, "broker", "codec commitlog config consumequeue index schemas store system", "what brokers do, by version"
    ),
    Folder(5, "damage", "codec commitlog schemas store", "why bytes are wrong: flipped bits, lost pages, overwrites"),
    Folder(
        5,
        "rocksdb",
        "codec consumequeue schemas store system",
        "queues, timers and configuration in RocksDB, unpacked into files",
    ),
    Folder(
        6,
        "tables",
        "broker codec commitlog config consumequeue damage index rocksdb schemas store system timer",
        "every table: a fixed Arrow schema and its record batches",
    ),
    Folder(
        7,
        "find",
        "broker codec commitlog config consumequeue damage index rocksdb schemas store tables",
        "answers: where a message is, what became of it, what consumers get and wait for, what retention takes",
    ),
    Folder(
        7, "diff", "broker codec commitlog config consumequeue schemas store system tables", "differences of two stores"
    ),
    Folder(
        7,
        "forecast",
        "broker codec commitlog config consumequeue damage index rocksdb schemas store system tables",
        "what a broker does to a store at its next start",
    ),
    Folder(
        8,
        "verify",
        "broker codec commitlog config consumequeue damage forecast index rocksdb schemas store system tables timer",
        "all checks, one verdict; the modules of a kind of file begin with its name",
    ),
    Folder(
        9,
        "show",
        "broker codec commitlog config consumequeue damage find rocksdb schemas store system tables",
        "one record, or one store's summary",
    ),
    Folder(
        9,
        "export",
        "broker commitlog consumequeue output rocksdb store system tables verify",
        "whole stores as Parquet files",
    ),
    Folder(
        10,
        "explain",
        "codec find schemas show store verify",
        "the meaning of codes, fields, flags, and lines of broker logs",
    ),
    Folder(
        10,
        "spark",
        "broker codec export forecast rocksdb store system tables verify",
        "the Spark data source, exports as Spark jobs",
    ),
    Folder(
        11,
        "cli",
        "broker codec commitlog config diff explain export find forecast output rocksdb show spark store system "
        "tables verify",
        "one module per command: options in, screens out",
    ),
    Folder(12, "__init__", "rocksdb store tables verify", "the names that `import rmqinspect` offers"),
    Folder(12, "__main__", "cli system", "the console script"),
)

# A library that is not in this list is not imported anywhere.
LIBRARIES = {
    "click": "cli",
    "construct": "schemas codec",
    "isal": "codec",
    "javaproperties": "store",
    "llvmlite": "codec",
    "msgspec": "document verify cli",
    "numba": "codec",
    "numpy": "codec commitlog consumequeue index rocksdb timer broker damage tables find diff forecast verify export",
    "pyarrow": "codec system output tables find diff forecast verify export spark cli",
    "py4j": "spark",
    "pyspark": "spark",
    "rocksdict": "rocksdb",
    "rich": "output text",
}
