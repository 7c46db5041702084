"""The layouts of schemas/ as rows: each field with its construct, its place and its meaning.

`formats_page` prints them, `kaitai` turns them into .ksy files. Which fields there are, and how they are read, comes
from the construct objects alone. What a field means stands in one of two places: the table that `rmqinspect explain`
reads, or the comment behind the field in the source of the layout. What has no rule here is an error, never a guess.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from inspect import getsource
from types import ModuleType
from typing import Any, NamedTuple

from construct import Bytes, FormatField, IfThenElse, Renamed, Struct
from construct.expr import BinExpr, FuncPath, Path, opnames

from rmqinspect.explain.names import LAYOUTS
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message, messageid, rocksdb, timer

MODULES: tuple[ModuleType, ...] = (message, consumequeue, index, checkpoint, timer, dledger, messageid, rocksdb)

# construct's letters are those of Python's `struct`.
NUMBERS = {"b": "s1", "h": "s2", "l": "s4", "q": "s8", "B": "u1", "H": "u2", "L": "u4", "Q": "u8"}
"""Kaitai's name of each kind of integer: signed or unsigned, and its bytes."""

_OPERATORS = {"+", "-", "*", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">="}
"""Those that mean the same in construct, in Kaitai and to a reader. Not `/` and `%`: languages differ for negatives."""


class Field(NamedTuple):
    """One field of a layout."""

    name: str
    construct: Any  # what it is, without its name
    meaning: str
    broker_name: str = ""  # RocketMQ's, such as TOTALSIZE


def snake(name: str) -> str:
    """Return the name of a variable as Kaitai writes names: HostV4 is host_v4."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def type_name(layout: Any) -> str:
    """Return the name of a layout in Kaitai, made of that of its variable.

    :raises TypeError: it is no variable of a module of schemas/.
    """
    for module in MODULES:
        for name, value in vars(module).items():
            if value is layout:
                return snake(name)
    raise TypeError(f"a layout without a name of its own: {layout!r}")


@cache
def fields_of(layout: Any) -> tuple[Field, ...]:
    """Return the fields of a layout, in their order.

    :raises TypeError: its source does not list the fields that it has.
    """
    # By the field and not by the layout: one that begins with another shares the fields.
    explained = {id(part): table[part.name] for _, one, table, _ in LAYOUTS for part in one.subcons}
    written = _written()[type_name(layout)]
    if [name for name, _ in written] != [part.name for part in layout.subcons]:
        raise TypeError(f"{type_name(layout)}: the source lists {written}")
    found = []
    for (name, comment), part in zip(written, layout.subcons, strict=True):
        assert isinstance(part, Renamed)
        known = explained.get(id(part))
        meaning = known.meaning if known else _with_values(comment)
        found.append(Field(name, part.subcon, meaning, known.name if known else ""))
    return tuple(found)


def expression(value: Any) -> str:
    """Return a length or a condition as Kaitai writes it; the names are those of earlier fields.

    :raises TypeError: it is something else than numbers, fields, `at_least_zero` and operators of `_OPERATORS`.
    """
    match value:
        case int():
            return str(int(value))
        case FuncPath() if value._FuncPath__func is message.at_least_zero._FuncPath__func:
            operand = expression(value._FuncPath__operand)
            return f"{operand} > 0 ? {operand} : 0"
        case BinExpr() if opnames[value.op] in _OPERATORS:
            return f"({expression(value.lhs)} {opnames[value.op]} {expression(value.rhs)})"
        case Path() if repr(value._Path__parent) == "this":
            return str(value.__getfield__())
    raise TypeError(f"no Kaitai expression for {value!r}")


def condition(value: Any) -> str:
    """Return a condition that is true or false: construct takes any number for one."""
    compares = isinstance(value, BinExpr) and opnames[value.op] in ("==", "!=", "<", "<=", ">", ">=")
    return expression(value)[1:-1] if compares else f"{expression(value)} != 0"


class Place(NamedTuple):
    """Where a field lies."""

    offsets: tuple[
        int, ...
    ]  # from the layout's start, or from the end of `behind`; one for each size of what may differ
    behind: str  # the last field of variable size before it
    size: str  # bytes: a number, several, or an expression


def places_of(layout: Any) -> Iterator[tuple[Field, Place]]:
    """Yield each field of a layout and its place."""
    offsets, behind = {0}, ""
    for field in fields_of(layout):
        sizes = _sizes(field.construct)
        words = " or ".join(map(str, sorted(sizes))) if sizes else expression(field.construct.length)
        yield field, Place(tuple(sorted(offsets)), behind, words)
        if sizes:
            offsets = {offset + size for offset in offsets for size in sizes}
        else:
            offsets, behind = {0}, field.name


def _sizes(part: Any) -> set[int]:
    """Return the sizes that a part may have; none if any."""
    match part:
        case IfThenElse():
            return _sizes(part.thensubcon) | _sizes(part.elsesubcon)
        case Bytes() if not isinstance(part.length, int):
            return set()
        case FormatField() | Bytes() | Struct():
            return {part.sizeof()}
    raise TypeError(f"no size of {part!r}")


# --- the comments in the sources -----------------------------------------------------------------------------


@cache
def _written() -> dict[str, list[tuple[str, str]]]:
    """Return (field, comment) of every layout and every tuple of fields, by their names in Kaitai."""
    found: dict[str, list[tuple[str, str]]] = {}
    for module in MODULES:
        source = getsource(module)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                elements = _elements(node.value)
                name = snake(node.targets[0].id)
                if len(elements) > 1 and node.lineno == node.end_lineno:  # the comment is about the layout
                    found[name] = list(_listed(elements, {}, found))
                elif elements:
                    found[name] = list(_listed(elements, comments, found))
    return found


def _elements(value: ast.expr) -> Sequence[ast.expr]:
    match value:
        case ast.Call(func=ast.Name(id="Struct"), args=args):
            return args
        case ast.Tuple(elts=elements) if any(isinstance(element, ast.BinOp) for element in elements):
            return elements
    return ()


def _listed(
    elements: Sequence[ast.expr], comments: dict[int, str], before: dict[str, list[tuple[str, str]]]
) -> Iterator[tuple[str, str]]:
    for element in elements:
        match element:
            case ast.BinOp(left=ast.Constant(value=str(name)), op=ast.Div()):
                yield name, _meaning(comments.get(element.end_lineno or element.lineno, ""))
            case ast.Starred(value=ast.Name(id=other) | ast.Attribute(value=ast.Name(id=other), attr="subcons")):
                yield from before[snake(other)]
            case _:
                raise TypeError(f"no field: {ast.unparse(element)}")


def _with_values(comment: str) -> str:
    """Return a comment with the values of the constants that it names."""
    known = {name: value for module in MODULES for name, value in vars(module).items() if isinstance(value, int | str)}
    return re.sub(r"\b[A-Z_]{4,}\b", lambda name: str(known.get(name[0], name[0])), comment)


def _meaning(comment: str) -> str:
    """Return a comment without the running offset that it begins with."""
    return re.sub(r"^#\s*(\+?\d+(\s+|$))?", "", comment)
