"""What the commands print, word for word: `tests/golden/<store>/<name>.txt`, from `transcripts.toml`.

A file holds commands with their exit status, what they print to stderr (marked `> `), and to stdout.
`pytest tests/golden --update-golden` writes the files again; review the diff.
"""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from rmqinspect.cli import VERBS, main
from rmqinspect.tables import TABLES
from tests.support import oracle
from tests.support.documents import RUN
from tests.support.samples import NAMES, sample

GOLDEN = Path(__file__).parent
_LISTED: dict[str, dict[str, str | list[str]]] = tomllib.loads((GOLDEN / "transcripts.toml").read_text("utf-8"))
_OF_ALL_SAMPLES = _LISTED.pop("samples")
_BY_STORE = dict.fromkeys(NAMES, _OF_ALL_SAMPLES) | {
    store: (_OF_ALL_SAMPLES if store in NAMES else {}) | listed for store, listed in _LISTED.items()
}
SESSIONS = {
    (store, name): [commands] if isinstance(commands, str) else commands
    for store, listed in _BY_STORE.items()
    for name, commands in listed.items()
}

# What differs between machines and days, and what stands for it.
_VARIES = (
    (r"(\"tool\": ?\"rmqinspect) [^\"]+", r"\1 ..."),
    # A copy shares its blocks where the file system can.
    (r"\breflinked\b", "copied"),
    # How much `info` reads depends on whether the file system kept the holes of the store.
    (r"^> read [0-9.]+ \w+$", "> read ..."),
    # Who ran it, where and when.
    (RUN, '"run": ...'),
    # What `export` expects to write depends on the compression library; the rest on the machine and the day.
    (r"about \S+ \w+ to write; free \S+ \w+", "about ... to write; free ..."),
    (r"(differs from the export of) [0-9-]+", r"\1 ..."),
    (r"(lies inside the store) [^;\n]+", r"\1 ..."),
    (r"(recorded on) [0-9T:-]+Z", r"\1 ..."),
    (r"(: written) [0-9T:.-]+Z, (before\s+that)\s+[0-9T:.-]+Z", r"\1 ..., \2 ..."),
)


def _place(name: str) -> Path:
    """Return the folder that holds `store` of a sample or a case."""
    if name in NAMES:
        return sample(name).parent
    return oracle.store(_family(name), name).parent


def _family(name: str) -> oracle.Family:
    families: tuple[oracle.Family, ...] = ("crash", "broker", "rust")
    return next(family for family in families if name in oracle.cases(family))


def _shown(name: str) -> str:
    return f"samples/{name}/store" if name in NAMES else f"{name}/store"


def _lay_out(folder: Path, store: str, steps: list[str]) -> None:
    """Make every store that a session names visible in the folder where it runs; a copy of one that it changes."""
    named = {word.partition("/")[0] for step in steps for word in step.split() if word.endswith("/store")}
    changes = any(step.startswith(("rm ", "flip ")) for step in steps)
    for name in named | ({store} - {"none"}):
        link = (folder / _shown(name)).parent
        link.parent.mkdir(parents=True, exist_ok=True)
        if not (changes and name == store):
            link.symlink_to(_place(name))
        elif name in NAMES:
            shutil.copytree(sample(name), link / "store")
        else:
            oracle.copy(_family(name), name, link)


def _change(words: list[str]) -> bool:
    """Run one of the three words that are no command of rmqinspect; return whether it is one."""
    match words:
        case ["rm", file]:
            Path(file).unlink()
        case ["mkdir", folder]:
            Path(folder).mkdir()
        case ["flip", file, position]:
            raw = bytearray(Path(file).read_bytes())
            raw[int(position)] ^= 1
            Path(file).write_bytes(raw)
        case _:
            return False
    return True


def transcript(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command and return it with everything it prints, as a golden file holds it."""
    if _change(shlex.split(words)):
        return f"$ {words}\n"
    capsys.readouterr()
    try:
        status = int(main(shlex.split(words)))
    except SystemExit as ended:
        status = int(ended.code or 0)
    printed = capsys.readouterr()
    assert printed.out == "" or printed.out.endswith("\n")
    remarks = "".join(f"> {line}\n" for line in printed.err.splitlines())
    text = remarks + printed.out
    for pattern, steady in _VARIES:
        text = re.sub(pattern, steady, text, flags=re.MULTILINE)
    return f"$ rmqinspect {words}    # exit {status}\n{text}"


def _run(store: str, steps: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    _lay_out(folder, store, steps)
    return "\n".join(transcript(step.replace("{}", _shown(store)), capsys) for step in steps)


@pytest.mark.parametrize(("store", "name"), SESSIONS)
def test_a_session_prints_its_transcript(
    store: str,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # the width of help; nothing else depends on it
    now = _run(store, SESSIONS[store, name], tmp_path, capsys)
    file = GOLDEN / store / f"{name}.txt"
    if pytestconfig.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(now, encoding="utf-8")
    assert file.exists(), "no golden file; --update-golden writes it"
    assert now == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", ["40", "300"])
def test_the_terminal_changes_nothing_in_a_pipe(
    columns: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its width, its colours, its language and its time zone."""
    store = "flipped-bit-5.3.3"
    names = [name for name in _BY_STORE[store] if name not in ("export", "salvage")]
    monkeypatch.chdir(tmp_path)
    for name, value in {"COLUMNS": columns, "TERM": "xterm-256color", "LANG": "C", "TZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(name, value)
    _lay_out(tmp_path, store, [])
    for name in names:
        (words,) = SESSIONS[store, name]
        assert transcript(words.replace("{}", _shown(store)), capsys) == (GOLDEN / store / f"{name}.txt").read_text()


def _commands() -> list[list[str]]:
    return [shlex.split(step) for steps in SESSIONS.values() for step in steps]


def test_every_command_has_a_transcript_and_a_help() -> None:
    assert {words[0] for words in _commands()} >= VERBS.keys()
    assert {words[0] for words in _commands() if words[-1] == "--help"} >= VERBS.keys()


def test_every_table_has_a_transcript() -> None:
    shown = {words[words.index("--table") + 1] for words in _commands() if "--table" in words}
    assert shown | {"messages"} >= TABLES.keys()


def test_at_least_ten_stores_have_transcripts() -> None:
    assert len(_BY_STORE.keys() - {"none"}) >= 10
    assert _BY_STORE.keys() >= set(NAMES)


def test_every_golden_file_belongs_to_a_session() -> None:
    files = {(path.parent.name, path.stem) for path in GOLDEN.rglob("*.txt")}
    assert files == SESSIONS.keys()
