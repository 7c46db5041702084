"""The list of what is installed: valid CycloneDX, with what runs and without what develops."""

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.samples import ROOT

SCRIPT = runpy.run_path(str(ROOT / "install" / "sbom.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("metrics", "rocksdb", "sql")


def required(lines: list[str]) -> set[str]:
    """Return the normalised names of requirements."""
    return {SCRIPT["_plain"](re.match(r"[\w.-]+", line)[0]) for line in lines}  # type: ignore[index]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    made: dict[str, Any] = SCRIPT["sbom"](Path(sys.executable), EXTRAS)
    return made


def test_it_is_valid_and_names_the_version(document: dict[str, Any]) -> None:
    assert SCRIPT["problems"](json.dumps(document)) is None
    assert (
        SCRIPT["problems"](json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": 1}]}))
        is not None
    )
    program = document["metadata"]["component"]
    assert (document["bomFormat"], program["name"], program["version"]) == (
        "CycloneDX",
        "rmqinspect",
        PROJECT["version"],
    )
    assert "file://" not in json.dumps(document)


def test_it_has_what_runs_with_versions_and_licences_and_not_what_develops(document: dict[str, Any]) -> None:
    parts = {SCRIPT["_plain"](part["name"]): part for part in document["components"]}
    asked = required(PROJECT["dependencies"])
    for extra in EXTRAS:
        asked |= required(PROJECT["optional-dependencies"][extra])
    assert asked <= parts.keys()
    assert {"py4j", "markdown-it-py"} <= parts.keys()  # needed by what is needed
    assert not parts.keys() & {"pytest", "mypy", "ruff", "hypothesis", "cyclonedx-bom", "cython", "rmqinspect"}
    assert all(part["version"] and part["purl"].startswith("pkg:pypi/") for part in parts.values())
    assert [name for name, part in parts.items() if not part.get("licenses")] == []


def test_what_needs_what_is_a_tree_from_the_program_on(document: dict[str, Any]) -> None:
    below = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    known = {part["bom-ref"] for part in document["components"]}
    root = document["metadata"]["component"]["bom-ref"]
    assert below.keys() == known | {root}
    reached, pending = set(), [root]
    while pending:
        one = pending.pop()
        reached.add(one)
        pending += [ref for ref in below[one] if ref not in reached]
    assert reached == below.keys()


def test_an_extra_that_is_none_and_what_is_not_installed_are_told() -> None:
    with pytest.raises(ValueError, match="no extra spark; there are: dev, docs, metrics, rocksdb, sql"):
        SCRIPT["sbom"](Path(sys.executable), ["spark"])
