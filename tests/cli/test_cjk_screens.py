"""Chinese topics on every labelled screen: widths are cells, so no line is too wide and all texts are in a column."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqinspect.cli.terminal import WIDTH
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.text import cell_width
from tests.support.building import fill, lay, record, write_segment
from tests.support.command import Run, runner

TOPICS = [f"订单中心支付成功通知主题第{number}组" for number in "一二三四五六七八"]
KEYS = "钥匙" * 15

run = runner()


def make_store(root: Path, topics: Sequence[str] = TOPICS, *, damaged: bool = False) -> Path:
    """Write a store of one record per topic; `damaged`: with a flipped bit in the body of the second."""
    raw = bytearray(fill(lay([{"topic": topic, "properties": {"KEYS": KEYS}} for topic in topics]), 16384))
    start = 0
    for number, topic in enumerate(topics):
        size = int.from_bytes(raw[start : start + 4])
        if damaged and number == 1:
            raw[raw.index(b"Hello", start)] ^= 1
        unit = QueueUnit.build({"physical_offset": start, "size": size, "tags_code": 0})
        queue = root / "consumequeue" / topic / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020}").write_bytes(unit + bytes(280))
        start += size
    write_segment(root / "commitlog", bytes(raw))
    return root


def assert_in_columns(out: str, indent: int) -> None:
    """Assert that no line but a command is too wide, and that what follows a label is in its column."""
    lines = [line for line in out.splitlines() if "rmqinspect " not in line]
    assert not [line for line in lines if cell_width(line) > WIDTH]
    continued = [line for line in lines if line.startswith(" " * indent)]
    assert continued, "nothing was folded: the test proves nothing"
    assert all(line[indent] != " " for line in continued if line.startswith(" " * indent + TOPICS[0][:4]))


LONG = "订单" * 20


@pytest.mark.parametrize(
    ("words", "topics", "damaged", "status", "told", "indent"),
    [
        ("info 仓库", [LONG], False, 0, f"deepest {LONG} queue 0: 0 to 1", 14),
        ("verify 仓库 -j 1", TOPICS, True, 3, f"{TOPICS[1]} queue 0 offset 0, key", 13),
        ("show 仓库 --at 0", TOPICS, False, 0, f"topic {TOPICS[0]}", 14),
        ("diff 仓库 other", TOPICS, False, 3, TOPICS[4], 13),
        (f"explain TAGS {'付款' * 20}", TOPICS, False, 0, "TAGS", 13),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) and " " in value else "",
)
def test_a_screen_keeps_its_columns(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    topics: Sequence[str],
    damaged: bool,
    status: int,
    told: str,
    indent: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "仓库", topics, damaged=damaged)
    make_store(tmp_path / "other", ["one"])
    found, out, _ = run(*words.split())
    assert (found, told in " ".join(out.split())) == (status, True)
    assert_in_columns(out, indent)


def test_show_of_a_property_with_a_chinese_name(run: Run, tmp_path: Path) -> None:
    write_segment(tmp_path, record(0, properties={"属性": "值", "KEYS": "K"}) + bytes(9000))
    _, out, _ = run("show", tmp_path, "--at", "0")
    columns = [line[: line.index(value)] for line in out.splitlines() for value in ("值", "K") if line.endswith(value)]
    assert len({cell_width(column) for column in columns if "  属性" in column or "KEYS" in column}) == 1


def test_show_of_a_chinese_body(run: Run, tmp_path: Path) -> None:
    write_segment(tmp_path, record(0, body="付款成功".encode() * 40) + bytes(9000))
    _, out, _ = run("show", tmp_path, "--at", "0", "--body", "full")
    assert "付款成功" * 40 in "".join(out.split())
    assert_in_columns(out, 14)


def test_verify_against_a_report(run: Run, tmp_path: Path) -> None:
    store, report = make_store(tmp_path / "s"), tmp_path / "r.json"
    run("verify", store, "--report", report, "--hash", "sha256", "-j", "1")
    (store / ("订单" * 20 + " " + "付款" * 20)).touch()
    status, out, _ = run("verify", store, "--against", report)
    assert status == 3
    assert out.startswith("added    订单")
    assert_in_columns(out, 9)


def test_export(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = make_store(tmp_path / "s", damaged=True)
    status, out, _ = run("export", f"仓库={store}", "-o", "湖", "--engine", "local", "-j", "1")
    assert status == 3
    assert "damaged   1 row has status body_crc (仓库, physical offset" in out
    assert "湖/_manifest.json: 1 file, 8 rows" in out
