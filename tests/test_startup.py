"""What a command imports, in a process of its own: counted, for a clock would tell of the machine."""

import json
import subprocess
import sys

import pytest

from tests.support.samples import sample

_MOST_MODULES = 450
"""Modules that `info` of a sample needs at most, of this package and of all others."""

_RUN = """
import json, os, sys
from rmqinspect.__main__ import main
sys.stdout = open(os.devnull, "w")
main()
print(json.dumps(list(sys.modules)), file=sys.__stdout__)
"""


def modules_of(*words: str) -> set[str]:
    """Return the modules that are there behind a command."""
    ran = subprocess.run([sys.executable, "-c", _RUN, *words], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize("command", ["info", "verify", "forecast"])
def test_a_command_that_shows_no_table_needs_no_arrow(command: str) -> None:
    found = modules_of(command, str(sample("healthy-5.5.0")))
    assert not found & {"pyarrow", "numpy.ma", "importlib.metadata", "email", "zipfile", "subprocess", "zoneinfo"}
    assert command != "info" or len(found) <= _MOST_MODULES


def test_a_command_that_shows_a_table_needs_arrow() -> None:
    assert "pyarrow" in modules_of("decode", str(sample("healthy-5.5.0")))


@pytest.mark.parametrize("command", ["verify", "export", "decode"])
def test_a_help_text_needs_no_library_but_click(command: str) -> None:
    found = modules_of(command, "--help")
    assert "click" in found
    assert not found & {"construct", "msgspec", "numpy", "pyarrow"}
