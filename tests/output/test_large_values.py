"""A large body is written in pieces; the output is the same, byte for byte."""

import re
import zlib
from pathlib import Path

import pytest

from rmqinspect.output import View, rows, writer_of
from rmqinspect.tables import messages
from rmqinspect.tables import record_columns as bodies
from rmqinspect.tables.log import messages_in
from rmqinspect.tables.request import Request
from tests.support.building import lay, write_segment
from tests.support.documents import RUN

BODIES = [
    b"plain text",
    b'"quoted", and\r\nmore than one line',
    b" blanks at the ends ",
    b"blank at the end ",
    "Umlaute äöü und 漢字 und 🚀".encode(),
    "\u202e hostile \u2028".encode(),
    bytes(20),
    b"\x1b[31m red",
    bytes(range(256)),
    b"valid until the end \xe4\xbd",
    b"",
]


class Pieces:
    """The stream of a writer, which keeps each write apart."""

    closed = False
    is_file = True

    def __init__(self) -> None:
        self.all: list[bytes] = []

    def write(self, content: bytes | memoryview) -> int:
        """Keep a piece."""
        self.all.append(bytes(content))
        return len(content)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return sum(map(len, self.all))

    def flush(self) -> None:
        """Nothing is buffered."""


def written(name: str, segment_folder: Path) -> list[bytes]:
    """Return the table messages of a log with all bodies, in a format."""
    segment = write_segment(segment_folder, lay([{"body": body} for body in BODIES]))
    out = Pieces()
    writer = writer_of(name)(messages.SCHEMA, out, View())
    for batch in messages_in([segment], Request()):
        writer.write(batch)
    writer.finish()
    return out.all


@pytest.mark.parametrize("name", ["jsonl", "json", "csv"])
@pytest.mark.parametrize("size", [3, 6, 21])
def test_pieces_of_a_large_body_give_the_same_text(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = written(name, tmp_path)
    monkeypatch.setattr(rows, "LARGE", 0)
    monkeypatch.setattr(rows, "_SLICE_SIZE", 1)
    monkeypatch.setattr(rows, "_PIECE", size)
    pieces, at_once = (re.sub(RUN, "", b"".join(one).decode()) for one in (written(name, tmp_path), whole))
    assert pieces == at_once


@pytest.mark.parametrize("name", ["jsonl", "json", "csv"])
def test_no_write_is_much_larger_than_a_piece(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.BODIES", [bytes(30_000), b"x" * 30_000])
    monkeypatch.setattr(rows, "LARGE", 1000)
    monkeypatch.setattr(rows, "_SLICE_SIZE", 1000)
    monkeypatch.setattr(rows, "_PIECE", 300)
    assert max(map(len, written(name, tmp_path))) <= 6 * 300


def test_a_batch_holds_one_payload_beyond_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BATCH_SIZE", 6000)
    bombs = [{"body": zlib.compress(bytes(5000)), "sys_flag": 1}] * 12
    batches = list(messages_in([write_segment(tmp_path, lay(bombs))], Request()))
    assert sum(batch.num_rows for batch in batches) == len(bombs)
    assert max(batch.column("body").nbytes for batch in batches) < 6000 + 5000 + 100
