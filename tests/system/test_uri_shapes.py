"""URIs that lead nowhere by their shape: one line says what is missing and how they are written."""

from pathlib import Path

import pytest

from rmqinspect.errors import NotAStore
from rmqinspect.system import hdfs
from rmqinspect.system.remote import open_remote
from rmqinspect.system.uri import misshapen

AZURE = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3:///folder/store", "s3:///folder/store: no bucket: s3://BUCKET/PATH"),
        ("s3a://user:SECRET@/store", "s3a://user:…@/store: no bucket: s3://BUCKET/PATH"),
        ("s3://my bucket/store", "s3://my bucket/store: a bucket has no blanks: s3://BUCKET/PATH"),
        ("gs:///store", "gs:///store: no bucket: gs://BUCKET/PATH"),
        ("hdfs://:8020/store", "hdfs://:8020/store: no host: hdfs://HOST:PORT/PATH"),
        ("hdfs://name:http/store", "hdfs://name:http/store: a port that is no number: hdfs://HOST:PORT/PATH"),
        ("abfss:///container/store", f"abfss:///container/store: no account: {AZURE}"),
        ("abfss://account/container", f"abfss://account/container: no account with its domain: {AZURE}"),
        ("abfss://container@account/a", f"abfss://container@account/a: no account with its domain: {AZURE}"),
        (
            "abfss://account.dfs.core.windows.net",
            f"abfss://account.dfs.core.windows.net: no container: {AZURE}",
        ),
        (
            "abfss://account.blob.core.windows.net/",
            f"abfss://account.blob.core.windows.net: no container: {AZURE}",
        ),
        ("abfs://account:SECRET@127.0.0.1:10000/", f"abfs://account:…@127.0.0.1:10000: no container: {AZURE}"),
        ("abfss://a@b@account.dfs.core.windows.net/x", f"abfss://a@b@account.dfs.core.windows.net/x: two @: {AZURE}"),
    ],
)
def test_a_uri_of_a_wrong_shape_is_told_at_once(uri: str, words: str) -> None:
    with pytest.raises(NotAStore) as told:
        open_remote(uri)
    assert str(told.value) == words


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("abfss://container@account.dfs.core.windows.net/a/b", "container/a/b"),
        ("abfss://account.dfs.core.windows.net/container/a", "container/a"),
        ("abfss://account.blob.core.windows.net/container/a", "container/a"),
        ("abfs://account:a2V5@127.0.0.1:10000/container/a", "container/a"),
        ("gs://anonymous@bucket/a", "bucket/a"),
    ],
)
def test_where_a_uri_leads(uri: str, path: str) -> None:
    assert open_remote(uri).path == path


@pytest.mark.parametrize("place", ["", "name", "name:8020", "user@name:8020", "[::1]:8020", "[::1]"])
def test_places_of_hdfs(place: str) -> None:
    assert misshapen("hdfs", place, "/store") == ""


def test_hdfs_without_a_host_needs_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "missing", lambda: "")
    monkeypatch.setattr(hdfs, "prepare", lambda: 2)
    monkeypatch.setenv("CLASSPATH", f"{tmp_path}:{tmp_path}/some.jar")
    with pytest.raises(NotAStore, match=r"no host, and no fs\.defaultFS in a core-site\.xml of CLASSPATH"):
        open_remote("hdfs:///store")
    assert not hdfs.has_default()
    (tmp_path / "core-site.xml").write_text("<name>fs.defaultFS</name><value>hdfs://name:8020</value>")
    assert hdfs.has_default()
