"""info, forecast and verify of several stores: a line or a document for each, the worst first, none ends the run."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.cli import ExitStatus, worst_status
from rmqinspect.cli.fleet import Answer, table_lines
from rmqinspect.document import typed
from rmqinspect.fleet.summary import StoreRow
from rmqinspect.verify.report import Report
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import NAMES, sample
from tests.support.sampling import rare

run = runner()

STORES = [str(sample(name)) for name in NAMES]
FEW = [STORES[0], STORES[3]]  # one is damaged
VERBS = ("info", "forecast", "verify")


@pytest.fixture
def broken(tmp_path: Path) -> list[str]:
    """Paths that are no stores, and one whose log cannot be opened."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no store\n")
    return [str(tmp_path / name) for name in ("empty", "text", "missing")]


def lines(screen: str) -> list[str]:
    """Return the lines of the stores."""
    return screen.split("\n\n")[0].splitlines()[1:]


def one_of_them(screen: str) -> str:
    """Return the line with the command for the screen of one store."""
    return next(line for line in screen.splitlines() if line.startswith("one of them"))


# --- the screen -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_line_for_each_store_and_one_for_each_that_fails(run: Run, verb: str, broken: list[str]) -> None:
    level = ("--level", "quick") if verb == "verify" else ()
    status, out, err = run(verb, *STORES, *broken, "-j", "3", *level)
    assert status == (ExitStatus.UNREADABLE if verb == "info" else ExitStatus.DAMAGE)
    names = [line.split("  ")[0] for line in lines(out)]
    assert sorted(names) == sorted([*(f"{name}/store" for name in NAMES), "empty", "text", "missing"])
    failed = [line for line in lines(out) if "not read: " in line]
    assert [line.split("  ")[0] for line in failed] == ["empty", "text", "missing"]  # alike: in the order given
    assert f"{len(NAMES) + 3} stores, " in out
    assert err == ""


def test_the_worst_is_first_and_its_screen_is_named(run: Run, broken: list[str]) -> None:
    status, out, _ = run("forecast", *STORES, broken[0])
    verdicts = [re.search("LOSES DATA|not read|NOTHING MORE", line) for line in lines(out)]
    assert [verdict and verdict[0] for verdict in verdicts] == [
        *["LOSES DATA"] * 2,
        "not read",
        *["NOTHING MORE"] * 3,
    ]
    command = one_of_them(out).split("  ")[-1]
    assert command == f"rmqinspect forecast {sample('flipped-bit-5.3.3')}"
    assert run(*command.split()[1:])[0] == status == ExitStatus.DAMAGE


def test_a_named_store_is_named_in_the_next_command_with_its_broker_conf(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("")
    conf = str(tmp_path / "broker.conf")
    _, out, _ = run("info", f"a={STORES[0]}", f"a2={STORES[0]}", "--config", conf)
    assert one_of_them(out).endswith(f"rmqinspect info a={STORES[0]} --config {conf}")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("columns", "head"),
    [
        ("115", "store  size  writer  stopped  next start  lost  do first"),
        ("96", "store  size  stopped  next start  lost  do first"),
        ("86", "store  stopped  next start  lost  do first"),
        ("40", "store  next start  lost"),
    ],
)
def test_columns_make_room_for_what_to_do_first(monkeypatch: pytest.MonkeyPatch, columns: str, head: str) -> None:
    row = StoreRow(
        store="broker-07",
        size_bytes=123_400_000_000,
        writer="5.2.0 to 5.3.3",
        stopped="unclean",
        next_start="STARTS, LOSES DATA",
        messages_lost=145,
        do_first="start it differently: forecast --script",
    )
    monkeypatch.setattr(sys, "stdout", _Terminal())
    monkeypatch.setenv("COLUMNS", columns)
    first, line = table_lines([Answer(row, ExitStatus.DAMAGE)])
    assert re.sub(" {2,}", "  ", first).startswith(head)
    assert line.startswith("broker-07")
    assert len(line) <= int(columns)


def test_quiet_forecasts_and_checks_have_a_status_only(run: Run, broken: list[str]) -> None:
    assert run("forecast", *FEW, "-q") == (ExitStatus.DAMAGE, "", "")
    healthy = [str(sample(name)) for name in ("healthy-4.9.7", "healthy-5.5.0")]
    assert run("verify", *healthy, "-q", "--level", "quick") == (ExitStatus.DONE, "", "")
    assert run("verify", *healthy, broken[2], "-q", "--level", "quick") == (ExitStatus.UNREADABLE, "", "")


def test_more_remarks_come_with_the_name_of_their_store(run: Run) -> None:
    _, _, err = run("info", f"a={STORES[0]}", f"b={STORES[1]}", "-v")
    of_run, *of_stores = err.splitlines()
    assert of_run.startswith("the loops over bytes are ")
    assert {line.split(":")[0] for line in of_stores} == {"a", "b"}
    assert run("info", f"a={STORES[0]}", f"b={STORES[1]}")[2] == ""


def test_names_of_stores_harm_no_terminal(run: Run, tmp_path: Path) -> None:
    odd = tmp_path / "a\x1b[31m\nb"
    odd.mkdir()
    _, out, err = run("forecast", odd, tmp_path / "c", f"d={STORES[1]}")
    assert "\x1b" not in out + err
    assert [line.split("  ")[0] for line in lines(out)] == [r"a\x1b[31m\nb", "c", "d"]
    assert one_of_them(run("verify", odd, tmp_path / "c")[1]).endswith(r"\x1b[31m\x0ab'")


def test_what_no_store_can_be_asked_is_refused_before_any_is_read(run: Run) -> None:
    status, out, err = run("verify", *FEW, "--check", "CL-FIRST", "--skip", "CL-FIRST")
    assert (status, out) == (ExitStatus.USAGE, "")
    assert "--check and --skip leave no check to run." in err


# --- documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["info", "forecast"])
def test_documents_are_those_of_each_store_alone_in_the_order_given(run: Run, verb: str, broken: list[str]) -> None:
    given = [STORES[3], broken[2], *STORES[:2]]
    _, out, _ = run(verb, *given, "-f", "jsonl")
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["store"] for one in told] == [f"{NAMES[3]}/store", "missing", *(f"{name}/store" for name in NAMES[:2])]
    assert told[1] == {"store": "missing", "error": f"{broken[2]}: no such file or directory"}
    for path, element in zip(given, told, strict=True):
        if "error" not in element:
            alone = json.loads(run(verb, path, "-f", "json")[1])
            assert list(element) == ["store", *alone]
            assert _without_name(element) == _without_name(alone)
    _, out, _ = run(verb, *given, "-f", "json")
    whole = json.loads(out)
    assert list(whole) == ["schema_version", "tool", "complete", "stores", "run"]
    assert whole["complete"] is False
    assert list(map(_without_name, whole["stores"])) == list(map(_without_name, told))
    runs = [element["run"]["stores"] for element in whole["stores"] if "error" not in element]
    assert all(len(paths) == 1 for paths in runs)  # each has its own
    assert {path for paths in runs for path in paths} < set(whole["run"]["stores"])


def _without_name(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("store", "name", "bytes_read", "run")}


@pytest.mark.parametrize("verb", ["info", "forecast"])
def test_one_store_is_one_document_in_each_format(run: Run, verb: str, tmp_path: Path) -> None:
    outs = [run(verb, STORES[0], "-f", format_)[1] for format_ in ("json", "jsonl")]
    run(verb, STORES[0], "-o", tmp_path / "told.jsonl")
    documents = [json.loads(out) for out in (*outs, (tmp_path / "told.jsonl").read_text())]
    assert len({json.dumps(_without_name(document)) for document in documents}) == 1


def test_no_document_is_written_into_any_of_the_stores(run: Run, tmp_path: Path) -> None:
    for store in STORES[:2]:
        status, _, err = run("forecast", *STORES[:2], "-o", f"{store}/told.json")
        assert status == ExitStatus.REFUSED
        assert "lies inside the store" in err
    (tmp_path / "there.json").touch()
    assert run("info", *STORES[:2], "-o", tmp_path / "there.json")[0] == ExitStatus.REFUSED


def test_findings_of_several_stores_are_one_table(run: Run, broken: list[str]) -> None:
    status, out, err = run("verify", *FEW, broken[0], "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == ExitStatus.DAMAGE
    assert next(iter(rows[0])) == "store"
    assert {row["store"] for row in rows if row["severity"] == "error"} == {"flipped-bit-5.3.3/store"}
    assert "DAMAGED" in err  # the screen, as the verdict of one store
    alone = list(csv.DictReader(io.StringIO(run("verify", STORES[0], "-f", "csv")[1])))
    assert [{name: row[name] for name in alone[0]} for row in rows if row["store"] == f"{NAMES[0]}/store"] == alone


def test_a_report_of_several_stores_has_each_of_theirs(run: Run, tmp_path: Path, broken: list[str]) -> None:
    file = tmp_path / "fleet.json"
    status, out, err = run("verify", *STORES[:2], broken[0], "--report", file, "--hash", "sha256", "--level", "quick")
    assert f"{file}  sha256 " in err
    assert len(lines(out)) == 3
    document = json.loads(file.read_text())
    *reports, failed = document["stores"]
    assert document["complete"] is False
    assert failed["store"] == "empty"
    for path, report in zip(STORES, reports, strict=False):
        (tmp_path / "one.json").unlink(missing_ok=True)
        run("verify", path, "--report", tmp_path / "one.json", "--hash", "sha256", "--level", "quick")
        alone = json.loads((tmp_path / "one.json").read_text())
        assert typed(report, Report).findings == typed(alone, Report).findings
        assert report["custody"]["files"] == alone["custody"]["files"]
        assert report["run"]["store"] == path
    assert status == ExitStatus.DAMAGE  # the next start of one loses data; another could not be read


def test_a_report_of_several_stores_is_printed_again(run: Run, tmp_path: Path, broken: list[str]) -> None:
    file = tmp_path / "fleet.json"
    words = [f"a={STORES[0]}", f"b={STORES[1]}", broken[0], "--level", "quick"]
    status, before, _ = run("verify", *words, "--report", file)
    again = run("verify", "--from", file)
    assert (again[0], again[2]) == (status, "")
    assert one_of_them(again[1]).endswith(f"rmqinspect verify --from {file} a")
    assert [line.split()[0] for line in lines(again[1])] == [line.split()[0] for line in lines(before)]
    for name, path in (("a", STORES[0]), ("b", STORES[1])):
        status, screen, _ = run("verify", "--from", file, name)
        alone, screen_alone, _ = run("verify", path, "--level", "quick")
        assert (status, _steady(screen)) == (alone, _steady(screen_alone))
    status, out, err = run("verify", "--from", file, "empty")
    assert (status, out) == (ExitStatus.UNREADABLE, "")
    assert err == f"empty: not read: {broken[0]}: an empty directory, not a store\n"
    assert run("verify", "--from", file, "-f", "csv")[1].startswith("store,code,")
    assert "no store 'c' in it; there are: a, b, empty" in run("verify", "--from", file, "c")[2]


def _steady(screen: str) -> list[str]:
    """Return the lines of a screen but that which names the report."""
    return [line for line in screen.splitlines() if not line.startswith("report")]


def test_names_are_of_reports_of_several_stores(run: Run, tmp_path: Path) -> None:
    run("verify", STORES[0], "--level", "quick", "--report", tmp_path / "one.json")
    status, out, err = run("verify", "--from", tmp_path / "one.json", STORES[0])
    assert (status, out) == (ExitStatus.USAGE, "")
    assert "--from prints a report and reads no store: [NAME=]STORE... cannot be combined with it." in err


# --- what is given --------------------------------------------------------------------------------


def test_stores_come_from_a_list(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list").write_text(f"# of the night\n\n{STORES[0]}\nb={STORES[1]}\n")
    _, out, _ = run("info", f"c={STORES[2]}", "--stores-from", tmp_path / "list", "-f", "jsonl")
    assert [json.loads(line)["store"] for line in out.splitlines()] == ["c", "store", "b"]
    text = io.TextIOWrapper(io.BytesIO((tmp_path / "list").read_bytes()))
    monkeypatch.setattr(sys, "stdin", text)
    _, out, _ = run("forecast", "--stores-from", "-", "-f", "jsonl")
    assert [json.loads(line)["store"] for line in out.splitlines()] == ["store", "b"]


@pytest.mark.parametrize("verb", ["decode -n 1 -f csv", "find -n 1 -f csv -k K1", "groups -f csv", "usage -f csv"])
def test_every_command_about_several_stores_takes_a_list(run: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "list").write_text(f"a={STORES[0]}\nb={STORES[1]}\n")
    status, out, _ = run(*verb.split(), "--stores-from", tmp_path / "list")
    assert (status, out) == run(*verb.split(), f"a={STORES[0]}", f"b={STORES[1]}")[:2]
    assert out.startswith("store,")


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        (None, ExitStatus.UNREADABLE, "No such file"),
        (b"# nothing\n", ExitStatus.USAGE, "no store in it"),
        (b"\0" * 100, ExitStatus.USAGE, "not a list of stores"),
    ],
)
def test_a_list_that_is_none_is_refused_in_one_line(
    run: Run, tmp_path: Path, content: bytes | None, status: ExitStatus, why: str
) -> None:
    if content is not None:
        (tmp_path / "list").write_bytes(content)
    got, out, err = run("info", "--stores-from", tmp_path / "list")
    assert (got, out) == (status, "")
    assert why in err


def test_two_stores_of_one_name_are_refused(run: Run) -> None:
    for words in ([f"a={STORES[0]}", f"a={STORES[1]}"], [STORES[0], STORES[0]]):
        for verb in VERBS:
            status, out, err = run(verb, *words)
            assert (status, out) == (ExitStatus.USAGE, "")
            assert "two stores are called" in err


@pytest.mark.parametrize(
    "words",
    [
        ["forecast", "--script"],
        ["forecast", "--explain"],
        ["forecast", "--replica", STORES[2]],
        ["verify", "--against", f"{STORES[2]}/checkpoint"],
    ],
)
def test_what_is_about_one_store_is_refused_for_several(run: Run, words: list[str]) -> None:
    status, out, err = run(*words, *STORES[:2])
    assert (status, out) == (ExitStatus.USAGE, "")
    assert re.search(r"Error: --\w+ is about one store: 2 are given\.", err)


# --- the status, the end --------------------------------------------------------------------------


def test_the_status_is_that_of_the_worst() -> None:
    assert worst_status([]) == ExitStatus.DONE
    assert worst_status([ExitStatus.UNREADABLE, ExitStatus.DAMAGE, ExitStatus.DONE]) == ExitStatus.DAMAGE
    assert worst_status([ExitStatus.INTERRUPTED, ExitStatus.BUG]) == ExitStatus.INTERRUPTED
    assert {status.badness for status in ExitStatus} == set(range(len(ExitStatus)))


def test_ctrl_c_tells_what_is_there() -> None:
    # With -v each store says something when it is opened; at this rate the second one takes minutes.
    words = ["verify", f"a={STORES[0]}", f"b={STORES[3]}", "-j", "1", "--level", "quick", "-v", "--read-rate", "2kB"]
    command = [sys.executable, "-m", "rmqinspect", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if line.startswith("a: "))
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED
    assert "Traceback" not in err
    assert [line.split()[0] for line in lines(out)] == ["a", "b"]
    assert out.count("not read: interrupted before it was read") == 2


# --- all stores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [rare("crash"), rare("broker"), rare("rust")])
def test_all_stores_at_once_are_told_as_each_alone(run: Run, family: oracle.Family) -> None:
    stores = [oracle.store(family, name) for name in oracle.cases(family)]
    status, out, _ = run("forecast", *stores, "-f", "jsonl")
    statuses = []
    for path, line in zip(stores, out.splitlines(), strict=True):
        alone_status, alone, _ = run("forecast", path, "-f", "json")
        statuses.append(ExitStatus(alone_status))
        assert _without_name(json.loads(line)) == _without_name(json.loads(alone))
    assert status == worst_status(statuses)
