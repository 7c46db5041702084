"""`python -m docs.build.formats_page > docs/formats.md` writes the page of all layouts, field by field."""

from collections.abc import Iterator
from textwrap import fill
from typing import Any

from construct import Bytes, IfThenElse

from docs.build.kaitai import FORMATS, Format, type_of
from docs.build.layouts import Place, condition, places_of, type_name

_HEAD = """\
# The formats

Written by `python -m docs.build.formats_page > docs/formats.md` from the layouts in `schemas/`, which rmqinspect itself
reads with.

All integers are big-endian. `s` is signed, `u` unsigned, and the number its bytes: `s4`, `s8`. Where a field has
several offsets, it stands behind hosts of 8 bytes (IPv4) or 20 (IPv6). A `+` counts from the end of a field of variable
size. Times are milliseconds since 1970, if nothing else is said. `rmqinspect show STORE --at OFFSET` shows these fields
of one record with its bytes, and `rmqinspect explain FIELD` says more.

For each format there is a description in the language of [Kaitai Struct](https://kaitai.io). Its compiler makes readers
in C++, Go, Java, Python, Rust and other languages, and its viewers show a file as a tree beside its bytes:

```text
kaitai-struct-compiler -t java schemas/commitlog.ksy
ksv commitlog/00000000000000000000 schemas/commitlog.ksy
```

The files are generated from the same layouts. Tests compile them, and compare what they read from stores that real
brokers wrote, field by field, with what rmqinspect reads. Such a reader goes as far as the lengths lead it: it does
not check, and ends at the first damage. What a field of an intact store may hold, and what follows from another value,
is in [what verify finds](findings.md).
"""


def page() -> str:
    """Return the page in Markdown."""
    overview = ["| format | files | Kaitai |", "|---|---|---|"]
    overview += [f"| [{one.title}](#{_anchor(one.title)}) | {one.files} | {_link(one)} |" for one in FORMATS]
    return "\n".join([_HEAD, *overview, ""]) + "\n" + "\n\n".join("\n".join(_section(one)) for one in FORMATS) + "\n"


def _section(one: Format) -> Iterator[str]:
    yield f"## {one.title}\n"
    yield fill(f"{one.says} Files: {one.files}. Kaitai: {_link(one)}.", 120, break_long_words=False) + "\n"
    yield f"Source: {one.source}."
    for layout in one.layouts:
        yield f"\n### {one.name}: {type_name(layout)}\n"
        yield "| offset | size | type | field | RocketMQ | meaning |"
        yield "|---|---|---|---|---|---|"
        for field, place in places_of(layout):
            size = place.size if place.size[0].isdigit() else f"`{place.size}`"
            cells = (_offset(place), size, _type(field.construct), f"`{field.name}`")
            yield f"| {' | '.join(cells)} | {field.broker_name} | {field.meaning} |"


def _offset(place: Place) -> str:
    offsets = " or ".join(map(str, place.offsets))
    return f"`{place.behind}` +{offsets}" if place.behind else offsets


def _type(part: Any) -> str:
    match part:
        case IfThenElse():
            then, other = type_of(part.thensubcon), type_of(part.elsesubcon)
            return f"{then} if `{condition(part.condfunc)}`, else {other}"
        case Bytes():
            return "bytes"
    return type_of(part)


def _link(one: Format) -> str:
    return f"[{one.name}.ksy](../schemas/{one.name}.ksy)"


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")


if __name__ == "__main__":
    print(page(), end="")
