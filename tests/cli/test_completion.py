"""TAB in a shell: commands, options, their values, and the topics of the store on the line."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.cli import main
from tests.support import oracle
from tests.support.samples import ROOT, sample

STORE = sample("killed-4.9.7")
Press = Callable[..., list[str]]


@pytest.fixture
def press_tab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Press:
    """Return a function that completes the last of some words and returns what bash is offered."""

    def press(*words: str | Path) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(["rmqinspect", *map(str, words)]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("_RMQINSPECT_COMPLETE", "bash_complete")
        assert main([]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return press


def test_commands_options_and_their_values(press_tab: Press) -> None:
    assert press_tab("d") == ["plain,decode", "plain,delays", "plain,diff"]
    assert press_tab("decode", "--ta") == ["plain,--table", "plain,--tag"]
    assert press_tab("decode", "--table", "q") == ["plain,queues", "plain,queue_units"]
    assert press_tab("verify", "S", "--level", "d") == ["plain,deep"]
    assert press_tab("verify", "sam") == ["file,sam"]
    assert press_tab("no-command", "x") is not None


@pytest.mark.parametrize("before", [("decode", STORE), ("decode", "-n", "5", STORE, "-q"), ("export", f"a={STORE}")])
def test_topics_are_those_of_the_store_on_the_line(before: tuple[str, ...], press_tab: Press) -> None:
    assert press_tab(*before, "-t", "P") == ["plain,PalletTimer", "plain,ParcelLog", "plain,PaymentFifo"]
    assert press_tab(*before, "--topic", "%D") == ["plain,%DLQ%g_dlq_1"]


def test_topics_without_configuration_are_the_folders_of_queues(tmp_path: Path, press_tab: Press) -> None:
    (tmp_path / "consumequeue" / "orders" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "CURRENT").write_text("a file of RocksDB is no topic")
    assert press_tab("decode", tmp_path, "-t", "") == ["plain,orders"]


def test_a_name_that_means_something_to_a_shell_is_offered_as_a_pattern(tmp_path: Path, press_tab: Press) -> None:
    for name in ("a$(reboot)", "a\x1b[31m", "a\nplain,b", "a b", "订单"):
        (tmp_path / "consumequeue" / name).mkdir(parents=True)
    assert press_tab("decode", tmp_path, "-t", "a") == [
        "plain,a??31m",
        "plain,a??reboot?",
        "plain,a?b",
        "plain,a?plain,b",
    ]
    assert press_tab("decode", tmp_path, "-t", "订") == ["plain,订单"]


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[1]", b"\0" * 100, b'{"topicConfigTable":3}', b'{"topicConfigTable":{"\\ud800":1}}']
)
def test_a_damaged_store_offers_what_can_be_read(raw: bytes, tmp_path: Path, press_tab: Press) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(raw)
    (tmp_path / "consumequeue").write_text("no folder")
    assert press_tab("decode", tmp_path, "-t", "T") == []
    assert press_tab("decode", tmp_path / "gone", "s3://bucket/store", "-t", "") == []


def test_nothing_is_written() -> None:
    store = oracle.store("broker", "main-5.3.3")
    before = oracle.snapshot(store)
    from rmqinspect.config.json_files import topic_names

    assert "TBW102" in topic_names(str(store))
    assert oracle.differences(before, oracle.snapshot(store)) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_RMQINSPECT_COMPLETE", f"{shell}_source")
    assert main([]) == 0
    assert f"_RMQINSPECT_COMPLETE={shell}_complete" in capsys.readouterr().out
    assert f"_RMQINSPECT_COMPLETE={shell}_source rmqinspect" in (ROOT / "README.md").read_text()


def test_bash_itself_completes_a_topic(tmp_path: Path) -> None:
    command = tmp_path / "rmqinspect"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rmqinspect "$@"\n')
    command.chmod(0o755)
    script = f"""
        PATH={tmp_path}:$PATH
        eval "$(_RMQINSPECT_COMPLETE=bash_source rmqinspect)"
        complete -p rmqinspect >/dev/null || exit 9
        COMP_WORDS=(rmqinspect decode {STORE} -t Pay) COMP_CWORD=4
        _rmqinspect_completion rmqinspect
        echo "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (ended.stdout, ended.returncode) == ("PaymentFifo\n", 0), ended.stderr
