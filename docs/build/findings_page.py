"""`python -m docs.build.findings_page > docs/findings.md` writes the page of all findings."""

from collections.abc import Iterator

from rmqinspect.commands import fill_command
from rmqinspect.verify.codes import CODES, Code, fill_do, fill_mend

_HEAD = """\
# What verify finds

Written by `python -m docs.build.findings_page > docs/findings.md` from the table that `rmqinspect verify
--list-checks` and `rmqinspect explain` print. Codes are stable.

- Severity: `error`: something is lost or wrong, or a reader gets wrong answers. `warning`: suspicious. `info`: worth
  knowing.
- Level: the lowest `rmqinspect verify --level` that runs the check.
- Startup: what the broker does before it takes messages: it loads the files and scans part of the log (recovery). The
  shutdown before it counts as unclean if the file `abort` exists.
- Versions: `all` stands for RocketMQ 4.0.0 to 5.5.0.
"""


def page() -> str:
    """Return the page in Markdown."""
    overview = ["| code | severity | level | rule |", "|---|---|---|---|"]
    for code in CODES:
        overview.append(f"| [{code.code}](#{code.code.lower()}) | {code.severity} | {code.level} | {code.rule} |")
    sections = ("\n".join(_section(code)) for code in CODES)
    return "\n".join([_HEAD, *overview, ""]) + "\n" + "\n\n".join(sections) + "\n"


def _section(code: Code) -> Iterator[str]:
    yield f"## {code.code}\n"
    yield f"{code.rule} ({code.severity}, level {code.level})\n"
    yield f"- cause: {code.cause}"
    yield f"- broker: {code.broker_effect}"
    if do := "; ".join(filter(None, (fill_do(code.do), fill_mend(code.mend)))):
        yield f"- do: {do}"
    yield f"- next: `{fill_command(code.next)}`\n"
    yield "| versions | what a broker does |"
    yield "|---|---|"
    yield from (f"| {versions} | {effect} |" for versions, effect in code.eras)


if __name__ == "__main__":
    print(page(), end="")
