"""The type of a file without its folder, read through the one reader of evidence."""

import errno
import os
from pathlib import Path

import pytest

from rmqinspect.cli import ExitStatus, main
from rmqinspect.store.file_type import file_type
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import FileReader
from tests.support import oracle

SEGMENT = oracle.store("broker", "main-5.3.3") / "commitlog" / f"{0:020}"


def named(path: Path) -> StoreFile:
    return StoreFile(str(path), path.name, path.stat().st_size, "other")


def test_what_a_look_reads_is_counted_and_so_kept_within_the_rate() -> None:
    before = FileReader.bytes_read
    assert file_type(named(SEGMENT)) == "segment"
    assert FileReader.bytes_read - before == 4096


@pytest.mark.parametrize("size", [1, 7, 8, 20, 39, 46, 51, 52, 100])
def test_data_that_ends_within_a_struct_has_no_type(tmp_path: Path, size: int) -> None:
    """The first bytes that are no zeros may lie just before the end of the file."""
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(4096) + b"\1" * size)
    assert file_type(named(path)) in (None, "queue", "batch_queue")


def test_an_io_error_has_the_file_and_the_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(4096) + b"\1" * 4096)

    def fail_behind_a_page(descriptor: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if offset + len(buffers[0]) > 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.readv(descriptor, buffers)

    monkeypatch.setattr(os, "preadv", fail_behind_a_page)
    assert main(["info", str(path)]) == ExitStatus.UNREADABLE
    assert f"{path} at 4096 (0x1000): Input/output error" in capsys.readouterr().err
