"""CONTRIBUTING.md: what its examples add is in the files that they name, and what it tells to run exists."""

import re
from importlib.util import find_spec

from tests.support.samples import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_line_that_an_example_adds_stands_in_the_file_that_it_names() -> None:
    examples = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 6
    lines: list[str] = []
    for line in "".join(examples).splitlines():
        if line.startswith("+++ "):
            lines = (ROOT / line[4:]).read_text(encoding="utf-8").splitlines()
        else:
            assert line.startswith("+") and line[1:] in lines, line


def test_modules_files_and_folders_that_it_names_exist() -> None:
    modules = re.findall(r"python -m ([\w.]+)", PAGE)
    assert len(modules) > 8
    assert [name for name in modules if name != "build" and find_spec(name.replace("NAME", "eras")) is None] == []
    files = re.findall(
        r"(?<![\w/~.*-])((?:docs|install|rmqinspect|samples|tests|schemas)/[\w/.-]*[\w/])(?![\w{])", PAGE
    )
    assert [name for name in files if "NAME" not in name and not (ROOT / name).exists()] == []
