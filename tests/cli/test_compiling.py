"""What a user sees of compiling: nothing on small stores, one line where it takes long, with -v why it fails."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqinspect.cli.terminal import Progress, compiling_told
from rmqinspect.codec import compiling, kernels
from tests.support.samples import ROOT, sample

STORE = str(sample("healthy-4.9.7"))

# Compiling takes a while, and then the source runs as it is.
_SLOWLY = """
import time
from rmqinspect.codec import compiling, kernels
def compile(_, function, parameters):
    time.sleep(0.2)
    return lambda *arguments: function(*map(kernels._as_view, arguments))
compiling.PATIENCE = 0.05
compiling.Compiling._load = lambda _: True
compiling.Compiling._jit = compile
"""
_ANSWERS = "import sys; print('numba' in sys.modules, 'llvmlite' in sys.modules)"


def run(*words: str, before: str = "", after: str = "", mode: str = "always", **environment: str) -> tuple[str, str]:
    """Run a command in a process of its own; return stdout and stderr."""
    code = f"{before}\nfrom rmqinspect.cli import main\nassert main({list(words)!r}) == 0\n{after}"
    settings = os.environ | {compiling.MODE: mode, **environment}
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=settings, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def test_a_small_store_and_help_load_no_compiler() -> None:
    assert run("verify", STORE, after=_ANSWERS, mode="auto")[0].endswith("False False\n")
    assert run("verify", "--help", after=_ANSWERS)[0].endswith("False False\n")


def test_long_compiling_is_told_once_and_data_is_left_alone() -> None:
    words = ("decode", STORE, "-f", "jsonl", "-j", "1")
    nowhere = {"NUMBA_CACHE_DIR": "/dev/null/cache"}  # then nothing is loaded, and nothing kept
    out, err = run(*words, before=_SLOWLY, **nowhere)
    assert err.splitlines().count("compiling (once)") == 1
    plain = run(*words, mode="never")
    assert (out, err.replace("compiling (once)\n", "")) == plain
    assert run(*words, "-q", before=_SLOWLY, **nowhere) == (plain[0], "")


def test_without_numba_the_rows_are_the_same_and_v_says_why_it_is_slow(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('no wheel')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    words, remark = (
        ("decode", STORE, "-f", "jsonl", "-j", "1"),
        "loops are not compiled, and slow: numba cannot be used: no wheel\n",
    )
    plain = run(*words, mode="never")
    broken = {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run(*words, **broken) == plain
    out, err = run(*words, "-v", **broken)
    assert out == plain[0]
    assert err.count(remark) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_line_takes_the_place_of_the_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with compiling_told(quiet=False, verbose=0):
        assert kernels._compiling.say is not None
        kernels._compiling.say("compiling (once)")
    assert kernels._compiling.say is None
    assert sys.stderr.getvalue() == "\r\x1b[Kcompiling (once)\n"


def test_remarks_fold_at_words_on_a_terminal_and_are_one_line_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    words = "config/topics: not read: a RocksDB database\x1b"
    for stream, printed in (
        (Terminal(), "config/topics: not read: a\nRocksDB database\\x1b\n"),
        (io.StringIO(), "config/topics: not read: a RocksDB database\\x1b\n"),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        Progress(0).complain(words)
        assert stream.getvalue() == printed
