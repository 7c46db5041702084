"""One struct per answer: its JSON, its page in docs/, and the reader of a file that has it come from the same fields.

    class Account(Part, frozen=True):
        base: Annotated[int, means("physical offset of its first byte")]

    as_object(account)          {"base": 65536}                                      what json.dumps writes
    page_rows(Account)          ("base", "number", "physical offset of its …")       a row of the page
    typed({"base": ""}, …)      ValueError: Expected `int`, got `str` - at `$.base`

Fields keep the order of the struct. A field that earlier documents lack has a default.
"""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

_KINDS: dict[Any, str] = {
    str: "text",
    Literal: "text",
    int: "number",
    bool: "boolean",
    list: "list",
    tuple: "list",
    dict: "object",
    NoneType: "null",
}


class Part(msgspec.Struct, frozen=True):
    """An object of a document."""


AnyPart = TypeVar("AnyPart", bound=msgspec.Struct)


def means(text: str) -> msgspec.Meta:
    """Return what a field means, with its unit, for its annotation."""
    return msgspec.Meta(description=text)


def as_object(part: msgspec.Struct) -> dict[str, Any]:
    """Return an object and all below it as `json.dumps` takes them."""
    found: dict[str, Any] = msgspec.to_builtins(part)
    return found


def typed(value: Any, kind: type[AnyPart]) -> AnyPart:
    """Return what `json.loads` gave as a struct; fields that it does not know are left out.

    :raises ValueError: a field is missing, or is not what it should be; the message has its path.
    """
    return msgspec.convert(_printable(value), kind)


def _printable(value: Any) -> Any:
    """Return a value whose texts can be printed: JSON may spell lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable(name): _printable(item) for name, item in value.items()}
    return value


# --- the page -------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of a page in docs/: `a.b[].c` is field c of each object in the list b of the object a."""

    path: str
    kind: str  # text, number or null
    meaning: str


def page_rows(kind: type[msgspec.Struct], path: str = "") -> Iterator[Row]:
    """Yield a row for each field of a struct, and behind it those of the objects in it.

    The names of a `dict` depend on the evidence: they are `*`.
    """
    for name, hint in get_type_hints(kind, include_extras=True).items():
        yield from _rows(hint, f"{path}.{name}" if path else name)


def _rows(hint: Any, path: str) -> Iterator[Row]:
    described = _annotations(hint)
    if described:
        yield Row(path, " or ".join(dict.fromkeys(_kind(one) for one in _members(hint))), described[0])
    for member in _members(hint):
        origin, inner = get_origin(member), get_args(member)
        if isinstance(member, type) and issubclass(member, msgspec.Struct):
            yield from page_rows(member, path)
        elif origin in (list, tuple):
            yield from _rows(inner[0], f"{path}[]")
        elif origin is dict:
            yield from _rows(inner[1], f"{path}.*")


def _annotations(hint: Any) -> list[str]:
    """Return what an annotation says of its field; the members of a union may have rules of their own."""
    metas = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return [meta.description for meta in metas if getattr(meta, "description", None)]


def _members(hint: Any) -> Iterator[Any]:
    """Yield the types that a hint allows, without what is said of them."""
    if get_origin(hint) is Annotated:
        yield from _members(get_args(hint)[0])
    elif get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _kind(member: Any) -> str:
    return _KINDS.get(get_origin(member) or member, "object")
