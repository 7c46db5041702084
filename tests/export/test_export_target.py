"""The folder of an export: whole or untouched, and nobody else's."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.commitlog.find_record import Unread
from rmqinspect.commitlog.gaps import Split
from rmqinspect.errors import Refused
from rmqinspect.export.job import ExportResult, local_engine, run_export
from rmqinspect.export.manifest import MANIFEST, SUCCESS, read_manifest
from rmqinspect.export.part import ExportSpec, write_part
from rmqinspect.export.request import MESSAGES, ExportRequest
from rmqinspect.export.target import FRESH, INCREMENTAL, OVERWRITE, Target
from rmqinspect.output.columnar import ParquetFile
from rmqinspect.store.model import Store
from rmqinspect.system.output_folder import LocalFolder
from rmqinspect.tables.read_log import LogSplitRead, read_split
from tests.support import oracle
from tests.support.exporting import case_store, export, names, planned

WISH = ExportRequest(file_size=60_000)
MODES = (FRESH, OVERWRITE, INCREMENTAL)


@pytest.fixture
def store() -> Store:
    return case_store("crash", "flip_body_third-4.7.1-c")


def everything(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_no_export_stays(mode: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Refused, match=r"contains notes\.txt, which no export wrote"):
        Target(str(tmp_path), mode, [])


@pytest.mark.parametrize(
    "name", ["messages/mine.parquet", "other/a-00001.parquet", "_manifest.json.bak", "a-00001.parquet"]
)
def test_files_that_only_look_like_an_exports_are_not_taken_for_one(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(Refused, match="which no export wrote"):
        Target(str(tmp_path), OVERWRITE, [])


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_written_through_a_link_to_a_folder(mode: str, tmp_path: Path) -> None:
    root = oracle.copy("crash", "flip_body_third-4.7.1-c", tmp_path)
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / MESSAGES).symlink_to(root)
    with pytest.raises(Refused, match="contains messages, which no export wrote"):
        Target(str(lake), mode, [str(root)])


@pytest.mark.parametrize("mode", MODES)
def test_a_file_is_no_folder(mode: str, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(Refused, match="already exists and is not a folder"):
        Target(str(tmp_path / "lake"), mode, [])


@pytest.mark.parametrize("place", [".", "x", "commitlog", "commitlog/x/y"])
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_written_in_a_store(mode: str, place: str, tmp_path: Path) -> None:
    root = oracle.copy("crash", "flip_body_third-4.7.1-c", tmp_path)
    (tmp_path / "link").symlink_to(root)
    for way in (root, tmp_path / "link"):
        with pytest.raises(Refused, match="inside the store"):
            Target(str(way / place), mode, [str(root)])


def test_an_earlier_export_is_not_overwritten_by_chance(store: Store, tmp_path: Path) -> None:
    export(tmp_path / "lake", [store], WISH)
    before = everything(tmp_path)
    with pytest.raises(Refused, match="an export exists: --overwrite replaces it, --incremental adds"):
        Target(str(tmp_path / "lake"), FRESH, [])
    assert everything(tmp_path) == before


def test_overwrite_leaves_nothing_of_the_earlier_export(store: Store, tmp_path: Path) -> None:
    export(tmp_path / "lake", [store], ExportRequest((MESSAGES, "gaps"), 30_000, partition_by=("topic",)))
    before = names(tmp_path / "lake")
    outcome = export(tmp_path / "lake", [store], WISH, mode=OVERWRITE)
    assert set(names(tmp_path / "lake")) == {file.name for file in outcome.manifest.files}
    assert set(before).isdisjoint(names(tmp_path / "lake"))
    left = sorted(path.name for path in (tmp_path / "lake").iterdir())
    assert left == [SUCCESS, MANIFEST, "messages"]
    assert not any(path.is_dir() for path in (tmp_path / "lake" / "messages").iterdir())


class Cut(Exception):
    """Stands for whatever ends a run."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("groups", [0, 1])
def test_a_run_that_is_cut_off_changes_nothing(
    mode: str, groups: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    if mode != FRESH:
        export(lake, [store], WISH)
    before = everything(tmp_path)
    request = WISH if mode != INCREMENTAL else replace(WISH, tables=(MESSAGES, "gaps", "queues"))
    left = [groups]
    finish = ParquetFile.finish

    def cut(file: ParquetFile) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Cut
        finish(file)

    monkeypatch.setattr(ParquetFile, "finish", cut)
    target = Target(str(lake), mode, [])
    with pytest.raises(Cut):
        export(lake, [store], request, mode=mode)
    # The process may have been killed here: what it left is hidden, and nothing looks whole that is not.
    assert everything(tmp_path).items() >= before.items()
    assert not any(Path(name).name[0] not in "._" for name in everything(tmp_path).keys() - before.keys())
    # A later run takes the remains away.
    monkeypatch.undo()
    if mode == FRESH:
        assert not (lake / SUCCESS).exists()
        if lake.exists() and everything(lake):
            with pytest.raises(
                Refused, match="an unfinished export exists: --resume goes on with it, --overwrite replaces it"
            ):
                Target(str(lake), FRESH, [])
    outcome = export(lake, [store], WISH, mode=OVERWRITE)
    assert {file.name for file in outcome.manifest.files} == set(names(lake))
    assert (lake / SUCCESS).exists()
    del target


def test_abandon_removes_what_its_run_wrote(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(str(tmp_path / "a" / "lake"), FRESH, [])
    target.begin()
    spec = ExportSpec(target.folder.path, "0123abcd", WISH)
    for part in planned(store, WISH).parts:
        write_part(part, spec)
    assert list((tmp_path / "a" / "lake" / "messages").iterdir())
    assert not names(tmp_path / "a" / "lake")
    target.abandon("0123abcd")
    assert not (tmp_path / "a" / "lake").exists()


def written(target: Target, store: Store, run: str) -> ExportResult:
    """Write what is to be committed."""
    plan = planned(store, WISH, target.earlier)
    return run_export([plan], ExportSpec(target.folder.path, run, WISH), local_engine(1))


@pytest.mark.parametrize("mode", [FRESH, OVERWRITE])
def test_of_two_runs_at_once_the_second_one_spoils_nothing(mode: str, store: Store, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    one, other = Target(str(lake), mode, []), Target(str(lake), mode, [])
    first, second = written(one, store, "0123abcd"), written(other, store, "4567cdef")
    one.commit(first.manifest, first.names)
    before = everything(lake)
    with pytest.raises(Refused, match="another export was committed there meanwhile"):
        other.commit(second.manifest, second.names)
    other.abandon("4567cdef")
    assert everything(lake) == before
    assert (lake / SUCCESS).exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_is_interrupted_after_its_commit_is_whole(mode: str, store: Store, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    target = Target(str(lake), mode, [])
    outcome = written(target, store, "0123abcd")
    target.commit(outcome.manifest, outcome.names)
    before = everything(lake)
    target.abandon("0123abcd")
    assert everything(lake) == before
    assert set(names(lake)) == {file.name for file in outcome.manifest.files} != set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_a_commit(
    number: signal.Signals, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda number, _: came.append(number))
    try:
        target = Target(str(tmp_path / "lake"), FRESH, [])
        outcome = written(target, store, "0123abcd")
        rename = LocalFolder.rename

        def interrupted(folder: LocalFolder, old: str, new: str) -> None:
            signal.raise_signal(number)
            assert not came
            rename(folder, old, new)

        monkeypatch.setattr(LocalFolder, "rename", interrupted)
        target.commit(outcome.manifest, outcome.names)
        assert came == [number]
        assert (tmp_path / "lake" / SUCCESS).exists()
    finally:
        signal.signal(number, before)


def test_a_commit_that_fails_leaves_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(str(tmp_path / "lake"), FRESH, [])
    outcome = written(target, store, "0123abcd")

    def full(folder: LocalFolder, name: str, raw: bytes) -> None:
        raise Refused(f"{name}: cannot be written: No space left on device")

    monkeypatch.setattr(LocalFolder, "write", full)
    with pytest.raises(Refused, match="No space left"):
        target.commit(outcome.manifest, outcome.names)
    target.abandon("0123abcd")
    assert not (tmp_path / "lake").exists()


def test_an_empty_folder_of_somebody_else_stays(store: Store, tmp_path: Path) -> None:
    (tmp_path / "lake" / "mine").mkdir(parents=True)
    export(tmp_path / "lake", [store], WISH)
    assert (tmp_path / "lake" / "mine").is_dir()


def test_a_task_that_ran_twice_leaves_one_file(store: Store, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    target = Target(str(lake), FRESH, [])
    target.begin()
    spec = ExportSpec(target.folder.path, "0123abcd", WISH)
    plan = planned(store, WISH)
    for part in plan.parts:  # as a speculative task, whose result nobody takes
        write_part(part, spec)
    outcome = run_export([plan], spec, local_engine(1))
    target.commit(outcome.manifest, outcome.names)
    assert set(names(lake)) == {file.name for file in outcome.manifest.files}
    assert [path.name for path in lake.rglob("*") if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not the manifest"),
        ("{}", "is not the manifest"),
        ("[]", "is not the manifest"),
        ('{"schema_version": 99}', "version 99"),
        ('{"schema_version": 1, "tables": 3}', "is not the manifest"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_refused(text: str, why: str, store: Store, tmp_path: Path) -> None:
    export(tmp_path / "lake", [store], WISH)
    (tmp_path / "lake" / MANIFEST).write_text(text)
    with pytest.raises(Refused, match=why):
        Target(str(tmp_path / "lake"), INCREMENTAL, [])
    Target(str(tmp_path / "lake"), OVERWRITE, [])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("export",), []),
        (("tables",), {}),
        (("run",), 3),
        (("tables", "messages", "files", 0), "x"),
        (("tables", "messages", "files", 0, "rows"), "x"),
        (("tables", "messages", "files", 0, "end"), "x"),
        (("tables", "messages", "files", 0, "statuses"), [1]),
        (("tables", "messages", "files", 0, "statuses"), {"carved": "x"}),
        (("stores", 0), None),
        (("stores", 0, "covered", "end"), None),
        (("stores", 0, "covered"), [1]),
        (("stores", 0, "unread"), 3),
        (("stores", 0, "lost"), [{"start": "x", "end": 1, "kind": "unknown"}]),
        (("stores", 0, "segments", 0), 3),
        (("stores", 0, "segments", 0, "base"), None),
        (("stores", 0, "segments", 0, "begin"), "x"),
    ],
)
def test_a_manifest_that_was_edited_is_refused(
    place: tuple[str | int, ...], value: object, store: Store, tmp_path: Path
) -> None:
    raw = export(tmp_path / "lake", [store], WISH).manifest.as_json()
    read_manifest(raw, "here")
    document: Any = json.loads(raw)
    around = document
    for step in place[:-1]:
        around = around[step]
    around[place[-1]] = value
    with pytest.raises(Refused, match="here: is not the manifest of an export: "):
        read_manifest(json.dumps(document).encode(), "here")


def test_a_manifest_without_a_bottom_is_refused() -> None:
    with pytest.raises(Refused, match="is not the manifest"):
        read_manifest(b"[" * 100_000, "here")


def test_the_manifest_is_read_as_it_was_written(store: Store, tmp_path: Path) -> None:
    stores = [store, case_store("crash", "seg_missing_mid-4.9.7-c")]
    manifest = export(tmp_path / "lake", stores, ExportRequest((MESSAGES, "gaps"), 30_000)).manifest
    raw = (tmp_path / "lake" / MANIFEST).read_bytes()
    assert raw == manifest.as_json()
    again = read_manifest(raw, "here")
    assert [replace(file) for file in again.files] == sorted(manifest.files, key=lambda file: file.table != MESSAGES)
    assert json.loads(again.as_json())["stores"] == json.loads(raw)["stores"]
    document: dict[str, Any] = json.loads(raw)
    assert [one["kind"] for one in document["stores"][1]["lost"]] == ["missing"]
    assert document["tables"]["messages"]["rows"] == sum(f["rows"] for f in document["tables"]["messages"]["files"])
    assert document["tables"]["messages"]["files"][2]["statuses"] == {"body_crc": 1}
    inputs = {one["file"]: one["size"] for one in document["stores"][0]["inputs"]}
    root = Path(store.paths[0])
    assert all((root / name).stat().st_size == size for name, size in inputs.items())
    assert sum(name.startswith("commitlog/") for name in inputs) == len(store.segments)


def test_a_file_that_cannot_be_read_makes_the_export_incomplete(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = store.segments[1]

    def read(split: Split, new: Any) -> Any:
        for item in read_split(split, new):
            if split.segment.path == segment.path and isinstance(item, LogSplitRead):
                item.unread.append(Unread(segment.base, segment.base + 1, f"{segment.name}: Input/output error"))
            yield item

    monkeypatch.setattr("rmqinspect.export.part.read_split", read)
    outcome = export(tmp_path / "lake", [store], WISH)
    assert not outcome.manifest.complete
    assert os.path.exists(tmp_path / "lake" / SUCCESS)
    document = json.loads((tmp_path / "lake" / MANIFEST).read_bytes())
    assert document["complete"] is False
    assert "Input/output error" in document["stores"][0]["unread"][0]
    # The files that stay do not get the rows later.
    monkeypatch.undo()
    later = export(tmp_path / "lake", [store], WISH, mode=INCREMENTAL)
    assert later.nothing_new
    assert not later.manifest.complete
    assert export(tmp_path / "lake", [store], WISH, mode=OVERWRITE).manifest.complete
