"""All loops keep the rules of `rmqinspect.loops`, as far as their source and their types for C show it."""

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from rmqinspect.loops import arrays, loads
from rmqinspect.loops.arrays import Bytes
from tests.support.loop_ways import FOLDER, loops, sources

LOOPS = loops()
KNOWN = [*LOOPS.values(), *(value for value in vars(loads).values() if isinstance(value, FunctionType))]
WIDTHS = {2, 3, 4, 8}  # bytes that the readers of numbers take, and those of a character
BUILTINS = {"abs", "len", "max", "min", "range"}
# What a loop is made of: numbers, names, items of arrays, and control.
NODES = (
    *(ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr),
    *(ast.For, ast.While, ast.If, ast.IfExp, ast.Break, ast.Continue, ast.Call, ast.Subscript, ast.Tuple),
    *(ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.expr_context),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.With, ast.withitem),
)


def body_of(function: FunctionType) -> ast.FunctionDef:
    """Return the source, without annotations and docstring."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    tree.returns = None
    for parameter in tree.args.args:
        parameter.annotation = None
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return tree


def breaches(function: FunctionType) -> Iterator[str]:
    """Yield what is against the rules."""
    hints = get_type_hints(function, include_extras=True)
    result = hints.pop("return")
    if result not in (int, bool, type(None)):
        yield f"returns {result}"
    written = {name for name, hint in hints.items() if "written" in get_args(hint)[1:]}
    yield from (f"{name} is of type {hint}" for name, hint in hints.items() if not is_known(hint))
    for node in ast.walk(body_of(function)):
        if not (isinstance(node, NODES) or (isinstance(node, ast.Attribute) and node.attr in ("shape", "nogil"))):
            yield f"line {getattr(node, 'lineno', 0)}: {type(node).__name__}"
        elif isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and is_callable(function, node.func.id)) or node.keywords:
                yield f"line {node.lineno}: calls {ast.unparse(node)}"
            if any(map(adds_a_number, node.args)):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Subscript):
            if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) not in written:
                yield f"line {node.lineno}: writes to {ast.unparse(node)}"
            if adds_a_number(node.slice):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and type(node.value) not in (int, bool):
            yield f"line {node.lineno}: {node.value!r}"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift) and isinstance(node.left, ast.Constant):
            yield f"line {node.lineno}: {ast.unparse(node)}: in C it has 32 bits"
        elif isinstance(node, ast.Div | ast.Pow | ast.MatMult):
            yield type(node).__name__
        elif isinstance(node, ast.Name) and node.id in function.__globals__ and node.id != "cython":
            value = function.__globals__[node.id]
            if type(value) is not int and inspect.unwrap(value) not in KNOWN:
                yield f"line {node.lineno}: {node.id} is {value!r}"


def adds_a_number(tree: ast.AST) -> bool:
    """Return whether a place is computed with a number that may be one of a layout; those belong to `place_of`."""
    sums = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)]
    added = [side.value for node in sums for side in (node.left, node.right) if isinstance(side, ast.Constant)]
    return not {0, 1, *WIDTHS}.issuperset(added)


def is_known(hint: Any) -> bool:
    """Return whether it is `int` or an array of integers, of any of some types in a function that loops call."""
    if hint is int:
        return True
    if isinstance(hint, UnionType):
        return all(map(is_known, get_args(hint)))
    array = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(array) is np.ndarray and np.dtype(get_args(get_args(array)[1])[0]).kind in "iu"


def is_callable(function: FunctionType, name: str) -> bool:
    value: Any = function.__globals__.get(name, getattr(builtins, name, None))
    return inspect.unwrap(value) in KNOWN if name in function.__globals__ else name in BUILTINS


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_a_loop_keeps_the_rules(name: str) -> None:
    assert list(breaches(LOOPS[name])) == []


def bad_call(raw: Bytes) -> int:
    return int(raw[0])


def bad_write(raw: Bytes) -> None:
    raw[0] = 1


def bad_number(raw: Bytes, at: int) -> int:
    value: int = raw[at + 20]
    return value


def bad_type(raw: bytes) -> int:
    return raw[0]


def bad_array(raw: Bytes) -> int:
    return len([one for one in raw])  # noqa: C416  what it is about


def bad_shift(raw: Bytes) -> int:
    return 1 << len(raw)


def bad_global(raw: Bytes) -> int:
    return len(BUILTINS)


@pytest.mark.parametrize("function", [bad_call, bad_write, bad_number, bad_type, bad_array, bad_shift, bad_global])
def test_a_breach_is_seen(function: Callable[..., Any]) -> None:
    assert isinstance(function, FunctionType)
    assert list(breaches(function))


# --- the types for C ----------------------------------------------------------------------------

DECLARED = re.compile(r"^(?:@cython\.locals\((?P<locals>[^)]*)\)\n)?cp?def \w+ (?P<name>\w+)\((?P<given>[^)]*)\)", re.M)
NAMES = {id(value): name for name, value in vars(arrays).items()}


def type_of(function: FunctionType, name: str) -> str:
    """Return how the type of a parameter is spelled in a .pxd."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    (hint,) = (one.annotation for one in tree.args.args if one.arg == name)
    assert hint is not None
    spelled = ast.unparse(hint)
    return {"int": "i64", "Ints | Int32s": "Ascending"}.get(spelled, spelled)


@pytest.mark.parametrize("short", sorted(sources()))
def test_the_types_for_c_are_those_of_the_source(short: str) -> None:
    text = (FOLDER / f"{short}.pxd").read_text()
    declared = {found["name"]: found for found in DECLARED.finditer(text)}
    functions = {name.partition(".")[2]: function for name, function in LOOPS.items() if name.startswith(f"{short}.")}
    assert declared.keys() == functions.keys()
    for name, function in functions.items():
        parameters = list(inspect.signature(function).parameters)
        assert declared[name]["given"].split(", ") == [f"{type_of(function, one)} {one}" for one in parameters], name
        stored = {
            node.id
            for node in ast.walk(body_of(function))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        kept = {
            one.partition("=")[0]: one.partition("=")[2] for one in re.split(r",\s*", declared[name]["locals"] or "")
        }
        # Narrower variables wrap around where Python's do not.
        assert {one for one in kept if one} == stored - set(parameters), name
        assert {kind for one, kind in kept.items() if one} <= {"i64"}
