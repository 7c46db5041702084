"""What the commands print for the samples, word for word: `tests/golden/<sample>/<name>.txt`.

A file is the command with its exit status, what it says on stderr (marked `> `), and what it prints.
`pytest tests/golden/test_golden.py --update-golden` writes them anew; the diff is then to be reviewed.
"""

import re
import shlex
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from rmqinspect.cli import VERBS, main
from tests.support.samples import NAMES, ROOT, SAMPLES

GOLDEN = Path(__file__).parent

# `{}` is the sample's store. One process: how many there are by default depends on the machine.
FOR_ALL = {
    "info": "info {}",
    "verify": "verify {} -j 1",
    "deep": "verify {} -j 1 --level deep",
    "decode": "decode {} -n 5 -j 1",
    "segments": "decode {} --table segments -j 1",
}
FOR_ONE = {
    ("healthy-4.9.7", "show"): "show {} --at 525",
    ("healthy-4.9.7", "gaps"): "decode {} --table gaps -j 1",
    ("healthy-5.5.0", "show"): "show {} --at 86000",
    ("healthy-5.5.0", "show-zeros"): "show {} --at 240000",
    ("killed-4.9.7", "show"): "show {} --at 0",
    ("killed-4.9.7", "groups"): "decode {} --table groups -f csv",
    ("killed-4.9.7", "id"): "id 7F000001000055970000000000038270",
    ("flipped-bit-5.3.3", "show"): "show {} --at 97513",
    ("flipped-bit-5.3.3", "show-damaged"): "show {} --at 97187",
    ("flipped-bit-5.3.3", "range"): "decode {} --offset 96253..97955 -j 1 -f jsonl"
    " --columns physical_offset,topic,keys,status",
    ("flipped-bit-5.3.3", "quick"): "verify {} --level quick",
    ("zeroed-page-4.7.1", "show"): "show {} --at 213167",
    ("zeroed-page-4.7.1", "show-damaged"): "show {} --at 208874",
    ("zeroed-page-4.7.1", "gaps"): "decode {} --table gaps -j 1",
    ("flipped-bit-5.3.3", "explain"): "explain CL-CRC-BODY",
    ("flipped-bit-5.3.3", "explain-flag"): "explain sysFlag 0x1c",
    ("flipped-bit-5.3.3", "explain-line"): "explain 'found a illegal magic code 0x66666'",
    ("zeroed-page-4.7.1", "findings"): "verify {} -j 1 -f csv",
}
COMMANDS = {(sample, name): words for sample in NAMES for name, words in FOR_ALL.items()} | FOR_ONE
# What writes files: commands in this order on a copy of the sample, and what happens to the copy between them.
_EXPORT = "export broker-a={} -o lake --engine local -j 1"
EXPORTS: dict[tuple[str, str], list[str | Callable[[Path], None]]] = {
    ("healthy-5.5.0", "export"): [_EXPORT, _EXPORT, f"{_EXPORT} --incremental"],
    ("healthy-5.5.0", "export-hole"): [lambda store: _segment(store, 1).unlink(), f"{_EXPORT} --table gaps"],
    ("flipped-bit-5.3.3", "export"): [
        f"{_EXPORT} --closed-only",
        f"{_EXPORT} --incremental --fail-on never",
        lambda store: _change(_segment(store, 1), 100),
        f"{_EXPORT} --incremental --fail-on never",
        f"{_EXPORT} --incremental --replace-changed --fail-on never",
    ],
    ("zeroed-page-4.7.1", "export"): [f"{_EXPORT} --table messages --table gaps --table findings"],
}
COMMANDS = {case: words for case, words in COMMANDS.items() if find_spec(VERBS[words.split()[0]].module) is not None}


def transcript(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command and return it with all it says, as a golden file holds it."""
    capsys.readouterr()
    status = main(shlex.split(words))
    printed = capsys.readouterr()
    # How much `info` reads depends on whether the file system kept the holes of the sample.
    remarks = re.sub(r"^read [0-9.]+ \w+$", "read ...", printed.err, flags=re.MULTILINE)
    # What `export` expects to write depends on the compression library, what is free on the machine, a day on today.
    remarks = re.sub(r"about \S+ \w+ to write; free \S+ \w+", "about ... to write; free ...", remarks)
    remarks = re.sub(r"(differs from the export of) [0-9-]+", r"\1 ...", remarks)
    said = "".join(f"> {line}\n" for line in remarks.splitlines())
    assert printed.out == "" or printed.out.endswith("\n")
    return f"$ rmqinspect {words}    # exit {int(status)}\n{said}{printed.out}"


def _segment(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def _change(file: Path, position: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[position] ^= 1
    file.write_bytes(raw)


@pytest.mark.parametrize(("sample", "name"), EXPORTS)
def test_an_export_says_what_it_did(
    sample: str,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    store = tmp_path / "samples" / sample / "store"
    shutil.copytree(SAMPLES / sample / "store", store)
    monkeypatch.chdir(tmp_path)
    parts = []
    for step in EXPORTS[sample, name]:
        if isinstance(step, str):
            parts.append(transcript(step.format(f"samples/{sample}/store"), capsys))
        else:
            step(store)
    _compare_with_golden(sample, name, "\n".join(parts), pytestconfig)


@pytest.mark.parametrize(("sample", "name"), COMMANDS)
def test_a_command_prints_what_it_did(
    sample: str,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.chdir(ROOT)
    now = transcript(COMMANDS[sample, name].format(f"samples/{sample}/store"), capsys)
    _compare_with_golden(sample, name, now, pytestconfig)


def _compare_with_golden(sample: str, name: str, now: str, pytestconfig: pytest.Config) -> None:
    file = GOLDEN / sample / f"{name}.txt"
    if pytestconfig.getoption("--update-golden"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(now, encoding="utf-8")
    assert file.exists(), "no golden file; --update-golden writes it"
    assert now == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", ["40", "300"])
def test_the_width_of_the_terminal_and_its_colours_change_nothing_in_a_pipe(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    words = {case: words.format(f"samples/{case[0]}/store") for case, words in COMMANDS.items()}
    words = {case: text for case, text in words.items() if case[0] == "flipped-bit-5.3.3"}
    before = {case: transcript(text, capsys) for case, text in words.items()}
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert {case: transcript(text, capsys) for case, text in words.items()} == before


def test_every_golden_file_belongs_to_a_command() -> None:
    files = {(path.parent.name, path.stem) for path in GOLDEN.rglob("*.txt")}
    assert files <= {(sample, name) for sample in NAMES for name in FOR_ALL} | FOR_ONE.keys() | EXPORTS.keys()
