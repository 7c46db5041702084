"""Who may import whom, and which library is at home where.

A room is a module or a folder directly below `rmqinspect`. Every import counts: at the top of a module, in a
function, and for types only.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Rooms that everybody may import; they import none but each other.
LEAVES = "errors text times topics version"

# What else a room may import. From the bytes outward: a room knows nothing of those below it in this list.
MAY_IMPORT = {
    # What the bytes are, and the only bridge to numpy.
    "schemas": "",
    "layout": "",
    "fields": "layout schemas",
    # Small tools for one value.
    "fastjson": "",
    "decompress": "",
    "memory": "",
    "parallel": "read_rate",
    "hashes": "schemas",
    "hash_columns": "hashes",
    "pieces": "",
    "spans": "",
    "read_rate": "",
    "ids": "hashes layout schemas",
    # Files and what is in them.
    "filesystems": "",
    "folders": "filesystems",
    "sniff": "filesystems schemas",
    "places": "filesystems sniff",
    "store": "filesystems places read_rate sniff",
    "records": "layout schemas",
    "properties": "schemas",
    "gaps": "store",
    "resync": "gaps records schemas store",
    "scan": "gaps layout records resync schemas store",
    "account": "gaps scan schemas store",
    "queue_files": "layout schemas store",
    "index_geometry": "layout schemas store",
    "store_times": "layout schemas store",
    "configs": "fastjson filesystems store",
    "checkpoint": "layout schemas store",
    "rocksdb": "filesystems layout schemas store",
    # What must be in queues and index for the log's records, and what damaged bytes tell of their cause.
    "dispatch": "hash_columns hashes properties records schemas spans",
    "causes": "fields hashes layout properties records resync schemas store",
    # One record, looked at closely.
    "field_words": "fields hashes ids schemas",
    "describe": "field_words fields hashes ids schemas",
    "locate": "fields layout schemas store",
    "witnesses": "fields hashes layout schemas store",
    # A store, looked at without a full scan.
    "queue_peek": "layout queue_files schemas store",
    "log_end": "gaps locate records resync scan schemas store",
    "sample": "gaps records scan schemas store",
    "writer": "checkpoint hashes index_geometry layout log_end sample schemas store",
    "overview": "checkpoint configs filesystems gaps layout log_end queue_files queue_peek sample schemas store writer",
    # Answers: record batches with a fixed schema, what they prove, and what is done to them.
    "tables": "account checkpoint configs decompress fastjson filesystems gaps hashes ids index_geometry layout memory"
    " parallel properties queue_files records resync scan schemas spans store store_times",
    "checks": "account causes configs dispatch fastjson gaps hashes hash_columns index_geometry layout memory pieces"
    " properties queue_files records resync rocksdb scan schemas store tables",
    "verify": "account causes checkpoint checks configs dispatch filesystems index_geometry parallel resync rocksdb"
    " scan store writer",
    "custody": "filesystems parallel places store",
    "report": "checks custody verify",
    "explanations": "checks field_words hashes schemas",
    # Two stores side by side.
    "diff": "checks configs filesystems gaps layout locate queue_files records resync scan schemas store tables",
    "select": "hashes",
    "redact": "",
    "output": "filesystems tables",
    # Whole stores as files.
    "export": "account checks filesystems folders gaps log_end memory output parallel queue_files queue_peek redact"
    " scan select store tables verify writer",
    # Both on Spark.
    "spark": "checks export filesystems parallel redact select store tables verify",
}

# The command line and the doors to it and to the package: they may import everything.
OUTERMOST = {"cli", "__init__", "__main__"}

# A library that is not in this list may be imported by none.
LIBRARIES = {
    "click": "cli",
    "construct": "schemas layout fields",
    "isal": "records",
    "numpy": "layout records properties resync scan queue_files index_geometry checkpoint queue_peek sample writer"
    " hash_columns pieces spans dispatch causes rocksdb tables checks verify diff output select redact"
    " export",
    "pyarrow": "decompress filesystems records spans tables checks diff select redact output export spark cli",
    "py4j": "spark",
    "pyspark": "spark",
    "rocksdict": "rocksdb",
    "rich": "output cli",
}


def modules() -> Iterator[tuple[str, bool, Path]]:
    """Yield (dotted name, is it a package, file) of every module of the package."""
    for folder, package in ((ROOT / "rmqinspect", "rmqinspect"), (ROOT / "schemas", "rmqinspect.schemas")):
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            if package == "rmqinspect" and parts[0] == "schemas":
                continue  # through the link; it comes with its own folder
            is_package = parts[-1] == "__init__"
            yield ".".join([package, *(parts[:-1] if is_package else parts)]), is_package, file


def imports(name: str, is_package: bool, tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of everything a module imports, `from a import b` as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the package a module is in; a package is in itself.
            above = name.split(".")[: -(node.level - is_package) or None] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def room_of(name: str) -> str:
    """Return the room of a dotted name; what is no room of its own is the front door's."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "__init__"


ROOMS = {name.split(".")[1] for name, _, _ in modules() if "." in name}


@cache
def edges() -> frozenset[tuple[str, str, str]]:
    """Return (room, what it imports, file): a room as `rmqinspect.<room>`, a library by its first name."""
    found = set()
    for name, is_package, file in modules():
        room, place = room_of(name), file.relative_to(ROOT).as_posix()
        for imported in imports(name, is_package, ast.parse(file.read_text(encoding="utf-8"))):
            first = imported.split(".")[0]
            if first != "rmqinspect":
                found.add((room, first, place))
            elif room_of(imported) != room:
                found.add((room, f"rmqinspect.{room_of(imported)}", place))
    return frozenset(found)


def allowed(room: str) -> set[str]:
    """Return the rooms that `room` may import."""
    if room in OUTERMOST:
        return ROOMS | {"__init__"}
    leaves = set(LEAVES.split())
    return leaves if room in leaves else leaves | set(MAY_IMPORT.get(room, "").split())


def test_every_room_has_its_place() -> None:
    placed = set(MAY_IMPORT) | set(LEAVES.split()) | OUTERMOST
    assert placed - {"__init__"} == ROOMS


def test_the_picture_has_no_circle() -> None:
    order = TopologicalSorter({room: may.split() for room, may in MAY_IMPORT.items()}).static_order()
    assert set(order) == set(MAY_IMPORT)


@pytest.mark.parametrize("room", sorted(ROOMS | {"__init__"}))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    inside = {f"rmqinspect.{other}" for other in allowed(room)}
    libraries = {library for library, rooms in LIBRARIES.items() if room in rooms.split()}
    wrong = {
        f"{place} imports {imported}"
        for where, imported, place in edges()
        if where == room and imported not in inside | libraries | sys.stdlib_module_names
    }
    assert not wrong


def test_schemas_import_construct_and_each_other_only() -> None:
    found = {imported for room, imported, _ in edges() if room == "schemas"}
    assert found - sys.stdlib_module_names == {"construct"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import rich", ["rich"]),
        ("def f():\n    from click import echo", ["click.echo"]),
        ("if TYPE_CHECKING:\n    import pyarrow as pa", ["pyarrow"]),
        ("from . import store", ["rmqinspect.tables.store"]),
        ("from ..store import StoreFile", ["rmqinspect.store.StoreFile"]),
        ("from .. import store, scan", ["rmqinspect.store", "rmqinspect.scan"]),
    ],
)
def test_the_walk_sees_every_form_of_import(source: str, found: list[str]) -> None:
    tree = ast.parse(source)
    assert list(imports("rmqinspect.tables.index", False, tree)) == found


def test_a_dot_in_a_package_is_the_package_itself() -> None:
    assert list(imports("rmqinspect.tables", True, ast.parse("from .index import TABLE"))) == [
        "rmqinspect.tables.index.TABLE"
    ]
    assert list(imports("rmqinspect.tables", True, ast.parse("from .. import store"))) == ["rmqinspect.store"]
