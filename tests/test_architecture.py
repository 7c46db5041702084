"""The floors of the package: who imports whom, and which library is used where.

A folder imports folders of lower floors only, and the ground. Every import counts: at the top of a module, inside a
function, and for types only. The lists are in docs/build/floors.py; docs/architecture.md draws them.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from docs.build.floors import DOORS, FLOORS, GROUND, LEAVES, LIBRARIES
from tests.support.samples import ROOT

FLOOR = {folder.name: folder.floor for folder in (*FLOORS, *DOORS)}
MAY_IMPORT = {folder.name: frozenset(folder.imports.split()) for folder in (*FLOORS, *DOORS)}
UNDER_ALL = LEAVES | GROUND.keys()


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


def folder_of(name: str) -> str:
    """Return the folder (or leaf module) of a dotted name; any other name of the package is its front door's."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FOLDERS else "__init__"


FOLDERS = {name.split(".")[1] for name, _, _ in modules() if "." in name}


@cache
def edges() -> frozenset[tuple[str, str, str]]:
    """Return (folder, what it imports, file): a folder as `rmqinspect.<folder>`, a library by its first name."""
    found = set()
    for name, is_package, file in modules():
        folder, place = folder_of(name), file.relative_to(ROOT).as_posix()
        for imported in imports(name, is_package, ast.parse(file.read_text(encoding="utf-8"))):
            first = imported.split(".")[0]
            if first != "rmqinspect":
                found.add((folder, first, place))
            elif folder_of(imported) != folder:
                found.add((folder, f"rmqinspect.{folder_of(imported)}", place))
    return frozenset(found)


def imported_folders(folder: str) -> set[str]:
    """Return the folders and leaves that `folder` imports."""
    inside = {imported for where, imported, _ in edges() if where == folder}
    return {imported.removeprefix("rmqinspect.") for imported in inside if imported.startswith("rmqinspect.")}


def test_every_folder_has_its_floor() -> None:
    assert FLOOR.keys() | UNDER_ALL == FOLDERS | {"__init__"}


def test_the_list_goes_up_and_a_folder_may_import_lower_floors_only() -> None:
    floors = [folder.floor for folder in FLOORS]
    assert floors == sorted(floors)
    assert not {
        (folder, name) for folder, imports in MAY_IMPORT.items() for name in imports if FLOOR[name] >= FLOOR[folder]
    }


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_what_its_row_says_no_more_and_no_less(folder: str) -> None:
    assert imported_folders(folder) - UNDER_ALL == MAY_IMPORT[folder]


@pytest.mark.parametrize("leaf", sorted(UNDER_ALL))
def test_the_ground_imports_leaves_only(leaf: str) -> None:
    assert imported_folders(leaf) <= LEAVES


def test_a_library_is_imported_where_its_row_says_no_more_and_no_less() -> None:
    outside = {(folder, name) for folder, name, _ in edges() if not name.startswith("rmqinspect")}
    found: dict[str, set[str]] = {}
    for folder, name in outside:
        if name not in sys.stdlib_module_names:
            found.setdefault(name, set()).add(folder)
    assert found == {library: set(folders.split()) for library, folders in LIBRARIES.items()}


def test_no_file_imports_itself_round_a_corner() -> None:
    """Files of one folder form no circle either, also not through imports inside functions."""
    files = {name: file for name, _, file in modules()}
    graph: dict[str, set[str]] = {}
    for name, is_package, file in modules():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        targets = {module_of(imported, files) for imported in imports(name, is_package, tree)}
        # A package's own name is what every import of its modules runs first; only what it imports back is a circle.
        graph[name] = {target for target in targets if target is not None and target != name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def module_of(imported: str, files: dict[str, Path]) -> str | None:
    """Return the module that `a.b.c` names: itself, or the one it is a name of."""
    while imported and imported not in files:
        imported = imported.rpartition(".")[0]
    return imported or None


def test_schemas_import_construct_and_each_other_only() -> None:
    found = {imported for folder, imported, _ in edges() if folder == "schemas"}
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
