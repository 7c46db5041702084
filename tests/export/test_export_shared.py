"""Exports of many small stores: whoever plans a store, its files and its entry in the manifest are the same."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqinspect.cli import ExitStatus, export_stores, main
from rmqinspect.cli import export as export_command
from rmqinspect.errors import Unreadable
from rmqinspect.export import shared
from rmqinspect.rocksdb.unpack import has_rocksdict
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.building import fill, lay, pad, various, write_segment
from tests.support.sparks import MASTER, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = quiet

# Of several versions and layouts, whole and damaged.
STORES: tuple[tuple[oracle.Family, str], ...] = (
    ("broker", "main-4.9.7"),
    ("broker", "dledger-5.3.3"),
    ("broker", "lmq-4.9.7"),
    ("broker", "rocksdb-5.4.0" if has_rocksdict() else "ext-5.3.3"),
    ("crash", "flip_body_third-4.7.1-c"),
    ("crash", "seg_missing_last-4.7.1-h"),
    ("crash", "queueid_third-4.3.2-h"),
)


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    """Return twelve small stores and one that is not: the third, by its size."""
    given = [f"{name}={oracle.store(family, name)}" for family, name in STORES]
    for number in range(5):
        log = bytearray(fill(lay(various(4 + number)), 4096))
        log[700:900] = bytes(200) if number == 2 else log[700:900]
        write_segment(tmp_path / f"s{number}" / "commitlog", bytes(log))
        given.insert(2 * number, str(tmp_path / f"s{number}"))
    large = tmp_path / "large"
    write_segment(large / "commitlog", pad(lay([{"body": bytes(range(256)) * 1200}] * 4), 1 << 21))
    return [*given[:2], str(large), *given[2:]]


def content(folder: Path) -> dict[str, Any]:
    """Return the files of an export by name; of the manifest all but the object `run`."""
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    return found | {"_manifest.json": json.loads(found["_manifest.json"]) | {"run": None}}


def export(folder: Path, *words: str) -> int:
    return main(["export", *words, "-o", str(folder), "--no-progress"])


LOCAL = ("--engine", "local", "-j", "2")
TABLES = [
    word
    for name in ("messages", "gaps", "queues", "queue_units", "groups", "usage", "findings")
    for word in ("--table", name)
]


@pytest.fixture
def opened_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make stores above 1 MiB large, and return the names of those that are looked at as small ones."""
    found: list[str] = []
    find_small = shared.find_small

    def noted(*arguments: Any) -> Any:
        small = find_small(*arguments)
        found.extend(small)
        return small

    monkeypatch.setattr(shared, "SMALL", 1 << 20)
    monkeypatch.setattr(shared, "OPENING", 1 << 18)
    monkeypatch.setattr(shared, "find_small", noted)
    return found


def planned(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> int:
    """Export where this process opens and plans all stores, one after the other."""
    with monkeypatch.context() as patch:
        patch.setattr(shared, "find_small", lambda *_: {})
        for module in (export_command, export_stores):
            patch.setattr(module, "names_and_paths", lambda _: [])
        return export(folder, *words)


def test_small_stores_of_many_have_the_files_of_planned_ones(
    stores: list[str], opened_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = planned(monkeypatch, tmp_path / "planned", *stores, *TABLES, *LOCAL)
    assert export(tmp_path / "shared", *stores, *TABLES, *LOCAL) == status == ExitStatus.DAMAGE
    assert len(opened_here) == len(stores) - 1 and "large" not in opened_here
    expected = content(tmp_path / "planned")
    assert content(tmp_path / "shared") == expected
    assert len(expected) > 5 * len(stores)


def test_many_stores_are_opened_side_by_side(
    stores: list[str],
    opened_here: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Here because of --closed-only; what cannot be opened is told as ever."""
    given = [*stores, f"y={tmp_path / 'absent'}"]
    words = ("--table", "messages", "--table", "queues", "--closed-only", *LOCAL, "--fail-on", "never")
    assert export(tmp_path / "none", *given, *words) == ExitStatus.UNREADABLE
    assert f"{tmp_path}/absent: no such file" in capsys.readouterr().err
    assert planned(monkeypatch, tmp_path / "planned", *given, *words, "--skip-unreadable") == ExitStatus.UNREADABLE
    assert export(tmp_path / "lake", *given, *words, "--skip-unreadable") == ExitStatus.UNREADABLE
    assert not opened_here
    assert content(tmp_path / "lake") == content(tmp_path / "planned")


def test_partitions_filters_and_times(
    stores: list[str], opened_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*stores, "--partition-by", "topic,store", "--topic", "*a*", "--until", "now", "--file-size", "512KiB")
    status = planned(monkeypatch, tmp_path / "planned", *words, *LOCAL)
    assert export(tmp_path / "shared", *words, "--engine", "local", "-j", "1") == status
    assert len(opened_here) > 8
    assert content(tmp_path / "shared") == content(tmp_path / "planned")


def test_small_stores_that_cannot_be_read_are_left_out(
    stores: list[str],
    opened_here: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One of which the driver knows, and one whose task finds out."""

    def failing(paths: list[str], **options: Any) -> Any:
        if paths[0].endswith("s3"):
            raise Unreadable("s3: no permission")
        return open_store(paths, **options)

    monkeypatch.setattr("rmqinspect.export.shared.open_store", failing)
    given = [f"y={tmp_path / 'absent'}", *stores]
    assert export(tmp_path / "lake", *given, *LOCAL, "--skip-unreadable") == ExitStatus.DAMAGE
    manifest = json.loads((tmp_path / "lake" / "_manifest.json").read_text())
    assert "y" not in opened_here and "s3" in opened_here
    said = capsys.readouterr()
    assert [one["name"] for one in manifest["skipped"]] == ["y", "s3"]
    assert len(manifest["stores"]) == len(stores) - 1
    assert "s3: no permission; skipped" in said.err
    assert "skipped   s3: s3: no permission" in said.out
    assert export(tmp_path / "none", *stores, *LOCAL) == ExitStatus.UNREADABLE
    left = [str(path) for path in tmp_path.glob("none/**/*")]
    assert (left, (tmp_path / "none").exists()) == ([], False)
    assert export(tmp_path / "none", *given, *LOCAL) == ExitStatus.UNREADABLE
    assert not (tmp_path / "none").exists()


def test_what_was_shared_is_added_to(stores: list[str], opened_here: list[str], tmp_path: Path) -> None:
    """The next export finds the entries of all; those of one run go on where the driver plans."""
    assert export(tmp_path / "lake", *stores, *LOCAL, "--fail-on", "never") == ExitStatus.DONE
    before = content(tmp_path / "lake")
    found = len(opened_here)
    assert export(tmp_path / "lake", *stores, *LOCAL, "--fail-on", "never", "--incremental") == ExitStatus.DONE
    assert len(opened_here) == found
    assert content(tmp_path / "lake") == before


def test_a_relative_path_is_told_as_it_was_given(
    stores: list[str], opened_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(tmp_path / "lake", *stores[3:], "s0", *LOCAL, "--fail-on", "never") == ExitStatus.DONE
    manifest = json.loads((tmp_path / "lake" / "_manifest.json").read_text())
    assert "s0" in opened_here
    assert [store["paths"] for store in manifest["stores"] if store["name"] == "s0"] == [["s0"]]


def test_nothing_stays_of_an_export_that_a_task_ends(
    stores: list[str], opened_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "lock_holder", lambda store: 1 / 0)
    with pytest.raises(RuntimeError, match="this is a bug: ZeroDivisionError"):
        export(tmp_path / "lake", *stores, *LOCAL)
    left = [str(path) for path in tmp_path.glob("lake/**/*")]
    assert (left, (tmp_path / "lake").exists()) == ([], False)


def nothing_is_opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_open_and_survey", "_open_in_turn"):
        monkeypatch.setattr(export_stores, name, lambda *_, **__: 1 / 0)


def test_the_tasks_of_spark_do_the_same(
    spark: "SparkSession",
    stores: list[str],
    opened_here: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Small stores share tasks; the others, and one that is none, are opened by a task each, and none here."""
    words = ("--file-size", "300K", "--table", "messages", "--table", "queues", "--table", "usage", "--closed-only")
    plain = [*words[:-1], *stores, "--fail-on", "never"]
    assert planned(monkeypatch, tmp_path / "planned", *plain, *LOCAL) == ExitStatus.DONE
    nothing_is_opened_here(monkeypatch)
    assert export(tmp_path / "shared", *plain, "--master", MASTER) == ExitStatus.DONE
    assert 4 < len(opened_here) < len(stores) - 1
    assert content(tmp_path / "shared") == content(tmp_path / "planned")
    monkeypatch.undo()
    given = [*words, f"y={tmp_path / 'absent'}", *stores, "--skip-unreadable", "--fail-on", "never"]
    capsys.readouterr()
    assert planned(monkeypatch, tmp_path / "planned2", *given, *LOCAL) == ExitStatus.UNREADABLE
    expected = capsys.readouterr()
    nothing_is_opened_here(monkeypatch)
    assert export(tmp_path / "apart", *given, "--master", MASTER) == ExitStatus.UNREADABLE
    told = capsys.readouterr()
    assert content(tmp_path / "apart") == content(tmp_path / "planned2")
    assert f"{tmp_path}/absent: no such file or directory; skipped" in told.err
    assert told.out.replace("/apart/", "/planned2/") == expected.out
    assert export(tmp_path / "none", *given[:-3], "--master", MASTER) == ExitStatus.UNREADABLE
    assert not (tmp_path / "none").exists()
