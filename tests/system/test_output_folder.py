"""Folders to write into: the same on this machine and on an object store, but for what a rename is."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqinspect.errors import NotAStore, Refused
from rmqinspect.system.output_folder import Folder, LocalFolder, open_folder
from tests.support.s3_server import CREDENTIALS, Server, serving
from tests.support.samples import ROOT


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, serving() as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(params=["local", "file URI", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, server: Server) -> Folder:
    key = tmp_path.name
    uris = {"local": str(tmp_path / "out"), "file URI": f"file://{tmp_path}/o%20ut", "s3": server.uri(f"{key}/out")}
    return open_folder(uris[request.param])


def test_what_is_written_is_there(folder: Folder) -> None:
    assert not folder.exists()
    assert folder.names() == []
    folder.write("messages/topic=%RETRY%g/a b.parquet", b"one")
    folder.write("_SUCCESS", b"")
    folder.write("messages/x", b"two")
    assert folder.exists()
    assert folder.names() == ["_SUCCESS", "messages/topic=%RETRY%g/a b.parquet", "messages/x"]
    assert folder.read("messages/topic=%RETRY%g/a b.parquet") == b"one"
    folder.write("messages/x", b"three")
    assert folder.read("messages/x") == b"three"
    folder.delete("messages/x")
    folder.delete("messages/x")
    assert "messages/x" not in folder.names()
    with pytest.raises(Refused, match=r"messages/x: cannot be read: [Nn]o such file"):
        folder.read("messages/x")


def test_a_created_file_takes_what_arrow_writes(folder: Folder) -> None:
    table = pa.table({"a": range(300_000), "b": [b"x" * 40] * 300_000})
    with folder.create("messages/part.parquet") as file:
        pq.write_table(table, file, compression="none", use_dictionary=False)
        assert file.tell() > 12_000_000  # more than one part of an upload
    assert pq.read_table(pa.BufferReader(folder.read("messages/part.parquet"))).equals(table)


def test_an_abandoned_file_leaves_nothing(folder: Folder) -> None:
    folder.write("other", b"1")
    with pytest.raises(ZeroDivisionError), folder.create("messages/part") as file:
        file.write(b"x" * 12_000_000)
        raise ZeroDivisionError
    assert folder.names() == ["other"]
    assert file.write(b"more") == 4
    file.close()
    assert folder.names() == ["other"]


def test_an_object_stays_as_it_was_until_its_successor_is_whole(server: Server) -> None:
    folder = open_folder(server.uri("stays"))
    folder.write("x", b"old")
    file = folder.create("x")
    file.write(b"y" * 12_000_000)
    assert folder.read("x") == b"old"
    file.close()
    assert folder.read("x") == b"y" * 12_000_000


_FORGOTTEN = """
import sys
from rmqinspect.system.output_folder import open_folder
folder = open_folder(sys.argv[1])
file = folder.create("small")
file.write(b"x")
del file
folder.create("large").write(b"x" * 12_000_000)
folder.write("whole", b"1")
"""


def test_what_a_process_did_not_close_does_not_appear(server: Server) -> None:
    # Arrow alone would complete such uploads when the stream is collected, or wait for ever at exit.
    uri = server.uri("forgotten")
    ended = subprocess.run([sys.executable, "-c", _FORGOTTEN, uri], cwd=ROOT, timeout=60, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert open_folder(uri).names() == ["whole"]


def test_only_a_local_folder_renames(tmp_path: Path, server: Server) -> None:
    local = open_folder(str(tmp_path))
    local.create(".a.part").close()
    local.rename(".a.part", "sub/a")
    assert local.names() == ["sub/a"]
    assert not local.is_remote
    remote = open_folder(server.uri("rename"))
    assert remote.is_remote
    remote.write("a", b"")
    with pytest.raises(Refused, match="no rename"):
        remote.rename("a", "b")
    assert remote.names() == ["a"]


def test_a_local_file_is_never_written_over(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    folder.write("a", b"1")
    with pytest.raises(Refused, match="File exists"):
        folder.create("a")
    (tmp_path / "b").mkdir()
    with pytest.raises(Refused, match="b: cannot be written"):
        folder.write("b", b"1")
    assert folder.names() == ["a"]


def test_a_bucket_that_is_not_there_is_told(server: Server) -> None:
    folder = open_folder(server.uri("x", bucket="nowhere-at-all"))
    assert not folder.exists()
    assert folder.names() == []
    with pytest.raises(Refused, match="s3://nowhere-at-all/x/a: cannot be written: no such bucket"):
        folder.write("a", b"1")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("zip://a/b", "zip://a: Unrecognized filesystem type"),
        ("s3://b/x?nonsense=1", "s3://b: no such option: nonsense"),
        ("s3://b/x?max_attempts=few", "max_attempts=few is not a number"),
        ("s3://?a=1", "without a place or a path"),
    ],
)
def test_a_wrong_uri_is_told_at_once(uri: str, words: str) -> None:
    with pytest.raises(NotAStore, match=words):
        open_folder(uri)


def test_a_file_system_with_folders_gets_its_file_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.system.output_folder.WITH_FOLDERS", ("mock",))
    folder = open_folder("mock:///out")
    file = folder.create("messages/a")
    file.write(b"123")
    assert folder.names() != ["messages/a"]
    file.close()
    assert (folder.names(), folder.read("messages/a")) == (["messages/a"], b"123")
    folder.create("messages/b").abandon()
    assert folder.names() == ["messages/a"]
