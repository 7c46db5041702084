"""`python -m docs.build.limits_page > docs/limits.md` gathers what the other pages say of their limits."""

import re
from collections.abc import Iterator
from pathlib import Path

_DOCS = Path(__file__).parents[1]
_HEADINGS = re.compile(r"^## (Limits|What (?:it |no )?(?:cannot|check can) .+)$", re.MULTILINE)
_KNOWN = "Known, and not right"  # begins what tests/broker/README.md says of salvage

_HEAD = """\
# Limits

Written by `python -m docs.build.limits_page > docs/limits.md` from the sections of the other pages that say what a
command cannot know, cannot see or does not do. What was compared with real brokers, and what was not, is in
[how we know](how-we-know.md).

rmqinspect reads a store as it lies there. It proves nothing about the time before: an intact store may have been
changed by someone who wrote new checksums, and a message that is in no file has left no trace of having been there, or
not.
"""


def page() -> str:
    """Return the page in Markdown."""
    sections = [section for path in sorted(_DOCS.glob("*.md")) if path.name != "limits.md" for section in _of(path)]
    return "\n\n".join([_HEAD.rstrip(), *sections, _of_salvage()]) + "\n"


def _of(path: Path) -> Iterator[str]:
    """Yield the sections of a page about limits, each below the title of the page."""
    text = path.read_text(encoding="utf-8")
    title = text.split("\n", 1)[0].removeprefix("# ")
    for heading in _HEADINGS.finditer(text):
        body = re.split(r"^## ", text[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip()
        own = re.sub(r"\]\(#", f"]({path.name}#", body)  # a link inside of that page
        anchor = heading[1].lower().replace(" ", "-")
        yield f"## {title}\n\n*{heading[1]}*, from [{path.name}]({path.name}#{anchor}):\n\n{own}"


def _of_salvage() -> str:
    """Return what real stores were seen to do otherwise with salvaged stores, from the notes of the tests."""
    text = (_DOCS.parent / "tests" / "broker" / "README.md").read_text(encoding="utf-8")
    body = text[text.index(_KNOWN) :].split("\n## ", 1)[0].strip()
    heading = "## Salvaged stores that real brokers serve otherwise"
    return f"{heading}\n\nFrom [the tests](../tests/broker/README.md):\n\n{body}"


if __name__ == "__main__":
    print(page(), end="")
