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
    Folder(1, "loops", "", "loops over bytes: plain Python, compiled to C when a wheel is built"),
    Folder(2, "codec", "loops", "bytes to values: numpy types from layouts, hashes, properties"),
    Folder(3, "store", "codec", "which file of a path is what; the only reader of evidence"),
    Folder(4, "commitlog", "codec loops store", "records and gaps of the commit log; scan and resynchronisation"),
    Folder(4, "consumequeue", "codec store", "queue units, and where queues begin and end"),
    Folder(4, "index", "codec store", "index files: header, slots, entries"),
    Folder(4, "output", "store", "record batches as table, JSON, CSV, Parquet or Arrow"),
    Folder(4, "config", "codec store", "the JSON files of config/ and the checkpoint"),
    Folder(5, "timer", "codec store", "timer log and timer wheel"),
    Folder(5, "broker", "codec commitlog config consumequeue index loops store", "what brokers do, by version"),
    Folder(5, "damage", "codec commitlog loops store", "why bytes are wrong: flipped bits, lost pages, overwrites"),
    Folder(
        5, "rocksdb", "codec consumequeue store", "queues, timers and configuration in RocksDB, unpacked into files"
    ),
    Folder(
        6,
        "tables",
        "broker codec commitlog config consumequeue damage index loops rocksdb store timer",
        "every table: a fixed Arrow schema and its record batches",
    ),
    Folder(
        7,
        "find",
        "broker codec commitlog config consumequeue damage index loops rocksdb store tables",
        "answers: where a message is, what became of it, what consumers get and wait for, what retention takes",
    ),
    Folder(7, "diff", "broker codec commitlog config consumequeue store tables", "differences of two stores"),
    Folder(
        7,
        "forecast",
        "broker codec commitlog config consumequeue damage index loops rocksdb store tables timer",
        "what a broker does to a store at its next start",
    ),
    Folder(
        8,
        "verify",
        "broker codec commitlog config consumequeue damage forecast index loops rocksdb store tables timer",
        "all checks, one verdict; the modules of a kind of file begin with its name",
    ),
    Folder(
        9,
        "show",
        "broker codec commitlog config consumequeue damage find forecast loops rocksdb store tables verify",
        "one record, or one store's summary",
    ),
    Folder(
        9, "export", "broker commitlog consumequeue output rocksdb store tables verify", "whole stores as Parquet files"
    ),
    Folder(
        9,
        "rescue",
        "broker codec commitlog config consumequeue damage forecast index loops rocksdb store tables timer verify",
        "from damaged or incomplete evidence to a store that a stock broker serves; always in a new place",
    ),
    Folder(
        9,
        "picture",
        "commitlog forecast store verify",
        "the map of a store: its model, a row of a terminal, a picture in a page",
    ),
    Folder(
        10, "explain", "codec find show store verify", "the meaning of codes, fields, flags, and lines of broker logs"
    ),
    Folder(
        10,
        "page",
        "broker codec commitlog config find forecast loops picture rocksdb store tables verify",
        "one page about stores, for a browser: HTML that needs nothing else",
    ),
    Folder(10, "fleet", "forecast show store", "many stores read side by side: processes, a row for each"),
    Folder(
        10,
        "spark",
        "broker export forecast rocksdb store tables verify",
        "the Spark data source, exports as Spark jobs",
    ),
    Folder(10, "sql", "codec find store tables verify", "a query over the tables, in DuckDB"),
    Folder(
        11,
        "cli",
        "broker codec commitlog config diff explain export find fleet forecast loops output page picture rescue "
        "rocksdb show spark sql store tables verify",
        "one module per command: options in, screens out",
    ),
)

# Above all floors: what a user enters by.
DOORS = (
    Folder(12, "__main__", "cli", "the console script"),
    Folder(12, "api", "find forecast rocksdb store tables verify", "the functions that `import rmqinspect` offers"),
    Folder(13, "__init__", "api forecast store tables verify", "the names that `import rmqinspect` offers"),
)

# A library that is not in this list is not imported anywhere.
LIBRARIES = {
    "click": "cli",
    "construct": "schemas codec",
    "duckdb": "sql",
    "isal": "loops",
    "javaproperties": "store",
    "jinja2": "page",
    # The base of every struct that carries values.
    "msgspec": "document system codec store commitlog consumequeue index output config broker damage rocksdb tables "
    "find diff forecast verify show export rescue picture explain page fleet spark sql cli api",
    "cython": "loops",
    "numpy": "loops codec commitlog consumequeue index rocksdb timer broker damage tables find diff forecast verify "
    "export rescue page",
    "pyarrow": "codec system output tables find diff forecast verify export rescue show spark sql cli api",
    "prometheus_client": "output",
    "py4j": "spark",
    "pyspark": "spark",
    "rocksdict": "rocksdb rescue",
    "rich": "output text",
}
