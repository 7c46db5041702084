"""The floors of the package: which folder may import which, and which library is used where.

tests/test_architecture.py compares these lists with the imports of the code; docs/architecture.md draws them
(`python -m docs.build.architecture_page > docs/architecture.md`).
"""

from typing import NamedTuple


class Folder(NamedTuple):
    """One folder of the package. It imports the folders in `imports`, all of them on lower floors, and the ground."""

    floor: int
    name: str
    imports: str
    holds: str


# The ground: modules that every folder may import; they import only each other.
LEAVES = frozenset(
    ["choices", "commands", "document", "errors", "notebook", "prose", "statuses", "text", "times", "topics", "version"]
)

# The ground has two folders, too. The first holds layouts and imports construct only.
GROUND = {
    "schemas": "the layout of every record on disk, declared once, in construct",
    "system": "files, URIs, worker threads, output files, memory limits",
}

FLOORS = (
    Folder(1, "codec", "", "bytes to values: numpy types from layouts, hashes, properties; compiled loops"),
    Folder(2, "store", "codec", "which file of a path is what; the only reader of evidence"),
    Folder(3, "commitlog", "codec store", "records and gaps of the commit log; scan and resynchronisation"),
    Folder(3, "consumequeue", "codec store", "queue units, and where queues begin and end"),
    Folder(3, "index", "codec store", "index files: header, slots, entries"),
    Folder(3, "output", "store", "record batches as table, JSON, CSV, Parquet or Arrow"),
    Folder(3, "config", "codec store", "the JSON files of config/ and the checkpoint"),
    Folder(4, "timer", "codec store", "timer log and timer wheel"),
    Folder(4, "broker", "codec commitlog config consumequeue index store", "what brokers do, by version"),
    Folder(4, "damage", "codec commitlog store", "why bytes are wrong: flipped bits, lost pages, overwrites"),
    Folder(
        4, "rocksdb", "codec consumequeue store", "queues, timers and configuration in RocksDB, unpacked into files"
    ),
    Folder(
        5,
        "tables",
        "broker codec commitlog config consumequeue damage index rocksdb store timer",
        "every table: a fixed Arrow schema and its record batches",
    ),
    Folder(
        6,
        "find",
        "broker codec commitlog config consumequeue damage index rocksdb store tables",
        "answers: where a message is, what became of it, what consumers get and wait for, what retention takes",
    ),
    Folder(6, "diff", "broker codec commitlog config consumequeue store tables", "differences of two stores"),
    Folder(
        6,
        "forecast",
        "broker codec commitlog config consumequeue damage index rocksdb store tables timer",
        "what a broker does to a store at its next start",
    ),
    Folder(
        7,
        "verify",
        "broker codec commitlog config consumequeue damage forecast index rocksdb store tables timer",
        "all checks, one verdict; the modules of a kind of file begin with its name",
    ),
    Folder(
        8,
        "show",
        "broker codec commitlog config consumequeue damage find forecast rocksdb store tables verify",
        "one record, or one store's summary",
    ),
    Folder(
        8, "export", "broker commitlog consumequeue output rocksdb store tables verify", "whole stores as Parquet files"
    ),
    Folder(
        8,
        "rescue",
        "broker codec commitlog config consumequeue damage forecast index rocksdb store tables timer verify",
        "from damaged or incomplete evidence to a store that a stock broker serves; always in a new place",
    ),
    Folder(
        8,
        "picture",
        "commitlog forecast store verify",
        "the map of a store: its model, a row of a terminal, a picture in a page",
    ),
    Folder(
        9, "explain", "codec find show store verify", "the meaning of codes, fields, flags, and lines of broker logs"
    ),
    Folder(
        9,
        "page",
        "broker codec commitlog config find forecast picture rocksdb store tables verify",
        "one page about stores, for a browser: HTML that needs nothing else",
    ),
    Folder(9, "fleet", "forecast show store", "many stores read side by side: processes, a row for each"),
    Folder(
        9,
        "spark",
        "broker export forecast rocksdb store tables verify",
        "the Spark data source, exports as Spark jobs",
    ),
    Folder(9, "sql", "codec find store tables verify", "a query over the tables, in DuckDB"),
    Folder(
        10,
        "cli",
        "broker codec commitlog config diff explain export find fleet forecast output page picture rescue rocksdb "
        "show spark sql store tables verify",
        "one module per command: options in, screens out",
    ),
)

# Above all floors: what a user enters by.
DOORS = (
    Folder(11, "__main__", "cli", "the console script"),
    Folder(11, "api", "find forecast rocksdb store tables verify", "the functions that `import rmqinspect` offers"),
    Folder(12, "__init__", "api forecast store tables verify", "the names that `import rmqinspect` offers"),
)

# A library that is not in this list is not imported anywhere.
LIBRARIES = {
    "click": "cli",
    "construct": "schemas codec",
    "duckdb": "sql",
    "isal": "codec",
    "javaproperties": "store",
    "jinja2": "page",
    "llvmlite": "codec",
    # The base of every struct that carries values.
    "msgspec": "document system codec store commitlog consumequeue index output config broker damage rocksdb tables "
    "find diff forecast verify show export rescue picture explain page fleet spark sql cli api",
    "numba": "codec",
    "numpy": "codec commitlog consumequeue index rocksdb timer broker damage tables find diff forecast verify export "
    "rescue page",
    "pyarrow": "codec system output tables find diff forecast verify export rescue show spark sql cli api",
    "prometheus_client": "output",
    "py4j": "spark",
    "pyspark": "spark",
    "rocksdict": "rocksdb rescue",
    "rich": "output text",
}
