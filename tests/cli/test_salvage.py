"""`salvage` from the command line: exit statuses, the receipt, what is refused, what is seen of a bridge afterwards."""

import json
import shutil
from pathlib import Path

import pytest

from rmqinspect.document import typed
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.rescue.receipt import as_json
from rmqinspect.rescue.salvage_receipt import SalvageReceipt
from tests.support import command
from tests.support.command import Run
from tests.support.samples import sample

run = command.runner("salvage")
run_any = command.runner()


def test_what_is_repaired_in_full_is_a_success(run: Run, tmp_path: Path) -> None:
    status, out, err = run(str(sample("flipped-bit-5.3.3")), "-o", str(tmp_path / "new"))
    assert status == 0
    repaired = "97 187: BatchTopic queue 1 offset 13: BODY bit 5, 48 -> 68: BODYCRC names this bit of the body"
    assert f"repaired {repaired}" in " ".join(out.split())
    assert out.rstrip().endswith("all bytes read")
    assert f"made: {tmp_path}/new, {tmp_path}/new.receipt.json\n" in err
    raw = (tmp_path / "new.receipt.json").read_bytes()
    assert as_json(typed(json.loads(raw), SalvageReceipt)) == raw


def test_what_is_lost_is_no_full_success(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(str(sample("zeroed-page-4.7.1")), "-o", str(tmp_path / "new"))
    assert status == 3
    assert "lost        BatchTopic queue 0 offsets 14-17; 15 messages kept" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "new.aside", "new.receipt.json"]


def test_a_dry_run_writes_nothing(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(str(sample("zeroed-page-4.7.1")), "-o", str(tmp_path / "new"), "--dry-run")
    assert status == 3
    assert "nothing is written (--dry-run)" in out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_needs_no_place(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(str(sample("flipped-bit-5.3.3")), "--dry-run")
    assert status == 0
    assert out.startswith("new store   NEW, ")
    status, _, err = run(str(sample("flipped-bit-5.3.3")))
    assert status == 2
    assert "only --dry-run goes without" in err


def test_room_for_what_goes_aside_is_needed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(NewStore, "check_room", lambda new, size: asked.append(size))
    store = shutil.copytree(sample("flipped-bit-5.3.3"), tmp_path / "store")
    run(str(store), "-o", str(tmp_path / "one"), "-q")
    path = store / "commitlog/00000000000000065536"
    raw = bytearray(path.read_bytes())
    raw[20_000:60_000] = bytes(range(1, 251)) * 160
    path.write_bytes(raw)
    run(str(store), "-o", str(tmp_path / "two"), "-q")
    assert asked[-1] > asked[0] + 30_000


def test_an_existing_or_nested_place_is_refused(run: Run, tmp_path: Path) -> None:
    store = shutil.copytree(sample("flipped-bit-5.3.3"), tmp_path / "store")
    (tmp_path / "there").mkdir()
    assert run(str(store), "-o", str(tmp_path / "there"))[0] == 6
    assert run(str(store), "-o", str(store / "new"))[0] == 6
    assert run(str(store), "-o", str(store))[0] == 6


def test_a_name_that_no_source_has_cannot_be_preferred(run: Run, tmp_path: Path) -> None:
    status, _, err = run(f"a={sample('healthy-5.5.0')}", "-o", str(tmp_path / "new"), "--prefer", "b")
    assert status == 2
    assert "no source has that name; there are: a." in err


def test_redacted_it_shows_no_byte_of_a_body(run: Run, tmp_path: Path) -> None:
    _, out, _ = run(str(sample("flipped-bit-5.3.3")), "-o", str(tmp_path / "new"), "--redact", "body")
    assert "BODY bit 5, masked" in " ".join(out.split())
    (repair,) = json.loads((tmp_path / "new.receipt.json").read_text())["repaired"]
    assert (repair["before"], repair["after"]) == ("", "")


def test_a_bridge_is_no_message_for_any_command(run_any: Run, tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    assert run_any("salvage", sample("zeroed-page-4.7.1"), "-o", new)[0] == 3
    assert "RMQINSPECT_BRIDGE" not in run_any("decode", new, "-f", "jsonl")[1]
    assert "bridged" in run_any("decode", new, "--table", "gaps", "-f", "jsonl")[1]
    shown = " ".join(run_any("show", new, "--at", "208874")[1].split())
    assert "no message: a salvage wrote it in the place of what could not be saved" in shown
    assert "RMQINSPECT" not in run_any("usage", new)[1]
    assert "CL-BRIDGED" in run_any("verify", new)[1]
