r"""`python -m docs.build.man > docs/rmqinspect.1` writes the man page from click's commands, which a wheel installs.

Roff reads lines: one that begins with a point or an apostrophe is a request, and a backslash begins an escape. Every
text goes through `_roff`, which leaves neither; the requests of this page are written here and nowhere else.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from docs.build.commands import PROGRAM, Command, Option, Paragraph, commands, program
from rmqinspect.cli import MEANINGS

ROOT = Path(__file__).resolve().parents[2]

# Typewriter characters that typesetters replace by others, which no shell takes.
_PLAIN = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}

_DATED = r"^## \[{}\] - (\d{{4}}-\d\d-\d\d)$"


def page() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def release() -> tuple[str, str]:
    """Return the version in pyproject.toml, and the date that CHANGELOG.md has for it; "" before there is one."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.search(_DATED.format(re.escape(version)), changes, re.MULTILINE)
    return version, dated[1] if dated else ""


def _lines() -> Iterator[str]:
    version, date = release()
    whole, verbs = program(), commands()
    yield r".\" Written by: python -m docs.build.man > docs/rmqinspect.1"
    yield f'.TH {PROGRAM.upper()} 1 "{date}" "{PROGRAM} {version}" "User Commands"'
    yield ".ad l"
    yield ".nh"
    yield ".SH NAME"
    yield f"{PROGRAM} \\- {_roff(_first_lower(whole.purpose.rstrip('.')))}"
    yield ".SH SYNOPSIS"
    yield from (f".B {_roff(one.usage)}\n.br" for one in verbs)
    yield f".B {PROGRAM} \\-\\-version"
    yield ".SH DESCRIPTION"
    yield from _prose(whole.paragraphs[:-1])
    yield ".SH COMMANDS"
    for one in verbs:
        yield from (".TP", f".B {_roff(one.name)}", _roff(one.purpose))
    for one in verbs:
        yield from _command(one)
    yield ".SH EXIT STATUS"
    for status, meaning in MEANINGS.items():
        yield from (".TP", f".B {status.value}", _marked(meaning))
    yield ".SH EXAMPLES"
    yield from _prose(whole.paragraphs[-1:])
    yield ".SH SEE ALSO"
    yield f"{_roff(f'{PROGRAM} COMMAND --help')}, and the folder docs of the project."


def _command(one: Command) -> Iterator[str]:
    yield f'.SH "{one.name.upper()}"'
    yield f".B {_roff(one.usage)}"
    yield from _prose(one.paragraphs)
    for option in one.options:
        yield from (".TP", _names(option), _roff(option.means))


def _names(option: Option) -> str:
    """Return the line above the words of an option: its names bold, its value slanted."""
    names = ", ".join(rf"\fB{_roff(name)}\fR" for name in option.names)
    return names + (rf" \fI{_roff(option.takes)}\fR" if option.takes else "")


def _prose(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    for part in paragraphs:
        if part.as_is:
            yield from (".PP", ".nf", *map(_roff, part.lines), ".fi")
        else:
            yield from (".PP", _roff(part.text))


def _marked(text: str) -> str:
    """Return a text of Markdown, whose words in backticks become bold."""
    parts = text.split("`")
    return "".join(rf"\fB{_roff(part)}\fR" if number % 2 else _roff(part) for number, part in enumerate(parts))


def _roff(text: str) -> str:
    """Return a text that roff prints as it is, in one line."""
    safe = "".join(_PLAIN.get(one) or (one if one.isascii() else f"\\[u{ord(one):04X}]") for one in text)
    return rf"\&{safe}" if safe[:1] in (".", " ") else safe


def _first_lower(text: str) -> str:
    return text[:1].lower() + text[1:]


if __name__ == "__main__":
    print(page(), end="")
