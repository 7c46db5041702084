"""An export that was interrupted and resumed has the bytes of one that was not, and writes nothing twice."""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.cli import main
from rmqinspect.export import resume
from rmqinspect.export.part import ExportSpec, Part, PartRead, write_part
from tests.support import oracle

TABLES = ["--table", "messages", "--table", "queues", "--table", "gaps", "--table", "queue_units", "--table", "usage"]
STORES: list[tuple[oracle.Family, str]] = [("crash", "flip_body_third-4.7.1-c"), ("broker", "main-5.5.0")]


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    copied = [oracle.copy(family, name, tmp_path / f"s{number}") for number, (family, name) in enumerate(STORES)]
    return [f"{'ab'[number]}={place}" for number, place in enumerate(copied)]


@pytest.fixture
def export(stores: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, int]]:
    """Export with options to a folder; return the status, and how many parts of the log were written."""

    def run(folder: Path, *options: str, stops_after: int | None = None) -> tuple[int, int]:
        written = 0

        def counted(part: Part, spec: ExportSpec) -> PartRead:
            nonlocal written
            if written == stops_after:
                raise KeyboardInterrupt
            written += 1
            return write_part(part, spec)

        monkeypatch.setattr(resume, "write_part", counted)
        arguments = [*stores, "-o", str(folder), *TABLES, "--file-size", "40000", "--engine", "local", "-j", "1"]
        return main(["export", *arguments, "--fail-on", "never", *options]), written

    return run


def content(folder: Path) -> dict[str, Any]:
    """Return the files of an export by name; of the manifest all but the object `run`."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return found | {"_manifest.json": json.loads(found["_manifest.json"]) | {"run": None}}


Export = Callable[..., tuple[int, int]]


def test_what_is_finished_is_taken_over_and_the_files_are_the_same(export: Export, tmp_path: Path) -> None:
    status, all_parts = export(tmp_path / "whole")
    assert status == 0 and all_parts > 8
    assert export(tmp_path / "lake", "--resume", stops_after=3)[0] == 130
    assert not (tmp_path / "lake" / "_SUCCESS").exists()
    assert export(tmp_path / "lake", "--resume", stops_after=4)[0] == 130
    status, rest = export(tmp_path / "lake", "--resume")
    # The part behind the end of a log is never taken over.
    assert status == 0 and all_parts - 7 <= rest <= all_parts - 5
    assert content(tmp_path / "lake") == content(tmp_path / "whole")


def test_a_killed_export_is_resumed_though_it_was_not_asked_to(export: Export, tmp_path: Path) -> None:
    _, all_parts = export(tmp_path / "whole")
    export(tmp_path / "lake", "--resume", stops_after=3)  # leaves what a kill leaves
    record = next(iter((tmp_path / "lake").rglob("*.done")))
    record.rename(record.with_name(f".{record.name}.0123abcd.part"))  # one killed while it was written
    assert export(tmp_path / "lake")[0] == 6  # refused, and said how to go on
    assert export(tmp_path / "lake", "--resume")[1] < all_parts
    assert content(tmp_path / "lake") == content(tmp_path / "whole")
    assert export(tmp_path / "lake", "--resume")[0] == 6  # it is finished


def test_a_segment_that_has_changed_is_read_again(export: Export, stores: list[str], tmp_path: Path) -> None:
    export(tmp_path / "lake", "--resume", stops_after=3)
    _, same = export(shutil.copytree(tmp_path / "lake", tmp_path / "same"), "--resume")
    for path in (Path(stores[0].partition("=")[2]) / "commitlog").iterdir():
        os.utime(path, (1, 1))
    assert export(tmp_path / "lake", "--resume")[1] == same + 3


def test_another_question_takes_nothing_over(export: Export, tmp_path: Path) -> None:
    export(tmp_path / "lake", "--resume", stops_after=3)
    _, all_parts = export(tmp_path / "whole", "--raw-body")
    assert export(tmp_path / "lake", "--resume", "--raw-body")[1] == all_parts
    assert content(tmp_path / "lake") == content(tmp_path / "whole")


class Harm:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_record_that_is_none_is_as_good_as_absent(export: Export, tmp_path: Path) -> None:
    export(tmp_path / "lake", "--resume", stops_after=3)
    harmful = pickle.dumps(Harm(tmp_path / "harm"))
    records = sorted((tmp_path / "lake").rglob("*.done"))
    assert len(records) == 3
    for record, raw in zip(records, (b"", harmful, hashlib.sha256(harmful).digest() + harmful), strict=True):
        record.write_bytes(raw)
    _, all_parts = export(tmp_path / "whole")
    assert export(tmp_path / "lake", "--resume")[1] == all_parts
    assert not (tmp_path / "harm").exists()
    assert content(tmp_path / "lake") == content(tmp_path / "whole")


def test_a_record_whose_files_are_gone_is_as_good_as_absent(export: Export, tmp_path: Path) -> None:
    export(tmp_path / "lake", "--resume", stops_after=3)
    next(iter((tmp_path / "lake").rglob("*.part"))).unlink()
    _, all_parts = export(tmp_path / "whole")
    assert export(tmp_path / "lake", "--resume")[1] == all_parts - 2
    assert content(tmp_path / "lake") == content(tmp_path / "whole")
