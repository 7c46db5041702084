"""Where `verify` names a flipped bit, `show` of the same place names the same one."""

import json
import re
from functools import cache

import pytest
from click.testing import CliRunner

from rmqinspect.cli.verbs.show import command
from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle

# Damage of single bits, by the names of the cases. A skipped queue offset (CL-QUEUE-OFFSET) is no damage of
# the record that skips.
FLIPPED = ("flip_", "magic_", "phys_far_", "propslen_", "sysflag_v6_", "cq_beyond-", "cq_lost+magic_")
CASES = [name for name in oracle.cases("crash") if name.startswith(FLIPPED)]


@cache
def explained(name: str) -> list[tuple[Finding, str]]:
    """Return the findings that a flipped bit explains, and the clause that says so."""
    outcome = verify(open_store([str(oracle.store("crash", name))]), VerifyOptions())
    clauses = (
        (finding, re.search("one flipped bit.*?(?=; the (?:queues?|index) says?:|$)", finding.message))
        for finding in outcome.findings.rows
    )
    return [(finding, clause[0]) for finding, clause in clauses if clause is not None]


@pytest.mark.parametrize("name", CASES)
def test_show_names_the_flipped_bit_that_verify_names(name: str) -> None:
    root = oracle.store("crash", name)
    for finding, clause in explained(name):
        # A unit that points astray is shown with its record.
        at = finding.expected if finding.code == "CQ-BEYOND" else finding.physical_offset
        result = CliRunner().invoke(command, [str(root), "--at", str(at), "-f", "json"], standalone_mode=False)
        shown = json.loads(result.output)
        said = [row["note"] for row in shown["rows"]] + [fact["text"] for fact in shown["facts"]]
        assert [text for text in said if clause in text], (finding.code, clause, said)
        assert shown["damaged"]


def test_bits_of_every_kind_of_field_were_flipped() -> None:
    codes = {finding.code for name in CASES for finding, _ in explained(name)}
    assert codes >= {"CL-CRC-BODY", "CL-CRC-RECORD", "CL-MAGIC", "CL-LENGTH", "CL-OFFSET", "CQ-BEYOND"}
    assert all(explained(name) for name in CASES if name.startswith("flip_"))
