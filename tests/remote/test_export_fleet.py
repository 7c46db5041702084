"""Exports of many stores behind an S3 server, by tasks of Spark: the files of the local engine, whatever fails once."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqinspect.cli import ExitStatus, export_stores, main
from rmqinspect.system.output_folder import open_folder
from tests.support import oracle
from tests.support.building import fill, lay, pad, various, write_segment
from tests.support.s3_server import CREDENTIALS, Server, Way, gate, serving
from tests.support.sparks import MASTER, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = quiet

SMALL = 7
MOST = 6  # failures: the client waits half a second and more for each
# Two large ones, by --file-size, and small ones; one has damage.
WISH = ("--file-size", "64K", "--table", "messages", "--table", "queues", "--fail-on", "never", "--no-progress")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("stores")
    with pytest.MonkeyPatch.context() as patch, serving() as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        for number in range(SMALL):
            write_segment(folder / f"s{number}" / "commitlog", pad(fill(lay(various(3 + number)), 4096), 4096))
            server.upload(folder / f"s{number}", f"stores/s{number}")
        server.upload(oracle.store("broker", "main-5.3.3"), "stores/whole")
        server.upload(oracle.store("crash", "flip_body_third-4.7.1-c"), "stores/flipped")
        yield server


def stores(server: Server) -> list[str]:
    """Return the stores with the password in their URIs: the workers' environment is that of the first test."""
    names = ["s0", "whole", *(f"s{number}" for number in range(1, SMALL)), "flipped"]
    return [server.uri(f"stores/{name}").replace("s3://", "s3://testing:testing@") for name in names]


def lake(server: Server, name: str) -> str:
    return server.uri(name).replace("s3://", "s3://testing:testing@")


def export(words: list[str], to: str, engine: tuple[str, ...]) -> int:
    return main(["export", *words, *WISH, *engine, "-o", to])


def content(uri: str) -> dict[str, Any]:
    """Return the files of an export by name; of the manifest all but the object `run`."""
    folder = open_folder(uri)
    found: dict[str, Any] = {name: folder.read(name) for name in folder.names()}
    return found | {"_manifest.json": json.loads(found["_manifest.json"]) | {"run": None}}


LOCAL, SPARK = ("--engine", "local", "-j", "2"), ("--master", MASTER)


def test_the_files_are_the_local_engine_s_though_some_requests_fail_and_some_stores_cannot_be_read(
    spark: "SparkSession",
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The service asks for patience, or a connection has gone stale: the request is made again.

    A large store refuses to be read, another is not there.
    """
    asked: Counter[str] = Counter()
    failed: list[Way] = []

    def judge(line: str) -> Way:
        if "flipped" in line:
            return "refuse"
        asked[line] += 1
        failing = asked.total() % 17 == 0 and asked[line] == 1 and len(failed) < MOST
        if failing:
            failed.append(("busy", "drop")[len(failed) % 2])
        return failed[-1] if failing else "pass"

    name = tmp_path.name
    with gate(server, judge, attempts=4) as shaky:
        given = [*stores(shaky), lake(shaky, "stores/absent"), "--skip-unreadable"]
        with monkeypatch.context() as patch:
            for opening in ("_open_and_survey", "_open_in_turn"):
                patch.setattr(export_stores, opening, lambda *_, **__: 1 / 0)
            assert export(given, lake(shaky, f"{name}/spark"), SPARK) == ExitStatus.UNREADABLE
        assert len(failed) == MOST
        told = capsys.readouterr()
        assert export(given, lake(shaky, f"{name}/local"), LOCAL) == ExitStatus.UNREADABLE
        found, expected = (content(lake(server, f"{name}/{engine}")) for engine in ("spark", "local"))
    assert found == expected
    assert sum(name.endswith(".parquet") for name in found) > 2 * SMALL
    assert len(found["_manifest.json"]["stores"]) == SMALL + 1
    assert [store["name"] for store in found["_manifest.json"]["skipped"]] == ["flipped", "absent"]
    assert "flipped: permission denied; skipped" in told.err
    assert "absent: no such file or directory; skipped" in told.err
