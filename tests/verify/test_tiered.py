"""A store with tiered storage: named, and what is expired here may be there."""

import shutil
from pathlib import Path

import pytest

from rmqinspect.broker.gone import tiered_files
from rmqinspect.cli import main
from rmqinspect.show.overview import overview
from rmqinspect.store.discover import open_store
from tests.support.outcome_stores import copy_of_case, outcome_store

_HINT = "the store has tiered storage: what is"


def _said(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    main([*argv])
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())


def test_tiered_storage_is_named_and_may_hold_what_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    root = str(outcome_store("tiered"))
    words = "tiered storage (config/tieredStoreMetadata.json, tiered_index_file)"
    assert words in overview(open_store([root])).features
    assert f"{_HINT} gone here may be there" in _said(capsys, "groups", root)
    assert f"{_HINT} expired here may be there" in _said(capsys, "find", root, "--offset", "100")


def test_without_its_files_nothing_is_said_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = copy_of_case("tiered", tmp_path / "case")
    shutil.rmtree(root / "tiered_index_file")
    assert tiered_files(open_store([str(root)])) == ("config/tieredStoreMetadata.json",)
    for ending in ("", ".bak"):
        (root / f"config/tieredStoreMetadata.json{ending}").unlink()
    assert tiered_files(open_store([str(root)])) == ()
    assert _HINT not in _said(capsys, "groups", str(root))


def test_its_index_alone_names_it_and_a_file_of_a_like_name_does_not(tmp_path: Path) -> None:
    root = copy_of_case("tiered", tmp_path / "case")
    for ending in ("", ".bak"):
        (root / f"config/tieredStoreMetadata.json{ending}").unlink()
    assert tiered_files(open_store([str(root)])) == ("tiered_index_file",)
    (root / "tiered_index_file").rename(root / "tiered_index_files")
    (root / "config" / "tieredStoreMetadata.json.old").write_bytes(b"{}")
    assert tiered_files(open_store([str(root)])) == ()
