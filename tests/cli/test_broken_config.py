"""A configuration file that cannot be read: what is made of it is incomplete (4), unless its copy can be read."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()

# What is asked, and the file that answers it.
READERS = (
    (("groups", "-f", "json"), "consumerOffset.json"),
    (("decode", "--table", "groups", "-f", "json"), "consumerOffset.json"),
    (("decode", "--table", "topics", "-f", "json"), "topics.json"),
    (("decode", "--table", "subscription_groups", "-f", "json"), "subscriptionGroup.json"),
    (("decode", "--table", "delay_offsets", "-f", "json"), "delayOffset.json"),
    (("sql", "-f", "json", "SELECT count(*) FROM topics"), "topics.json"),
)
BROKEN = {"cut": b'{"offsetTable":{', "zeros": bytes(100), "a list": b"[]"}


def _broken(folder: Path, file: str, content: bytes, *, has_copy: bool) -> Path:
    store = folder / "store"
    shutil.copytree(sample("killed-4.9.7"), store)
    config = store / "config"
    shutil.copy(config / file, config / f"{file}.bak")
    (config / file).write_bytes(content)
    if not has_copy:
        (config / f"{file}.bak").unlink()
    return store


@pytest.mark.parametrize("has_copy", [False, True])
@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_made_of_a_broken_file_is_incomplete(kind: str, has_copy: bool, tmp_path: Path, run: Run) -> None:
    for number, (words, file) in enumerate(READERS):
        store = _broken(tmp_path / str(number), file, BROKEN[kind], has_copy=has_copy)
        status, out, err = run(*words, store)
        assert (status, json.loads(out)["complete"]) == ((0, True) if has_copy else (4, False)), (words, err)
        assert file in err
