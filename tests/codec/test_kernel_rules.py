"""All loops of the package keep the rules of `codec.kernels`, as far as their source shows it."""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from rmqinspect.codec import kernels
from rmqinspect.codec.compile_all import all_kernels

KERNELS = all_kernels()
FUNCTIONS = {
    f"{function.__module__}.{function.__qualname__}": function
    for function in [*(kernel.function for kernel in KERNELS.values()), *kernels._inlined]
    if function.__module__.startswith("rmqinspect.")
}
# The readers of numbers, and what stands for a C function: they are tested byte by byte in test_kernels.
PRIMITIVES = {f"{kernels.__name__}.{name}" for name in ("crc32_of", "copy_bytes", "find_bytes")}
WIDTHS = {2, 3, 4, 8}  # bytes that the readers of numbers take, and those of a character
BUILTINS = {"abs", "len", "max", "min", "range"}
# What a loop is made of: numbers, names, items of arrays, and control.
NODES = (
    *(ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr),
    *(ast.For, ast.While, ast.If, ast.IfExp, ast.Break, ast.Continue, ast.Call, ast.Subscript, ast.Tuple),
    *(ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.expr_context),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def body_of(function: FunctionType) -> ast.FunctionDef:
    """Return the source, without decorators, annotations and docstring."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list, tree.returns = [], None
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
        if not (isinstance(node, NODES) or (isinstance(node, ast.Attribute) and node.attr == "shape")):
            yield f"line {getattr(node, 'lineno', 0)}: {type(node).__name__}"
        elif isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and is_callable(function, node.func.id)) or node.keywords:
                yield f"line {node.lineno}: calls {ast.unparse(node)}"
            if function.__module__ != kernels.__name__ and any(map(adds_a_number, node.args)):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Subscript):
            if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) not in written:
                yield f"line {node.lineno}: writes to {ast.unparse(node)}"
            if function.__module__ != kernels.__name__ and adds_a_number(node.slice):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and type(node.value) not in (int, bool):
            yield f"line {node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Div | ast.Pow | ast.MatMult):
            yield type(node).__name__
        elif isinstance(node, ast.Name) and node.id in function.__globals__:
            value = function.__globals__[node.id]
            if type(value) is not int and not (isinstance(value, FunctionType) and value in kernels._inlined):
                yield f"line {node.lineno}: {node.id} is {value!r}"


def adds_a_number(tree: ast.AST) -> bool:
    """Return whether a place is computed with a number that may be one of a layout; those belong to `place_of`."""
    sums = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)]
    added = [side.value for node in sums for side in (node.left, node.right) if isinstance(side, ast.Constant)]
    return not {0, 1, *WIDTHS}.issuperset(added)


def is_known(hint: Any) -> bool:
    """Return whether it is `int` or an array of integers, of any of some types in a function that is inlined."""
    if hint is int:
        return True
    if isinstance(hint, UnionType):
        return all(map(is_known, get_args(hint)))
    array = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(array) is np.ndarray and np.dtype(get_args(get_args(array)[1])[0]).kind in "iu"


def is_callable(function: FunctionType, name: str) -> bool:
    value = function.__globals__.get(name, getattr(builtins, name, None))
    return value in kernels._inlined if name in function.__globals__ else name in BUILTINS


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - PRIMITIVES))
def test_a_loop_keeps_the_rules(name: str) -> None:
    assert list(breaches(FUNCTIONS[name])) == []


def bad_call(raw: kernels.Bytes) -> int:
    return int(raw[0])


def bad_write(raw: kernels.Bytes) -> None:
    raw[0] = 1


def bad_number(raw: kernels.Bytes, at: int) -> int:
    value: int = raw[at + 20]
    return value


def bad_type(raw: bytes) -> int:
    return raw[0]


def bad_array(raw: kernels.Bytes) -> int:
    return len([one for one in raw])  # noqa: C416  what it is about


def bad_global(raw: kernels.Bytes) -> int:
    return len(BUILTINS)


@pytest.mark.parametrize("function", [bad_call, bad_write, bad_number, bad_type, bad_array, bad_global])
def test_a_breach_is_seen(function: Callable[..., Any]) -> None:
    assert isinstance(function, FunctionType)
    assert list(breaches(function))
