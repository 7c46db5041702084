"""List what is installed with rmqinspect, as CycloneDX: `python install/sbom.py -o rmqinspect.cdx.json`.

For an auditor, and for whoever has to find out whether a vulnerable library is on a host. The list has rmqinspect and
each library that it needs at run time in this environment, with version, licence and what needs what: those of every
installation, and with `--extras` those of these extras. What else is installed, such as the tools of the developers, is
left out. Two runs in one environment write the same bytes. Needs the package `cyclonedx-bom` (`pip install '.[dev]'`
has it); the environment that is listed may be another one of the same Python: `--python VENV/bin/python`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[1]
NAME = "rmqinspect"
VERSION = "1.6"

# Runs in the environment that is listed, with nothing but Python: names are those of its metadata.
_NEEDS = """
import json
from importlib.metadata import distributions
found = {}
for one in distributions():
    if one.metadata["Name"]:
        found.setdefault(one.metadata["Name"], one.requires or [])  # the first on the path is the one that is imported
print(json.dumps(found))
"""


def sbom(python: Path, extras: Collection[str] = ()) -> dict[str, Any]:
    """Return the document.

    :raises ValueError: rmqinspect, or something that it needs, is not installed there; or there is no such extra.
    :raises subprocess.CalledProcessError: the environment cannot be listed.
    """
    needs = _needs(python, extras)
    listed = _listed(python)
    installed = {_plain(part["name"]): part for part in listed["components"]}
    # An editable installation is told as what the list is about only.
    installed.setdefault(NAME, listed["metadata"]["component"])
    if absent := sorted(needs.keys() - installed.keys()):
        raise ValueError(f"not installed there: {', '.join(absent)}")
    parts = [installed[name] for name in sorted(needs.keys() - {NAME})]
    document: dict[str, Any] = listed | {"components": parts, "dependencies": list(_tree(needs, installed))}
    document["metadata"]["component"] |= {
        "bom-ref": installed[NAME]["bom-ref"],
        "version": installed[NAME]["version"],
    }
    return document


def _listed(python: Path) -> dict[str, Any]:
    """Return what cyclonedx-bom makes of an environment, everything in it."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "all.json"
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate"]
        command += [
            "--spec-version",
            VERSION,
            "--pyproject",
            str(ROOT / "pyproject.toml"),
            "-o",
            str(made),
            str(python),
        ]
        subprocess.run(command, check=True, capture_output=True)
        document: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    return document


def _needs(python: Path, extras: Collection[str]) -> dict[str, list[str]]:
    """Return what each library needs, from rmqinspect on, by normalised names."""
    from packaging.requirements import Requirement

    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if unknown := set(extras) - set(known):
        raise ValueError(f"no extra {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    printed = subprocess.run([python, "-c", _NEEDS], check=True, capture_output=True, text=True).stdout
    required: dict[str, list[Requirement]] = {}
    for name, lines in json.loads(printed).items():
        required.setdefault(_plain(name), [Requirement(line) for line in lines])
    if NAME not in required:
        raise ValueError(f"not installed there: {NAME}")
    found: dict[str, set[str]] = {}
    pending = [(NAME, frozenset(extras))]
    seen = set()
    while pending:
        name, asked = pending.pop()
        if (name, asked) in seen:
            continue
        seen.add((name, asked))
        mine = found.setdefault(name, set())
        for one in required.get(name, ()):
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *asked)):
                mine.add(_plain(one.name))
                pending.append((_plain(one.name), frozenset(one.extras)))
    return {name: sorted(names) for name, names in found.items()}


def _tree(needs: Mapping[str, Iterable[str]], installed: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for name in sorted(needs):
        below = [installed[one]["bom-ref"] for one in needs[name]]
        yield {"ref": installed[name]["bom-ref"], **({"dependsOn": below} if below else {})}


def _plain(name: str) -> str:
    """Return the one spelling of a package's name."""
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(name))


def problems(text: str) -> str | None:
    """Return what the schema of CycloneDX has against a document, None if nothing."""
    found = _validator().validate_str(text)
    return None if found is None else str(found)


@cache
def _validator() -> "JsonStrictValidator":
    """Return the schema, which takes seconds to read."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.from_version(VERSION))


def main() -> int:
    """Write what the command line asks for, and return the exit status."""
    parser = argparse.ArgumentParser(description="List what is installed with rmqinspect, as CycloneDX.")
    parser.add_argument("-o", "--output", type=Path, default=Path("rmqinspect.cdx.json"))
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="of the environment that is listed")
    parser.add_argument("--extras", default="", metavar="A,B", help="rocksdb, sql, metrics")
    asked = parser.parse_args()
    try:
        document = sbom(asked.python, [name for name in asked.extras.split(",") if name])
    except (ValueError, OSError) as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"sbom: {str(error.stderr).strip()}", file=sys.stderr)
        return 1
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    if (wrong := problems(text)) is not None:
        print(f"sbom: not valid: {wrong}", file=sys.stderr)
        return 1
    asked.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
