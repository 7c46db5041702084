"""Pages of docs/ that are generated from the code are up to date."""

import subprocess
import sys

import pytest

from tests.support.samples import ROOT

PAGES = sorted(path.stem.removesuffix("_page") for path in (ROOT / "docs" / "build").glob("*_page.py"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_command_that_it_names_prints(name: str) -> None:
    command = f"python -m docs.build.{name}_page > docs/{name}.md"
    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    arguments = [sys.executable, "-m", f"docs.build.{name}_page"]
    printed = subprocess.run(arguments, cwd=ROOT, capture_output=True, check=True, encoding="utf-8").stdout
    assert written == printed, f"run: {command}"
    assert command in printed
