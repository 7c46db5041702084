"""A configuration file above `--max-config` is not read, and every command that needs it says so."""

import json
from pathlib import Path
from shutil import copytree

import pytest

from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()
LIMIT = ("--max-config", "600B")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose consumerOffset.json is too large for LIMIT; its copy is not."""
    copy = tmp_path / "store"
    copytree(sample("healthy-5.5.0"), copy)
    (copy / "config").mkdir(exist_ok=True)
    (copy / "config/consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:1}}}' + " " * 600)
    (copy / "config/consumerOffset.json.bak").write_text('{"offsetTable":{"T@G":{0:0}}}')
    return copy


def test_a_table_asked_for_is_incomplete_and_takes_no_older_copy(store: Path, run: Run) -> None:
    status, rows, said = run("decode", store, "--table", "groups", "-f", "jsonl", *LIMIT)
    assert (status, rows) == (4, "")
    assert "config/consumerOffset.json was not read: it has 629 bytes, and --max-config allows 600 bytes" in said
    assert run("decode", store, "--table", "groups", "-f", "jsonl")[0] == 0


def test_an_export_lists_it_as_unread(store: Path, run: Run, tmp_path: Path) -> None:
    status, _, _ = run("export", store, "--table", "groups", "-o", tmp_path / "out", "--engine", "local", *LIMIT)
    assert status == 4
    (manifest,) = (tmp_path / "out").glob("*manifest*.json")
    assert "--max-config" in json.dumps(json.loads(manifest.read_text())["stores"])


@pytest.mark.parametrize("words", ["info {}", "diff {} {}", "verify {}", "verify {} -f json"])
def test_a_command_says_it(words: str, store: Path, run: Run) -> None:
    _, out, err = run(*words.replace("{}", str(store)).split(), *LIMIT)
    assert "--max-config" in out + err
    if words.endswith("json"):
        unchecked = {row["file"]: row["message"] for row in json.loads(out)["rows"] if row["code"] == "ST-UNCHECKED"}
        assert "--max-config" in unchecked["config/consumerOffset.json"]
