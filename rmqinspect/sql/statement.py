"""A statement as it is given: one SELECT, and the keys that its rows must have.

DuckDB pushes comparisons of columns with values into a scan, but none that looks into a list. Whoever asks for messages
by key writes one of

    list_contains(keys, 'order-4711')    list_has_any(keys, ['a', 'b'])    'order-4711' = ANY (keys)

in the WHERE of a SELECT from `messages` alone. DuckDB's own parser shows it, as JSON; a form that is not known is no
hint, and all records are read.
"""

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from rmqinspect.errors import BadOption

MESSAGES, _KEYS = "messages", "keys"
_CONTAINS = frozenset({"list_contains", "list_has", "array_contains", "array_has"})
_CONTAINS_ANY = frozenset({"list_has_any", "array_has_any"})


def one_select(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the text of a single SELECT.

    :raises BadOption: it is anything else.
    """
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise BadOption(f"{'no' if not statements else 'more than one'} statement: give one SELECT")
    (statement,) = statements
    if statement.type != duckdb.StatementType.SELECT:
        word = str(statement.type).rpartition(".")[2].upper()
        what = "PIVOT as the whole statement" if word == "MULTI" else word
        raise BadOption(f"{what} is refused: only SELECT reads, and nothing else is done here")
    query: str = statement.query
    return query


def wanted_keys(connection: duckdb.DuckDBPyConnection, text: str) -> tuple[str, ...]:
    """Return keys of which every message that the statement reads may be asked to have one; none: any message."""
    ((serialized,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    tree = json.loads(serialized)
    tables = [one for one in _objects(tree) if one.get("type") == "BASE_TABLE"]
    readers = [one for one in tables if str(one.get("table_name", "")).casefold() == MESSAGES]
    # Another part of the statement may read other messages, or call something else `messages`.
    named = [str(key).casefold() for one in _objects(tree) for key in (one.get("key"), one.get("function_name"))]
    if len(readers) != 1 or not {MESSAGES, "query", "query_table"}.isdisjoint(named):
        return ()
    if readers[0].get("column_name_alias"):
        return ()
    for node in _objects(tree):
        if node.get("type") == "SELECT_NODE" and node.get("from_table") is readers[0]:
            names = {MESSAGES, str(readers[0].get("alias", "")).casefold()} - {""}
            return next((keys for one in _conjuncts(node.get("where_clause")) if (keys := _keys(one, names))), ())
    return ()


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a document."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _conjuncts(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the conditions all of which must hold."""
    if isinstance(node, dict) and node.get("type") == "CONJUNCTION_AND":
        for one in node.get("children", ()):
            yield from _conjuncts(one)
    elif isinstance(node, dict):
        yield node


def _keys(node: dict[str, Any], names: set[str]) -> tuple[str, ...]:
    """Return the keys of which a condition wants one; `names`: what the table is called."""
    function = str(node.get("function_name", "")).casefold()
    arguments = _arguments(node)
    if function in _CONTAINS and len(arguments) == 2 and _is_keys(arguments[0], names):
        key = _text(arguments[1])
        return () if key is None else (key,)
    if function in _CONTAINS_ANY and len(arguments) == 2 and _is_keys(arguments[0], names):
        listed = [_text(one) for one in _arguments(arguments[1])]
        return tuple(one for one in listed if one is not None) if None not in listed else ()
    if node.get("subquery_type") == "ANY" and node.get("comparison_type") in ("COMPARE_EQUAL", "EQUAL"):
        inner = (node.get("subquery") or {}).get("node") or {}
        selected = inner.get("select_list") or []
        plain = len(selected) == 1 and (inner.get("from_table") or {}).get("type") == "EMPTY"
        if plain and not inner.get("where_clause") and str(selected[0].get("function_name")).casefold() == "unnest":
            unnested, key = _arguments(selected[0]), _text(node.get("child"))
            return (key,) if key is not None and len(unnested) == 1 and _is_keys(unnested[0], names) else ()
    return ()


def _arguments(node: Any) -> list[Any]:
    """Return the arguments of a function: in `arguments`, or `children` as older releases have it."""
    if not isinstance(node, dict):
        return []
    given = node.get("arguments")
    if given is None:
        return list(node.get("children") or ())
    return [one.get("expression") if isinstance(one, dict) else None for one in given]


def _is_keys(node: Any, names: set[str]) -> bool:
    if not isinstance(node, dict) or node.get("class") != "COLUMN_REF":
        return False
    path = [str(one).casefold() for one in node.get("column_names", ())]
    return path[-1:] == [_KEYS] and (len(path) == 1 or (len(path) == 2 and path[0] in names))


def _text(node: Any) -> str | None:
    """Return the text of a constant, None for anything else."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    literal, value = node.get("literal"), node.get("value")
    if isinstance(literal, dict):
        return str(literal["text"]) if literal.get("kind") == "STRING" and "text" in literal else None
    if isinstance(value, dict) and (value.get("type") or {}).get("id") == "VARCHAR" and not value.get("is_null"):
        return str(value["value"]) if "value" in value else None
    return None
