"""A broker.conf is read as Java reads it."""

from pathlib import Path

import pytest

from rmqinspect.cli import ExitStatus, main
from rmqinspect.errors import BadOption, NotAStore, Unreadable
from rmqinspect.store.broker_conf import odd_settings, read_settings
from rmqinspect.store.discover import open_store
from tests.support import oracle


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("name=value", "value"),
        ("name = value", "value"),
        ("name: value", "value"),
        ("name value", "value"),
        ("  name\t=\tvalue  ", "value"),
        ("name = /a/b,\\\n       /c", "/a/b,/c"),
        ("name = \\u0041\\=\\:", "A=:"),
        ("name = a\nname = b", "b"),
        ("# name = x\n! name = y\nname = z", "z"),
        ("name", ""),
        ("na\\ me = x\nname = a=b:c", "a=b:c"),
    ],
)
def test_lines_are_read_as_java_reads_them(tmp_path: Path, line: str, value: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(line)
    assert read_settings(str(path))["name"] == value


def test_bytes_are_latin_1_as_in_java(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"storePathRootDir=/caf\xe9")
    assert read_settings(str(path)) == {"storePathRootDir": "/caf\xe9"}


def test_a_number_that_is_none_is_odd(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("timerPrecisionMs: 1s\nmappedFileSizeTimerLog=0\nmaxIndexNum=1\\\n2\nmaxHashSlotNum=\nbrokerName=x")
    odd = odd_settings(str(path))
    assert odd == [("mappedFileSizeTimerLog", "0"), ("maxHashSlotNum", ""), ("timerPrecisionMs", "1s")]


def test_a_malformed_escape_is_our_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=\\u12x4")
    with pytest.raises(BadOption, match="malformed escape"):
        read_settings(str(path))
    store = str(oracle.store("broker", "main-5.3.3"))
    assert main(["info", store, "--config", str(path)]) == ExitStatus.USAGE
    assert "not a Java properties file" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        read_settings(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storePathRootDir = /nowhere/store", "the store it names does not exist: /nowhere/store"),
        ("storePathCommitLog = /nowhere/a,/nowhere/b", "the store it names does not exist: /nowhere/a, /nowhere/b"),
        ("brokerName = a", "names no store"),
    ],
)
def test_a_file_that_leads_to_no_store_says_why(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    with pytest.raises(NotAStore, match=message):
        open_store([], config=str(path))
