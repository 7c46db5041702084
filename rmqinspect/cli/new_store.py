"""What `rebuild` and `salvage` have in common: the options of a new store, and the screen of its proof."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli.options import CaseOptions
from rmqinspect.cli.parameters import option, option_group
from rmqinspect.system.uri import shown
from rmqinspect.text import group_digits

if TYPE_CHECKING:
    from rmqinspect.cli.verify_screen import Look
    from rmqinspect.tables.redact import Redaction
    from rmqinspect.verify.result import VerifyResult

LISTED = 6  # files and notes that are named; the others are counted


def output_option(written: str) -> Any:
    """Return the field for the folder of the new store; `written` says what is written beside it."""
    return option(
        "-o",
        "--output",
        default="",
        type=click.Path(),
        metavar="NEW",
        help=f"Folder of the new store; it must not exist. {written} beside it. Needed unless --dry-run is given.",
    )


def dry_run_option() -> Any:
    """Return the field for a run that makes no new store."""
    return option("--dry-run", is_flag=True, help="Print the same screen, write nothing; NEW need not be given.")


@option_group
class NewStoreOptions(CaseOptions):
    """A new store, and how the evidence comes into it."""

    output: str = output_option("NEW.receipt.json is written")
    link: bool = option(
        "--link",
        is_flag=True,
        help="Hard-link full segments instead of copying them, but for the last one, which a broker writes to.",
    )
    hash: str | None = option(
        "--hash", type=click.Choice(("sha256",)), help="Add the digest of every file that is brought to the receipt."
    )


def some(texts: Sequence[str]) -> str:
    """Return the first texts in a line, and how many more there are."""
    return "; ".join([*texts[:LISTED], *more(texts)])


def more(texts: Sequence[object]) -> Iterator[str]:
    """Yield how many more than are listed the receipt has, if any."""
    if len(texts) > LISTED:
        yield f"{group_digits(len(texts) - LISTED)} more in the receipt"


def proof_lines(
    proof: "VerifyResult | None", target: str, started: datetime, redact: "Redaction | None", look: "Look"
) -> list[str]:
    """Return the screen of `verify`, with that of the next start, of a new store; none of a dry run."""
    from rmqinspect.cli.verify_screen import screen
    from rmqinspect.verify.findings import redact_findings
    from rmqinspect.verify.report import report_of

    if proof is None:
        return []
    if redact is not None:
        proof.findings.rows[:] = redact_findings(proof.findings.rows, redact)
    return screen(report_of(proof, shown(target), started=started, written=False), "", look)
