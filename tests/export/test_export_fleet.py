"""Exports of many stores: one that cannot be read does not end them, and stores come and go."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqinspect.cli import ExitStatus, main
from tests.support.samples import sample

HEALTHY, OTHER = sample("healthy-4.9.7"), sample("healthy-5.5.0")
ROWS = {"a": 253, "b": 245}


def export(folder: Path, *arguments: str) -> int:
    """Export messages and queues to a folder."""
    tables = ["--table", "messages", "--table", "queues"]
    return main(["export", *arguments, "-o", str(folder), *tables, "--engine", "local", "--no-progress"])


def manifest(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "_manifest.json").read_text())
    return document


def rows(folder: Path) -> dict[str, int]:
    """Return the messages of each store, as readers of the manifest see them."""
    found: dict[str, int] = {}
    for file in manifest(folder)["tables"]["messages"]["files"]:
        found[file["store"]] = found.get(file["store"], 0) + pq.read_metadata(folder / file["name"]).num_rows
    return found


@pytest.fixture
def bad(tmp_path: Path) -> list[str]:
    """Return what is no store: nothing, an empty folder, a file."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no store")
    return [f"{name}={tmp_path / name}" for name in ("absent", "empty", "text")]


def test_stores_that_cannot_be_read_are_skipped_and_listed(
    bad: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [bad[0], f"a={HEALTHY}", bad[1], f"b={OTHER}", bad[2]]
    assert export(tmp_path / "none", *given) == ExitStatus.UNREADABLE
    assert not (tmp_path / "none").exists()
    capsys.readouterr()
    assert export(tmp_path / "lake", *given, "--skip-unreadable") == ExitStatus.UNREADABLE
    out, err = capsys.readouterr()
    assert (tmp_path / "lake" / "_SUCCESS").exists()
    assert rows(tmp_path / "lake") == ROWS
    skipped = manifest(tmp_path / "lake")["skipped"]
    assert [one["name"] for one in skipped] == ["absent", "empty", "text"]
    assert [one["paths"] for one in skipped] == [[given[at].partition("=")[2]] for at in (0, 2, 4)]
    assert manifest(tmp_path / "lake")["complete"] is False
    for one in skipped:
        assert one["error"] in err
        assert f"skipped   {one['name']}" in out
    assert "INCOMPLETE" in out


def test_a_list_names_the_stores(bad: list[str], tmp_path: Path) -> None:
    (tmp_path / "stores.txt").write_text(f"# brokers\n\na={HEALTHY}\n{bad[0]}\nb={OTHER}\n")
    listed = ["--stores-from", str(tmp_path / "stores.txt")]
    assert export(tmp_path / "lake", *listed, "--skip-unreadable") == ExitStatus.UNREADABLE
    assert rows(tmp_path / "lake") == ROWS


def test_nothing_is_written_where_no_store_can_be_read(bad: list[str], tmp_path: Path) -> None:
    assert export(tmp_path / "lake", *bad, "--skip-unreadable") == ExitStatus.UNREADABLE
    assert not (tmp_path / "lake").exists()


def test_stores_come_and_go_and_what_was_exported_stays(
    bad: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    assert export(lake, f"a={HEALTHY}") == ExitStatus.DONE
    before = {file["name"] for file in manifest(lake)["tables"]["queues"]["files"]}
    assert export(lake, f"b={OTHER}", "--incremental") == ExitStatus.DONE
    assert "a: not given: its rows of the earlier export stay" in capsys.readouterr().err
    assert rows(lake) == ROWS
    assert before < {file["name"] for file in manifest(lake)["tables"]["queues"]["files"]}
    assert {store["name"] for store in manifest(lake)["stores"]} == {"a", "b"}
    # The same stores again, one of them on a disk that is gone.
    again = [f"a={tmp_path / 'gone'}", f"b={OTHER}"]
    assert export(lake, *again, "--incremental", "--skip-unreadable") == ExitStatus.UNREADABLE
    assert "a: its rows of the earlier export stay" in capsys.readouterr().err
    assert rows(lake) == ROWS
    assert [one["name"] for one in manifest(lake)["skipped"]] == ["a"]
    assert export(lake, f"a={HEALTHY}", f"b={OTHER}", "--incremental") == ExitStatus.DONE
    assert rows(lake) == ROWS
    assert manifest(lake)["skipped"] == []


def test_that_a_store_is_back_is_noted_though_nothing_is_new(tmp_path: Path) -> None:
    lake, given = tmp_path / "lake", [f"a={HEALTHY}", "b=absent", "-o", str(tmp_path / "lake"), "--engine", "local"]
    assert main(["export", *given, "--skip-unreadable"]) == ExitStatus.UNREADABLE
    files = manifest(lake)["tables"]
    assert main(["export", given[0], *given[2:], "--incremental"]) == ExitStatus.DONE
    assert (manifest(lake)["tables"], manifest(lake)["skipped"]) == (files, [])
