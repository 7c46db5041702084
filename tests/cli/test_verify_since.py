"""The words of `verify --since`: on the screen, with digests, and where it is refused."""

import json
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.growing import EARLIER, set_times

run = runner(after=["-j", "1"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = oracle.copy("crash", "none-5.4.0-L", tmp_path)
    set_times(root, EARLIER)
    return root


def test_the_screen_says_what_was_taken_over(run: Run, store: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    run("verify", store, "--report", first, "--hash", "sha256")
    status, screen, told = run(
        "verify", store, "--since", first, "--reread", "10%", "--report", second, "--hash", "sha256"
    )
    assert status == 0
    since = screen[screen.index("since") :]
    assert "taken over are 10 segments" in since
    assert "(10%, seed " in since
    assert "as they were" in since
    assert f"as {first} has them: 10 of 12 segments" in told
    was, now = (json.loads(path.read_text()) for path in (first, second))
    assert now["custody"] == was["custody"]  # digests too: those of what was not read are the earlier ones
    assert now["findings"] == was["findings"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--reread", "5%"], "--reread takes a part of what --since leaves out"),
        (["--since", "REPORT", "--reread", "5"], "a share above 0%"),
        (["--since", "REPORT", "--reread", "101%"], "a share above 0%"),
        (["--since", "REPORT", "--level", "quick"], "level quick reads the end of the log only"),
        (["--since", "REPORT", "--level", "standard"], "--level was deep, and is standard"),
        (["--since", "REPORT", "--max-findings", "5"], "--max-findings was 1000, and is 5"),
        (["--since", "REPORT", "--skip", "CL-TIME"], "--check and --skip"),
        (["--since", "REPORT", "--against", "REPORT"], "--against runs no checks"),
        (["--since", "SEGMENT"], "not a report of verify"),
        (["--since", "REDACTED"], "nothing to go on from"),
    ],
)
def test_it_is_refused_in_one_line(words: list[str], why: str, run: Run, store: Path, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("REPORT", "REDACTED")}
    places["SEGMENT"] = store / "commitlog" / f"{0:020}"
    run("verify", store, "--report", places["REPORT"], "-q")
    run("verify", store, "--report", places["REDACTED"], "-q", "--redact", "keys")
    status, _, told = run("verify", store, *(places.get(word, word) for word in words))
    assert status == 2
    assert why in " ".join(told.split())
