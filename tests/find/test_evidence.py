"""`find --evidence`: what a stranger can check with the files of the store alone, and what is said of a miss."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmqinspect.find.evidence
from rmqinspect.document import page_rows
from rmqinspect.find.evidence_document import Evidence
from rmqinspect.store.digest import sha256_of
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.documents import fields, page_of, table_of
from tests.support.samples import sample

find = runner("find")
FLIPPED = sample("flipped-bit-5.3.3")
PAGE = page_of("evidence")
CHECK = PAGE.split("```python\n", 1)[1].split("```", 1)[0]


def evidence(find: Run, out: Path, *words: object, status: int = 0) -> dict[str, Any]:
    """Return the evidence of a search that ends with a status."""
    assert find(*map(str, words), "--evidence", str(out))[0] == status
    document: dict[str, Any] = json.loads(out.read_bytes())
    return document


def checked(folder: Path, document: Path, *stores: str) -> tuple[int, str]:
    """Return the status of the page's program, and the last line that it says; it sees nothing of this project."""
    program = folder / "check.py"
    program.write_text(CHECK, encoding="utf-8")
    words = [sys.executable, "-I", str(program), str(document), *stores]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env={})
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


STORES = (
    (FLIPPED, ("-k", "B98_1", "-k", "B98_0", "-k", "nothing"), 3),
    (oracle.store("broker", "dledger-5.3.3"), ("-n", "5"), 0),
    (oracle.store("broker", "main-5.5.0"), ("--scan", "-n", "30"), 0),
    (oracle.store("broker", "rocksdb-5.4.0"), ("-n", "5"), 0),
)


@pytest.mark.parametrize(("store", "words", "status"), STORES, ids=[store.parent.name for store, *_ in STORES])
def test_another_program_finds_it_in_the_files(
    find: Run, tmp_path: Path, store: Path, words: tuple[str, ...], status: int
) -> None:
    name = f"it={store}"
    document = evidence(find, tmp_path / "E.json", name, *words, status=status)
    assert document["complete"]
    assert document["records"]
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(store, elsewhere)
    says = f"{document['answer']}: {len(document['records'])} records, as in the files"
    assert checked(tmp_path, tmp_path / "E.json", f"it={elsewhere}") == (0, says)
    for record in document["records"]:
        raw = base64.b64decode(record["bytes"])
        assert int.from_bytes(raw[:4], "big") == record["size"] == len(raw)
    changed = elsewhere / document["records"][-1]["file"]
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    assert checked(tmp_path, tmp_path / "E.json", f"it={elsewhere}")[0] == 1


def test_what_leads_to_a_record_is_there_with_its_key(find: Run, tmp_path: Path) -> None:
    record = evidence(find, tmp_path / "E.json", FLIPPED, "-k", "B98_1")["records"][0]
    assert [(unit["topic"], unit["queue_id"], unit["queue_offset"]) for unit in record["units"]] == [
        ("BatchTopic", 1, 14)
    ]
    assert [entry["key"] for entry in record["entries"]][1:] == ["B98_1"]
    assert len(record["entries"]) == 2  # the other is that of its id


def test_the_page_lists_every_field(find: Run, tmp_path: Path) -> None:
    listed = [tuple(cells) for cells in table_of(PAGE, "What find writes")]
    rows = [tuple(cell.strip(" `") for cell in row) for row in page_rows(Evidence)]
    assert listed[:-1] == rows
    assert listed[-1][0] == "run"
    document = evidence(find, tmp_path / "E.json", FLIPPED, "-k", "B98_0", "-k", "nothing", status=3)
    del document["run"]
    paths = {path for path, _ in fields(document, ("question", "stores[].statuses"))}
    assert paths <= {path for path, *_ in rows} | {"question.keys", "question.keys_name_ids"}


def test_two_runs_differ_in_the_run_alone(find: Run, tmp_path: Path) -> None:
    first, again = (evidence(find, tmp_path / f"{n}.json", FLIPPED, "-k", "B98_1", "-j", n) for n in ("1", "3"))
    assert first.pop("run") != again.pop("run")
    assert json.dumps(first) == json.dumps(again)


# --- a miss -------------------------------------------------------------------------------------------------


def test_a_miss_says_what_was_searched_and_what_it_does_not_prove(find: Run, tmp_path: Path) -> None:
    store = oracle.store("broker", "retention-4.9.7")
    document = evidence(find, tmp_path / "E.json", store, "-k", "no-such-key", "--scan", status=5)
    (one,) = document["stores"]
    assert (document["answer"], document["records"], one["not_searched"]) == ("NOT FOUND", [], [])
    assert one["log_start"] > 0
    said = "\n".join(document["does_not_prove"])
    assert f"what lay before physical offset {one['log_start']}" in said
    assert "retention deletes" in said
    assert "brokers whose stores are not" in said
    # The ranges are all of the log, and the key is nowhere in them: proved without this tool.
    size = sum(stretch["size"] for stretch in one["searched"])
    assert size == sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    for stretch in one["searched"]:
        raw = (store / stretch["file"]).read_bytes()[stretch["position"] :][: stretch["size"]]
        assert b"no-such-key" not in raw
    assert {stretch["file"] for stretch in one["searched"]} <= {file["file"] for file in one["files"]}


def test_what_no_pointer_leads_to_was_not_searched(find: Run, tmp_path: Path) -> None:
    store = sample("healthy-5.5.0")
    topic = sorted(path.name for path in (store / "consumequeue").iterdir())[0]
    words = ("-t", topic, "--queue", "0", "--queue-offset", "0")
    document = evidence(find, tmp_path / "E.json", store, *words)
    (one,) = document["stores"]
    covered = sum(part["size"] for part in one["searched"]) + sum(
        part["end"] - part["start"] for part in one["not_searched"]
    )
    assert covered == one["log_end"] - one["log_start"]
    assert {part["why"] for part in one["not_searched"]} == {"no pointer leads there; --scan reads it"}
    assert any(file["file"].startswith("consumequeue/") for file in one["files"])


def test_gaps_and_damaged_records_limit_what_is_proved(find: Run, tmp_path: Path) -> None:
    flipped = evidence(find, tmp_path / "1.json", FLIPPED, "-k", "nothing", "--scan", status=5)
    assert "(`statuses`)" in "".join(flipped["proves"])
    zeroed = evidence(find, tmp_path / "2.json", sample("zeroed-page-4.7.1"), "-k", "nothing", "--scan", status=3)
    assert zeroed["stores"][0]["gaps"]
    assert "except in `gaps`" in "".join(zeroed["proves"])
    assert "bytes in `gaps` held" in "".join(zeroed["does_not_prove"])


# --- what is refused ----------------------------------------------------------------------------------------


def test_a_file_that_changes_meanwhile_makes_it_incomplete(
    find: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    shutil.copytree(FLIPPED, store)

    def touching(file: Any) -> str:
        os.utime(file.path)
        return sha256_of(file)

    monkeypatch.setattr(rmqinspect.find.evidence, "sha256_of", touching)
    document = evidence(find, tmp_path / "E.json", store, "-k", "B98_1", status=4)
    assert not document["complete"]
    assert any("changed while it was read" in line for line in document["stores"][0]["unread"])


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("-k", "B98_1", "--redact", "body"), 2, "not with --pull or --redact"),
        (("--pull", "orders", "0", "0"), 2, "not with --pull or --redact"),
        (("-n", "7"), 2, "more than 5 records"),
    ],
)
def test_what_cannot_be_evidence_is_refused(
    find: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], status: int, why: str
) -> None:
    monkeypatch.setattr(rmqinspect.find.evidence, "MOST_RECORDS", 5)
    answered, _, err = find(FLIPPED, *words, "--evidence", str(tmp_path / "E.json"))
    assert (answered, os.listdir(tmp_path)) == (status, [])
    assert why in err


def test_it_is_written_into_no_store_and_over_no_file(find: Run, tmp_path: Path) -> None:
    for target in (tmp_path / "there", FLIPPED / "E.json"):
        (tmp_path / "there").touch()
        assert find(FLIPPED, "-k", "B98_1", "--evidence", str(target))[0] == 6
    assert not (FLIPPED / "E.json").exists()


def test_an_id_of_two_kinds_was_searched_twice(find: Run, tmp_path: Path) -> None:
    offset_id = "7F00000100005597" + f"{97513 + 1:016X}"  # no record begins there
    document = evidence(find, tmp_path / "E.json", FLIPPED, "--id", offset_id, "--scan", status=5)
    (one,) = document["stores"]
    assert {miss["reading"] for miss in document["misses"]} == {"offset msg id", "msg id"}
    (again,) = one["again"]
    assert again["asked"] == f"--id {offset_id}"
    assert sum(part["size"] for part in again["searched"]) == one["log_end"] - one["log_start"]
