"""Exports from and to an object store: the same files as here, and none that look whole when they are not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.system.output_folder import Folder, open_folder
from rmqinspect.system.uri import join
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.s3_server import CREDENTIALS, Server, Way, gate, serving
from tests.support.samples import ROOT

NAME = "flip_body_third-5.3.3-h"
WISH = ("--file-size", "60000", "--all", "--partition-by", "topic")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, serving() as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        server.upload(oracle.store("crash", NAME), "store")
        yield server


run = runner(after=("--engine", "local", "-j", "1"))


@pytest.fixture
def lake(server: Server, tmp_path: Path) -> str:
    """Return the URI of a folder in which there is nothing."""
    return server.uri(f"{tmp_path.name}/lake")


def manifest(folder: Folder) -> dict[str, Any]:
    """Return what must be the same of a manifest, wherever the store was."""
    document: dict[str, Any] = json.loads(folder.read("_manifest.json"))
    del document["run"]
    for store in document["stores"]:
        del store["paths"]
        for file in store["inputs"]:
            del file["modified"]
    for table in document["tables"].values():
        for file in table["files"]:
            del file["bytes"]
    return document


def rows(folder: Folder, name: str) -> pa.Table:
    """Return the rows of a file without what tells where the store is: its name in commands, and its holes."""
    table = pq.read_table(pa.BufferReader(folder.read(name)))
    return table.drop_columns([column for column in ("next", "do", "bytes_on_disk") if column in table.column_names])


def test_an_export_there_is_the_export_here(server: Server, run: Run, tmp_path: Path, lake: str) -> None:
    here = run("export", f"S={oracle.store('crash', NAME)}", "-o", str(tmp_path / "lake"), *WISH)
    there = run("export", f"S={server.uri('store')}", "-o", lake, *WISH)
    assert here[0] == there[0] == ExitStatus.DAMAGE
    assert here[1].splitlines()[-1] == there[1].splitlines()[-1]
    folders = [open_folder(path) for path in (str(tmp_path / "lake"), lake)]
    assert folders[0].names() == folders[1].names()
    assert {"_SUCCESS", "_manifest.json"} < {*folders[1].names()}
    assert manifest(folders[0]) == manifest(folders[1])
    files = [name for name in folders[0].names() if name.endswith(".parquet")]
    assert sum(rows(folders[0], name).num_rows for name in files if name.startswith("messages/")) > 200
    for name in files:
        assert rows(folders[0], name).equals(rows(folders[1], name)), name


def test_an_earlier_export_is_kept_replaced_or_added_to(server: Server, run: Run, lake: str) -> None:
    words = ("export", f"S={server.uri('store')}", "-o", lake, "--file-size", "60000")
    assert run(*words)[0] == ExitStatus.DAMAGE
    before = open_folder(lake).names()
    status, _, err = run(*words)
    assert (status, "an export exists: --overwrite" in err) == (ExitStatus.REFUSED, True)
    status, out, _ = run(*words, "--incremental")
    assert (status, out.startswith("nothing new: ")) == (ExitStatus.DAMAGE, True)
    assert open_folder(lake).names() == before
    status, _, _ = run("export", f"S={server.uri('store')}", "-o", lake, "--table", "queues", "--overwrite")
    assert (status, open_folder(lake).names()) == (
        ExitStatus.DONE,
        ["_SUCCESS", "_manifest.json", "queues/S-00000.parquet"],
    )


def test_two_threads_write_there(server: Server, lake: str) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "rmqinspect",
            "export",
            server.uri("store"),
            "-o",
            lake,
            "--file-size",
            "60000",
            "--engine",
            "local",
            "-j",
            "2",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == ExitStatus.DAMAGE, ended.stderr
    assert len(open_folder(lake).names()) == 6


def broken_after(method: str) -> Callable[[str], Way]:
    """Return what cuts off the log's third segment as soon as there was a request of some kind."""
    seen: list[str] = []

    def judge(line: str) -> Way:
        seen.append(line.split(" ")[0])
        return "cut" if method in seen and line.startswith("GET") and "/00000000000000131072 " in line else "pass"

    return judge


def test_a_store_that_breaks_off_leaves_nothing(server: Server, run: Run, tmp_path: Path, lake: str) -> None:
    with gate(server, broken_after("POST")) as broken:
        uri = broken.uri(f"{tmp_path.name}/lake")
        status, out, err = run("export", f"S={broken.uri('store')}", "-o", uri, "--file-size", "60000", "-q")
    assert (status, out) == (ExitStatus.UNREADABLE, "")
    assert err.startswith("rmqinspect: s3://evidence/store/commitlog/00000000000000131072 at ")
    assert err.count("\n") == 1
    assert open_folder(lake).names() == []


@pytest.mark.parametrize(
    ("way", "status", "words"),
    [("refuse", ExitStatus.REFUSED, "written: permission denied"), ("stall", ExitStatus.UNREADABLE, "Timeout")],
)
def test_a_folder_that_takes_no_more_never_looks_whole(
    server: Server, run: Run, tmp_path: Path, lake: str, way: Way, status: ExitStatus, words: str
) -> None:
    written: list[str] = []

    def judge(line: str) -> Way:
        written.extend([line] if line.startswith(("PUT", "POST")) else [])
        return way if len(written) > 3 and line.startswith(("PUT", "POST")) else "pass"

    with gate(server, judge, 2) as full:
        uri = full.uri(f"{tmp_path.name}/lake")
        ended, out, err = run("export", f"S={server.uri('store')}", "-o", uri, "--file-size", "60000", "-q")
    assert (ended, out) == (status, "")
    assert err.startswith(f"rmqinspect: s3://evidence/{tmp_path.name}/lake/messages/")
    assert words in err
    assert err.count("\n") == 1
    assert len(written) > 3
    assert open_folder(lake).names() == []


def test_an_overwrite_that_breaks_off_does_not_look_whole(server: Server, run: Run, tmp_path: Path, lake: str) -> None:
    words = ("-o", lake, "--file-size", "60000", "-q")
    assert run("export", f"S={server.uri('store')}", *words)[0] == ExitStatus.DAMAGE
    with gate(server, broken_after("DELETE")) as broken:
        uri = broken.uri(f"{tmp_path.name}/lake")
        status, _, _ = run("export", f"S={broken.uri('store')}", "-o", uri, "--file-size", "60000", "-q", "--overwrite")
    assert status == ExitStatus.UNREADABLE
    assert {"_SUCCESS", "_manifest.json"}.isdisjoint(open_folder(lake).names())
    status, _, err = run("export", f"S={server.uri('store')}", *words)
    assert (status, "an unfinished export exists" in err) == (ExitStatus.REFUSED, True)


def test_nothing_is_written_into_the_store(server: Server, run: Run) -> None:
    before = open_folder(server.uri("store")).names()
    for inside in ("lake", "commitlog"):
        target = join(server.uri("store"), inside).replace("s3://", "s3a://testing:testing@")
        status, _, err = run("export", server.uri("store"), "-o", target)
        assert (status, "lies inside the store s3://evidence/store;" in err) == (ExitStatus.REFUSED, True)
    assert open_folder(server.uri("store")).names() == before


def test_no_file_of_an_export_holds_a_secret(server: Server, run: Run, tmp_path: Path) -> None:
    uri = server.uri("store").replace("s3://", "s3://testing:SECRET@") + "&region=SECRET"
    words = ("--table", "findings", "--table", "messages")
    status, out, err = run("export", f"S={uri}", "-o", str(tmp_path / "lake"), *words)
    assert status == ExitStatus.DAMAGE
    assert "SECRET" not in out + err
    for file in (tmp_path / "lake").rglob("*"):
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            assert "SECRET" not in repr(table.to_pylist()) + repr(table.schema.metadata)
        elif file.is_file():
            assert "SECRET" not in file.read_text()
