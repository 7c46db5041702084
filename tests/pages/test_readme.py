"""README.md and the pages in docs/: commands, options, statuses, transcripts, links and Python examples work."""

import re
import shutil
from pathlib import Path

import duckdb
import pytest

from rmqinspect.cli import MEANINGS, VERBS, ExitStatus, main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def _blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_table_of_commands_has_every_verb() -> None:
    assert re.findall(r"^\| `rmqinspect (\w+)", README, re.MULTILINE) == list(VERBS)


def test_the_table_of_statuses_is_that_of_the_command_line() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README, re.MULTILINE)
    assert rows == [(str(int(status)), MEANINGS[status]) for status in ExitStatus]


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("README.md", ExitStatus.DAMAGE),
        ("docs/usage.md", ExitStatus.DONE),
        ("docs/forecast.md", ExitStatus.DAMAGE),
        ("docs/fleet.md", ExitStatus.DAMAGE),
    ],
)
def test_the_transcript_is_what_the_command_prints(
    page: str, status: ExitStatus, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for block in _blocks("text", page):
        command, printed = block.split("\n", 1)
        assert main(command.split()[2:]) == status
        assert capsys.readouterr().out == printed


def test_the_transcript_of_an_export_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command, printed = _blocks("text", "docs/export.md")[0].split("\n", 1)
    sample = next(re.finditer(r"samples/\S+", command))[0]
    shutil.copytree(ROOT / sample, tmp_path / sample)
    monkeypatch.chdir(tmp_path)
    assert main(command.split()[2:]) == ExitStatus.DAMAGE
    assert capsys.readouterr().out == printed
    (query,) = re.findall(r'^duckdb -c "(.+)"$', "".join(_blocks("sh", "docs/export.md")), re.MULTILINE)
    rows = duckdb.connect().execute(query).fetchall()
    assert sum(count for _, _, count in rows) == 258
    assert {status for _, status, _ in rows} == {"ok", "carved"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        other = ROOT / page if not path else (ROOT / page).parent / path
        assert other.exists(), target
        headings = re.findall(r"^#+ (.+)$", other.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        anchors = [re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings]
        assert not anchor or anchor in anchors, target


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = next(block.strip() for block in _blocks("sh") if "pytest" in block)
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_documented_option_exists(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in "\n".join(_blocks("sh", page)).splitlines():
        words = re.sub(r"^[A-Z_]+=\S+ ", "", line.split("  #")[0]).split(" | ")[0].split()
        if words[:1] == ["rmqinspect"]:
            main([words[1], "--help"])
            help_text = capsys.readouterr().out
            for option in (word for word in words if re.match(r"--?[a-z]", word)):
                assert re.search(rf"(^|\s|,){re.escape(option)}\b", help_text), line
