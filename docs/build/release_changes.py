"""What a new broker release needs: the methods that rules were read from, where they differ between two releases.

    python -m docs.build.release_changes --old store-5.3.3-sources.jar … --new store-5.4.0-sources.jar …

Docstrings, comments and tables of this project name where a fact is from, `CommitLog#recoverAbnormally`. The script
collects these names with the files that hold them, and prints for each that is not the same in both releases: where we
name it, and its lines as a diff. A method that a named one calls in its own class counts as well, one call deep. Spaces
and comments are no difference. Names that neither release has come last: they are of other libraries, or out of date.

It lists, it does not judge: who reads the diff decides whether a rule of `broker/start_rules.py` has a new value, and
then `docs/eras.md` has a new column (CONTRIBUTING.md, "A release").
"""

import argparse
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from docs.build.java_methods import Member, members

ROOT = Path(__file__).resolve().parents[2]

# Where facts have their sources. docs/eras.md and docs/findings.md are written from these.
_PLACES = ("rmqinspect/**/*.py", "rmqinspect/**/*.toml", "schemas/*.py")
# `Class#method`, `Class: field`, `Class.CONSTANT`; and `#method` behind it, of the same class.
_SOURCE = re.compile(r"\b([A-Z]\w*)(?:#|: (?=[a-z]+[A-Z])|\.(?=[A-Z][A-Z_]+\b))(\w+)|(?<![\w#`])#([a-z]\w*)")


@dataclass(frozen=True, slots=True)
class Change:
    """A method or field that is not the same in both releases."""

    key: str
    kind: str  # changed, added, removed
    called_by: tuple[str, ...]  # the names through which we depend on it; () if it is named itself
    named_in: tuple[str, ...]  # our files, with their lines
    diff: tuple[str, ...]


def sources(root: Path = ROOT) -> dict[str, list[str]]:
    """Return what this project names as a source, with the places that do: `rmqinspect/broker/eras.py:12`."""
    found: dict[str, list[str]] = {}
    for pattern in _PLACES:
        for file in sorted(root.glob(pattern)):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
                for key in names_in(line):
                    found.setdefault(key, []).append(f"{file.relative_to(root).as_posix()}:{number}")
    return found


def names_in(line: str) -> Iterator[str]:
    """Yield what a line names, as `Class#member`."""
    last = ""
    for owner, name, of_last in _SOURCE.findall(line):
        last = owner or last
        if last:
            yield f"{last}#{name or of_last}"


def read_jars(jars: Iterable[Path]) -> dict[str, Member]:
    """Return all members of the Java files of some archives, by their keys; those of classes of one name are one."""
    found: dict[str, Member] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(one for one in archive.namelist() if one.endswith(".java")):
                for key, member in members(archive.read(name).decode("utf-8", "replace")).items():
                    there = found.setdefault(key, Member(member.owner, member.name, member.is_method))
                    there.tokens += member.tokens
                    there.lines += member.lines
    return found


def changes(named: Mapping[str, list[str]], old: Mapping[str, Member], new: Mapping[str, Member]) -> Iterator[Change]:
    """Yield what differs: first what is named itself, then what that calls in its own class."""
    called: dict[str, set[str]] = {}
    for key in named:
        for release in (old, new):
            for name in release[key].calls if key in release else ():
                callee = f"{release[key].owner}#{name}"
                if callee in release and callee not in named:
                    called.setdefault(callee, set()).add(key)
    for key in (*sorted(named), *sorted(called)):
        if (kind := _kind(old.get(key), new.get(key))) is not None:
            callers = tuple(sorted(called.get(key, ())))
            places = [place for one in callers or (key,) for place in named[one]]
            yield Change(key, kind, callers, tuple(dict.fromkeys(places)), tuple(_diff(old.get(key), new.get(key))))


def unknown(named: Mapping[str, list[str]], *releases: Mapping[str, Member]) -> list[str]:
    """Return the names that no release has, though it has a class of theirs."""
    owners = {member.owner for release in releases for member in release.values()}
    known = (key for key in named if any(key in release for release in releases))
    return sorted({key for key in named if key.partition("#")[0] in owners} - set(known))


def _kind(old: Member | None, new: Member | None) -> str | None:
    """Return how a member differs, None if it does not."""
    if old is None or new is None:
        return None if old is new else "added" if old is None else "removed"
    return None if old.tokens == new.tokens else "changed"


def _diff(old: Member | None, new: Member | None) -> Iterator[str]:
    before, after = ([line.rstrip() for line in one.lines] if one else [] for one in (old, new))
    lines = unified_diff(before, after, lineterm="", n=2)
    return (line for line in lines if not line.startswith(("---", "+++")))


def _print(found: Iterable[Change], stale: Iterable[str]) -> Iterator[str]:
    for one in found:
        through = f", called by {', '.join(one.called_by)}" if one.called_by else ""
        yield f"## {one.key}: {one.kind}{through}\n"
        yield f"named in {', '.join(one.named_in)}\n"
        yield "\n".join(["```diff", *one.diff, "```", ""])
    if names := list(stale):
        yield f"## In neither release\n\n{', '.join(names)}"


def main() -> int:
    """Print what differs between the archives of the command line; return the exit status: 3 if anything does."""
    parser = argparse.ArgumentParser(prog="docs.build.release_changes", description=(__doc__ or "").splitlines()[0])
    for name in ("--old", "--new"):
        parser.add_argument(name, nargs="+", type=Path, required=True, metavar="SOURCES.JAR")
    parser.add_argument("--names", action="store_true", help="the names only")
    asked = parser.parse_args()
    try:
        old, new = read_jars(asked.old), read_jars(asked.new)
    except (OSError, zipfile.BadZipFile) as error:
        print(f"release_changes: {error}", file=sys.stderr)
        return 1
    named = sources()
    found = list(changes(named, old, new))
    if asked.names:
        print(
            "\n".join(f"{one.kind:8} {one.key}" + (f" < {one.called_by[0]}" if one.called_by else "") for one in found)
        )
    else:
        print("\n".join(_print(found, unknown(named, old, new))))
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main())
