"""The names that `import rmqinspect` offers: lazy, documented, and their examples true."""

import doctest
import inspect
import subprocess
import sys

import pytest

import rmqinspect
from tests.support.samples import ROOT

FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def failures(text: str, name: str) -> str:
    """Run the examples of a text, at least one; return what went wrong."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    assert test.examples, f"{name} has no example"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize("name", rmqinspect.__all__)
def test_a_public_name_says_what_it_is_with_an_example_that_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert failures(inspect.getdoc(getattr(rmqinspect, name)) or "", name) == ""


def test_the_examples_of_the_page_hold_and_it_names_every_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    # A fence would be taken for output.
    bare = "\n".join("" if line.startswith("```") else line for line in page.splitlines())
    assert failures(bare, "python.md") == ""
    rows = [line.split("`")[1].split("(")[0] for line in page.splitlines() if line.startswith("| `")]
    assert [row for row in rows if row in rmqinspect.__all__] == rows
    assert set(rows) == set(rmqinspect.__all__)


def test_the_names_are_those_that_are_listed_and_nothing_is_imported_before_its_use() -> None:
    assert set(rmqinspect._HOMES) == set(rmqinspect.__all__) <= set(dir(rmqinspect))
    assert not hasattr(rmqinspect, "verify_everything")
    heavy = ["numpy", "pyarrow", "construct", "click", "msgspec", "rich"]
    program = f"import sys, rmqinspect; rmqinspect.NotAStore; print([n for n in {heavy} if n in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"
