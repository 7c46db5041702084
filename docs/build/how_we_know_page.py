"""`python -m docs.build.how_we_know_page > docs/how-we-know.md` says what is tested against what, from the tests."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.oracle import cases, is_damaged
from tests.support.real_brokers import RELEASES

_ROOT = Path(__file__).parents[2]
_TESTS = _ROOT / "tests"

_PAGE = """\
# How we know

Written by `python -m docs.build.how_we_know_page > docs/how-we-know.md` from the tests themselves.

rmqinspect says what a broker would do without being one. So its answers are compared with what brokers did, and never
with what we expect of them. Three kinds of tests do that:

1. **Recorded answers.** {stores} stores that RocketMQ wrote, each with what RocketMQ's own code said about it: what it
   loaded, where it ended the log, every message that it served. No value in these answers was computed by rmqinspect,
   and none is ever edited. [What they hold](../tests/data/README.md).
2. **Running stores.** A test writes or damages a store, rmqinspect says what will become of it, and RocketMQ's own
   store of {releases} is started on it and asked. Random damage is
   played in the same way. [How, and with what result](../tests/broker/README.md).
3. **Another reader of the same bytes.** Readers that Kaitai's compiler makes of [the formats](formats.md), DuckDB,
   pandas and Spark on what was exported, HDFS and an S3 server for what is read from there.

Every rule of a broker that rmqinspect knows was read in its source, release by release; docstrings and
[the releases](eras.md) name class and method.

## Stores with recorded answers

{recorded}

A damaged store was opened by the release that wrote it, or by another one, which its name then tells. There is one more
store of the broker of rocketmq-rust, an independent implementation, with what its client was told.

## Tests that start real stores

{running}

## Tests that compare with recorded answers

{compared}

## Tests without a broker

What no broker can be asked is held by rules: random bytes raise no error but ours, a store that is cut at any byte
gives the beginning of its rows, each flipped bit of a small store is found or is on the list of bits that nothing
protects.

{properties}

What is not known, and what is known to be wrong, is in [limits](limits.md).
"""

_RELEASE = re.compile(r"\d+\.\d+\.\d+")


def page() -> str:
    """Return the page in Markdown."""
    tests = {path: path.read_text(encoding="utf-8") for path in sorted(_TESTS.rglob("test_*.py"))}
    running = [path for path, text in tests.items() if "real_brokers" in text]
    compared = [path for path, text in tests.items() if path not in running and re.search(r"\boracle\.truth\b", text)]
    return _PAGE.format(
        stores=len(cases("crash")) + len(cases("broker")),
        releases=f"{', '.join(RELEASES[:-1])} and {RELEASES[-1]}",
        recorded="\n".join(_recorded()),
        running="\n".join(_listed(running)),
        compared="\n".join(_listed(compared)),
        properties="\n".join(_listed(sorted((_TESTS / "properties").glob("test_*.py")))),
    )


def _recorded() -> Iterator[str]:
    """Yield a table: of each release that wrote stores, how many there are of each kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for name in cases("crash"):
        counts[_writer(name), "damaged" if is_damaged(name) else "sound"] += 1
    for name in cases("broker"):
        counts[_writer(name), "broker"] += 1
    yield "| written by | store alone, undamaged | store alone, damaged | whole broker with clients |"
    yield "|---|---|---|---|"
    for release in sorted({release for release, _ in counts}, key=lambda text: [*map(int, text.split("."))]):
        cells = [str(counts[release, kind] or "") for kind in ("sound", "damaged", "broker")]
        yield f"| {release} | {' | '.join(cells)} |"


def _writer(name: str) -> str:
    """Return the release that wrote a store: the first one in its name."""
    found = _RELEASE.search(name)
    assert found is not None
    return found[0]


def _listed(paths: list[Path]) -> Iterator[str]:
    """Yield a table of test files, each with the first paragraph of its docstring."""
    yield "| tests | what they hold |"
    yield "|---|---|"
    for path in paths:
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first = " ".join(about.split("\n\n")[0].split())
        yield f"| `{path.relative_to(_ROOT).as_posix()}` | {first.replace('|', '&#124;')} |"


if __name__ == "__main__":
    print(page(), end="")
