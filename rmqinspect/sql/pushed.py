"""The filters that DuckDB pushes into a scan, as conditions on columns and as a Selection.

DuckDB gives a scan an Arrow expression, and does not apply it again: the scan does, to every row. What the expression
says of single columns also tells what need not be read.

    ((topic == "orders") and (queue_offset >= 7))      the expression
    call and, call equal, field_ref topic, literal 0 … as Arrow serializes it: nodes in order, literals in a batch
    topic in {"orders"}, queue_offset in [7, 2^63)     conditions, all of which must hold
    Selection(topics=("orders",), queue_offsets=…)     what is read

An expression is serialized by Arrow for pickle. What is not known in it is no condition: more is read, never less.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from msgspec import Struct, field

from rmqinspect.codec.message_id import offset_place
from rmqinspect.tables.filters import Selection, parse_host
from rmqinspect.tables.hints import EVERYTHING, RANGED, limited, narrowed

_MARK = "-- schema metadata --"
_AND, _OR = frozenset({"and", "and_kleene"}), frozenset({"or", "or_kleene"})
# Comparison -> the same with its sides exchanged.
_MIRRORED = {
    "equal": "equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
_MOST_VALUES = 1000  # more of them are looked up as slowly as a scan
# Columns whose values redaction may replace: a value that is asked for is not the one that is stored.
_PLAIN = frozenset({"topic", "queue_id", "offset_msg_id"})


class _Call(Struct, frozen=True):
    """A function with its arguments: calls, names of columns as `_Field`, values."""

    name: str
    arguments: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


class _Field(NamedTuple):
    name: str


class _Literal(NamedTuple):
    value: int | str | None  # a time in microseconds since 1970; None: null, or of another type


class Condition(NamedTuple):
    """What a column must be: one of `values`, or, where these are None, in [first, last)."""

    column: str
    values: tuple[int | str, ...] | None = None
    first: int = EVERYTHING[0]
    last: int = EVERYTHING[1]


class Pushed(Struct, frozen=True):
    """What a filter says of columns; `columns`: all that it reads, None: not known."""

    conditions: tuple[Condition, ...] = ()
    columns: frozenset[str] | None = frozenset()

    @property
    def stores(self) -> frozenset[str] | None:
        """The stores whose rows may pass, None: all."""
        listed = [one.values for one in self.conditions if one.column == "store" and one.values is not None]
        return frozenset.intersection(*(frozenset(map(str, names)) for names in listed)) if listed else None

    def selection(self, *, masked: bool) -> Selection:
        """Return filters that every row passes that passes this one; `masked`: values are replaced before it."""
        chosen = Selection()
        for condition in self.conditions:
            if not masked or condition.column in RANGED | _PLAIN:
                chosen = _chosen(chosen, condition)
        return _bounded(chosen)


def pushed(expression: pc.Expression | None) -> Pushed:
    """Return what an expression says of columns."""
    if expression is None:
        return Pushed()
    try:
        root, names = _parse(expression)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, pa.ArrowException):
        return Pushed((), None)
    return Pushed(tuple(_conditions(root)), names)


def _parse(expression: pc.Expression) -> tuple[Any, frozenset[str]]:
    """Return the root of an expression, and the names of all columns in it.

    :raises ValueError: a node that is not known. Others: it is serialized in another way.
    """
    _, (content,) = expression.__reduce__()
    batch = pyarrow.ipc.open_file(content).get_batch(0)
    text = batch.schema.to_string(show_schema_metadata=True, truncate_metadata=False)
    lines = text.partition(_MARK)[2].strip().splitlines()
    stack, names = [_Call("")], set()
    for line in lines:
        kind, _, quoted = line.partition(": ")
        word = quoted.removeprefix("'").removesuffix("'")
        if kind == "call":
            stack.append(_Call(word))
        elif kind == "end":
            ended = stack.pop()
            stack[-1].arguments.append(ended)
        elif kind == "field_ref":
            names.add(word)
            stack[-1].arguments.append(_Field(word))
        elif kind == "literal":
            stack[-1].arguments.append(_Literal(_value(batch.column(int(word))[0])))
        elif kind == "options":
            options = batch.column(int(word))[0]
            if "value_set" in options:
                stack[-1].options["value_set"] = [_value(one) for one in options["value_set"].values]
        else:
            raise ValueError(f"{kind}: not known")
    (top,) = stack
    (root,) = top.arguments
    return root, frozenset(names)


def _value(scalar: pa.Scalar) -> int | str | None:
    if pa.types.is_timestamp(scalar.type):
        return scalar.cast(pa.timestamp("us", scalar.type.tz), safe=False).value if scalar.is_valid else None
    value = scalar.as_py()
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _conditions(node: Any) -> Iterator[Condition]:
    """Yield conditions that hold where an expression is true."""
    match node:
        case _Call(name, arguments) if name in _AND:
            for one in arguments:
                yield from _conditions(one)
        case _Call("if_else", [_, then, _Literal(None)]):
            yield from _conditions(then)
        case _Call(name, arguments) if name in _OR:
            found = [list(_conditions(one)) for one in arguments]
            columns = {one.column for some in found for one in some}
            if all(len(some) == 1 and some[0].values is not None for some in found) and len(columns) == 1:
                values = dict.fromkeys(value for some in found for value in some[0].values or ())
                yield Condition(columns.pop(), tuple(values))
        case _Call("is_in", [_Field(column)], {"value_set": values}):
            yield Condition(column, tuple(value for value in values if value is not None))
        case _Call(name, [_Literal() as value, _Field() as column]) if name in _MIRRORED:
            yield from _conditions(_Call(_MIRRORED[name], [column, value]))
        case _Call("equal", [_Field(column), _Literal(int() | str() as value)]):
            yield Condition(column, (value,))
        case _Call(name, [_Field(column), _Literal(int() as value)]) if name in _MIRRORED:
            first, last = EVERYTHING
            if name in ("greater", "greater_equal"):
                first = value + (name == "greater")
            else:
                last = value + (name == "less_equal")
            yield Condition(column, None, first, last)


def _chosen(selection: Selection, condition: Condition) -> Selection:
    """Return a selection narrowed by a condition, as far as there is a filter for it."""
    column, values = condition.column, condition.values
    if column in RANGED:
        numbers = [value for value in values or () if isinstance(value, int)]
        first, last = (min(numbers), max(numbers) + 1) if numbers else (condition.first, condition.last)
        return narrowed(selection, column, first, last)
    if not values or len(values) > _MOST_VALUES:
        return selection
    if column == "offset_msg_id" and all(offset_place(str(one)) is not None for one in values):
        return replace(selection, ids=tuple(map(str, values)))
    if column == "born_host" and len(values) == 1:
        try:
            return replace(selection, host=(parse_host(str(values[0]))[0], None))
        except ValueError:
            return selection
    return limited(selection, column, sorted(values, key=str))


def _bounded(selection: Selection) -> Selection:
    """Return a selection whose open bounds are none, and without those that units of queues do not answer.

    A record that is in no queue, such as one that ends a transaction, says queue offset 0.
    """
    first, last = EVERYTHING
    if selection.since is not None and selection.since <= first:
        selection = replace(selection, since=None)
    if selection.until is not None and selection.until >= last - 1:
        selection = replace(selection, until=None)
    if selection.queue_offsets is not None and selection.queue_offsets[0] <= 0:
        selection = replace(selection, queue_offsets=None)
    if selection.offsets is not None:
        start, end = selection.offsets
        selection = replace(selection, offsets=(max(0, start), max(0, end)))
    return selection


def keys_in(selection: Selection, keys: Sequence[str]) -> Selection:
    """Return a selection narrowed to records with one of some keys."""
    return replace(selection, keys=tuple(keys)) if keys and len(keys) <= _MOST_VALUES else selection
