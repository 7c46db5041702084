"""The page says what `verify` and `forecast` say, holds nothing foreign, and survives every name."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.page.render import policy, render
from rmqinspect.text import group_digits
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.pages import Page
from tests.support.samples import NAMES, sample
from tests.support.sampling import sampled
from tests.support.whole_stores import WholeStore

run = runner()

DAMAGED = ("flipped-bit-5.3.3", "zeroed-page-4.7.1", "killed-4.9.7", "healthy-5.5.0")
CRASHED = ("magic_third-4.9.7-c", "torn_last-5.2.0-h", "seg_missing_mid-4.9.7-c", "cq_len_short-5.3.3-c")
LIMIT = 5_000_000  # bytes of a page


def page_of(run: Run, *words: str | Path) -> tuple[int, Page, str]:
    status, html, _ = run("report", *words)
    return status, Page(html), html


def when(time: str) -> str:
    return f"{time[:10]} {time[11:19]} UTC"


def store_of(name: str) -> Path:
    return sample(name) if name in NAMES else oracle.store("crash", name)


@pytest.mark.parametrize("name", [*DAMAGED[:2], *sampled((*CRASHED, *DAMAGED[2:]), 6)])
def test_the_page_says_what_verify_and_forecast_say(run: Run, tmp_path: Path, name: str) -> None:
    store = store_of(name)
    verified, _, _ = run("verify", store, "--report", tmp_path / "report.json")
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    forecast: dict[str, Any] = json.loads(run("forecast", store, "-f", "json")[1])
    status, page, _ = page_of(run, store)
    assert status == verified

    answer = page.text("s1-answer")
    assert report["summary"] in answer
    assert all(line in answer for line in report["next_start"]["lines"])
    assert ("This store is damaged" in answer) == bool(report["errors"])
    lost = forecast["lost_messages"]
    if lost:
        assert f"loses {group_digits(lost)} message" in answer
        assert f"{when(forecast['first_lost_timestamp'])}" in answer
        assert f"{when(forecast['last_lost_timestamp'])}" in answer
        assert forecast["save"] in page.codes["s1-answer"]
        most = sorted(forecast["lost_by_topic"].items(), key=lambda item: (-item[1], item[0]))[:8]
        said = re.search(r"Of the topics (.*?)\.( |$)", answer)
        assert said is not None
        told = re.findall(r"(\S+) \(([\d ]+)\)", said[1])
        assert [int(number.replace(" ", "")) for _, number in told] == [number for _, number in most]
        assert [topic for topic, _ in told] == [topic for topic, _ in most]
    elif forecast["verdict"] == "STARTS, LOSES NOTHING MORE":
        assert "loses nothing" in answer
        assert "The broker may be started." in answer
    else:
        assert "Do not start the broker yet" in answer
    better = [way for way in forecast["instead"] if way["better"]]
    if better:
        assert forecast["do_first"]["text"][1:] in answer
    for way in better[1:4]:
        assert f"{way['way']} ({way['loses']})" in answer

    (drawn,) = page.data
    kinds = [kind for kind, _ in drawn["kinds"]]
    damaged = [(start, end) for start, end, kind, *_ in drawn["runs"] if kinds[kind] == "damage"]
    for row in report["findings"]:
        if row["severity"] == "error" and row["code"].startswith("CL-CRC"):
            place = row["physical_offset"], row["physical_offset"] + row["length"]
            assert any(start <= place[0] and place[1] <= end for start, end in damaged), row
    assert bool(damaged) >= any(row["code"] in ("CL-MAGIC", "CL-LENGTH") for row in report["findings"])
    marks: dict[str, list[tuple[int, int]]] = {}
    for _, items in drawn["lanes"]:
        for start, end, kind, _ in items:
            marks.setdefault(kind, []).append((start, end))
    log_end = report["next_start"]["log_end"]
    assert marks.get("end", [(log_end, log_end)]) == [(log_end, log_end)]
    if forecast["rejected"] and lost and len(forecast.get("versions", [0])) == 1:
        assert marks["cut"][0][0] == forecast["end_offset"]
    assert drawn["runs"][0][0] == report["segments"][0]["base"]
    strips = [
        (start + number * size, start + (number + 1) * size)
        for start, size, times, *_ in drawn["strips"]
        for number in range(times)
    ]
    assert strips == [(one["base"], one["base"] + one["file_size"]) for one in report["segments"]]

    findings = page.text("s1-findings")
    shown = {row["code"] for row in report["findings"] if row["code"] != "ST-UNCHECKED"}
    assert set(re.findall(r"(?:error|warning|info) ([A-Z]{2}-[A-Z0-9-]+):", findings)) == shown
    for row in [row for row in report["findings"] if row["severity"] == "error"][:10]:
        assert row["message"] in findings
        assert row["next"] is None or row["next"] in page.codes["s1-findings"]
    limits = page.text("s1-limits")
    assert all(text in limits for text in report["not_checked"])

    *_, sums = page.rows["s1-bytes"]
    names = ("file_size", "records", "record_bytes", "filler_bytes", "zero_bytes", "unknown_bytes")
    assert sums[1:7] == [group_digits(sum(one[name] for one in report["segments"])) for name in names]
    assert dict(row for row in page.rows["s1-run"] if len(row) == 2)["Store, as given"] == str(store)


def test_numbers_of_the_other_commands_are_on_the_page(run: Run) -> None:
    store = oracle.store("broker", "main-5.3.3")
    _, page, _ = page_of(run, store)
    usage = json.loads(run("usage", store, "-f", "json", "--by", "topic")[1])["rows"]
    cells = [[row["value"], group_digits(row["messages"])] for row in usage[:20]]
    assert [[row[0], row[4]] for row in page.rows["s1-usage"][1:]][: len(cells)] == cells
    halves = json.loads(run("transactions", store, "-f", "json")[1])["rows"]
    assert f"{group_digits(len(halves))} half message" in page.text("s1-waiting")
    delays = [row for row in json.loads(run("delays", store, "-f", "json")[1])["rows"] if not row["system"]]
    assert f"Delayed messages: {group_digits(len(delays))}:" in page.text("s1-waiting")
    lines: dict[tuple[str, str], int] = {}
    for row in json.loads(run("groups", store, "-f", "json")[1])["rows"]:
        lines[row["group"], row["topic"]] = lines.get((row["group"], row["topic"]), 0) + max(0, row["lag"] or 0)
    for row in page.rows["s1-groups"][1:]:
        assert int(row[5].replace(" ", "")) == lines[row[0].removesuffix(" (of the broker itself)"), row[1]]


# --- nothing foreign --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["flipped-bit-5.3.3"], ["healthy-4.9.7", "flipped-bit-5.3.3"]])
def test_the_page_loads_nothing(run: Run, words: list[str]) -> None:
    _, page, html = page_of(run, *map(sample, words))
    assert all(re.fullmatch(r"a href=#\w+", reference) for reference in page.references())
    assert not {"link", "img", "iframe", "object", "embed", "base", "form", "audio", "video"} & {
        t for t, _ in page.tags
    }
    assert not [given for _, given in page.tags for name in given if name.startswith("on") or name == "style"]
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html
    assert not re.search(r"(?<![\w.])(https?:)?//[\w.]+\.\w+", html.replace("http://www.w3.org/2000/svg", ""))
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert scripts and html.count("</script") == html.count("<script")
    assert f'content="{policy("".join(scripts))}"'.replace("'", "&#39;") in html
    assert len(html) < 400_000


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><svg onload=alert(1)>",
    "</script><script>alert(1)//",
    "{{ 7 * 7 }}{% if x %}",
    "a\N{RIGHT-TO-LEFT OVERRIDE}b\N{RIGHT-TO-LEFT MARK}",
    "nul\0nul",
    "&lt;b&gt;&#60;",
    "x" * 10_000,
)
BYTES = b"\xff\xfe<b>"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A store whose topics, keys and groups are what a page must not be made of."""
    pieces = [
        {"topic": topic, "properties": {"KEYS": key.replace(" ", "_")[:2000], "TAGS": key[:100]}}
        for topic, key in zip((*HOSTILE, BYTES), reversed((*HOSTILE, "k")), strict=True)
    ]
    offsets = {f"{topic}@{group}": {"0": 5} for topic, group in zip(HOSTILE, reversed(HOSTILE), strict=True)}
    configs = {"consumerOffset.json": {"offsetTable": offsets}}
    store = WholeStore(pieces, segment_size=1 << 16, dispatched=0, abort=True, configs=configs)
    store.write(tmp_path / "<b>store")
    (tmp_path / "<b>store" / "commitlog" / "<img src=x onerror=alert(1)>").write_bytes(b"")
    (tmp_path / "<b>store" / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {HOSTILE[0]: {}}}))
    return tmp_path / "<b>store"


def test_hostile_names_are_text(run: Run, hostile: Path) -> None:
    _, plain, _ = page_of(run, sample("flipped-bit-5.3.3"))
    _, page, html = page_of(run, hostile, "--hash", "sha256")
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in plain.tags}
    assert {name for _, given in page.tags for name in given} <= {name for _, given in plain.tags for name in given}
    topics = [row[0] for row in page.rows["s1-usage"][1:]]
    for text in HOSTILE[:5]:
        assert text in topics
    assert r"a\u202eb\u200f" in topics
    assert r"nul\x00nul" in topics
    assert r"\xff\xfe<b>" in topics
    assert "x" * 259 + "…" in topics
    assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", html)
    assert "x" * 5000 not in html
    assert HOSTILE[0] in page.text("s1-groups")
    assert len(html) < 400_000


# --- of a report, of many stores --------------------------------------------------------------------------


def test_the_page_of_a_report_has_what_the_report_has(run: Run, tmp_path: Path) -> None:
    store = sample("flipped-bit-5.3.3")
    run("verify", store, "--report", tmp_path / "report.json", "--hash", "sha256")
    status, page, _ = page_of(run, "--from", tmp_path / "report.json")
    _, whole, _ = page_of(run, store, "--hash", "sha256")
    assert status == 3
    for section in ("s1-findings", "s1-bytes", "s1-hashes"):
        assert page.text(section) == whole.text(section)
    for section in ("s1-time", "s1-groups", "s1-usage", "s1-waiting"):
        assert "A report of verify does not hold" in page.text(section)
    assert "loses 145 messages of 7 topics" in page.text("s1-answer")
    assert f"rmqinspect decode {store} --lost-at-start -o lost.parquet" in page.codes["s1-answer"]
    digests = json.loads((tmp_path / "report.json").read_text())["custody"]["files"]
    assert [row[3] for row in page.rows["s1-hashes"][1:]] == [file["sha256"] for file in digests]
    for one in (page, whole):
        assert ["Stores", str(store.resolve())] in one.rows["s1-run"]


def test_many_stores_begin_with_a_row_each_the_worst_first(run: Run, tmp_path: Path) -> None:
    words = [f"good={sample('healthy-4.9.7')}", f"bad={sample('flipped-bit-5.3.3')}", f"gone={tmp_path / 'none'}"]
    status, page, _ = page_of(run, *words, "-j", "2")
    assert status == 3
    rows = page.rows["all"][1:]
    assert [row[0] for row in rows] == ["bad", "gone", "good"]
    assert [row[6] for row in rows] == ["145", "", "0"]
    assert rows[1][7].startswith("not read: ")
    assert "3 stores" in page.text("all")
    assert "loses 145 messages" in page.text("s1-answer")
    assert "loses nothing" in page.text("s2-answer")
    assert "no such file" in page.text("f1")

    run("verify", *words, "--report", tmp_path / "fleet.json", "-j", "2")
    status, page, _ = page_of(run, "--from", tmp_path / "fleet.json")
    assert [row[0] for row in page.rows["all"][1:]] == ["bad", "gone", "good"]
    status, page, _ = page_of(run, "--from", tmp_path / "fleet.json", "good")
    assert status == 0
    assert "all" not in page.rows
    status, _, said = run("report", "--from", tmp_path / "fleet.json", "nobody")
    assert (status, "no store 'nobody' in it; there are: good, bad, gone" in said) == (2, True)


def test_the_page_of_forty_stores_is_small(run: Run, tmp_path: Path) -> None:
    run("verify", sample("flipped-bit-5.3.3"), "--report", tmp_path / "one.json", "--hash", "sha256")
    one = json.loads((tmp_path / "one.json").read_text())
    one["findings"] = one["findings"] * 50
    one["custody"]["files"] = one["custody"]["files"] * 10
    fleet = {"stores": [{"store": f"b{number}", **one} for number in range(40)]}
    (tmp_path / "fleet.json").write_text(json.dumps(fleet))
    status, page, html = page_of(run, "--from", tmp_path / "fleet.json")
    assert status == 3
    assert len(page.rows["all"]) == 41
    assert len(html) < LIMIT
    assert "And 47 more findings" in page.text("s7-findings")
    assert re.search(r"And [\d ]+ more files", page.text("s7-hashes"))


def test_the_page_of_forty_rich_stores_is_small(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is as long as it can be: groups, topics, columns of the time line, index files, damaged runs."""
    made: list[Any] = []

    def keep(stores: Any, *others: Any) -> str:
        made.extend(stores)
        return render(stores, *others)

    monkeypatch.setattr("rmqinspect.page.render.render", keep)
    run("report", oracle.store("broker", "main-5.3.3"), "--hash", "sha256")
    (one,) = made
    for topic in one["flow"]["topics"]:
        topic["messages"], topic["bytes"] = [1234567] * 120, [1234567890] * 120
    report = one["report"]
    end = report["map"]["runs"][-1]["end"]
    kinds = ("records", "damage")
    report["map"]["runs"] = [
        {"start": end * at // 2000, "end": end * (at + 1) // 2000, "kind": kinds[at % 2], "mixed": False}
        for at in range(2000)
    ]
    index = {"entries": 9999, "first_physical_offset": 0, "last_physical_offset": end}
    report["map"]["index_files"] = [{"file": f"index/{20261121084800000 + at}", **index} for at in range(400)]
    report["segments"] = report["segments"] * 100
    report["findings"] = report["findings"] * 30
    report["custody"]["files"] = report["custody"]["files"] * 20
    one["groups"]["lines"] = one["groups"]["lines"] * 20
    fleet = [{**one, "store": f"b{number}"} for number in range(40)]
    zone, now = timezone(timedelta(hours=8)), datetime.now(UTC)
    whole = render(fleet, [], zone, now)
    assert len(whole) < LIMIT
    assert whole.count('class="rm-data"') == 40
    assert len(render(fleet[:1], [], zone, now)) < LIMIT


# --- the command ------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_and_nothing_lies_in_the_store(run: Run, tmp_path: Path) -> None:
    store = shutil.copytree(sample("flipped-bit-5.3.3"), tmp_path / "store")
    (tmp_path / "there.html").write_text("mine")
    assert run("report", store, "-o", tmp_path / "there.html")[0] == 6
    assert (tmp_path / "there.html").read_text() == "mine"
    assert run("report", store, "-o", store / "page.html")[0] == 6
    assert not (store / "page.html").exists()
    status, out, said = run("report", store, "-o", tmp_path / "new.html")
    assert (status, out) == (3, "")
    assert re.search(rf"{re.escape(str(tmp_path))}/new.html  sha256 [0-9a-f]{{64}}\n", said)
    assert Page((tmp_path / "new.html").read_text()).text("s1-answer")


def test_a_page_is_not_for_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    status, _, said = run("report", sample("healthy-4.9.7"))
    assert (status, "-o FILE.html" in said) == (2, True)


def test_ctrl_c_ends_the_reading_and_not_the_page(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    store = sample("flipped-bit-5.3.3")
    with monkeypatch.context() as patched:
        patched.setattr("rmqinspect.page.documents.transactions_of", interrupt)
        status, page, _ = page_of(run, store)
    assert status == 130
    assert "interrupted before all was counted" in page.text("s1-limits")
    assert "what became of transactions could not be counted" in page.text("s1-waiting")
    assert "TopicA" in page.text("s1-usage")
    assert "loses 145 messages" in page.text("s1-answer")

    with monkeypatch.context() as patched:
        patched.setattr("rmqinspect.verify.run.check_split", interrupt)
        status, page, _ = page_of(run, store, "-j", "1")
    assert status == 130
    assert "The run was interrupted" in page.text("s1-limits")
    assert "INCOMPLETE: 0 % read" in page.text("s1-answer")


@pytest.mark.parametrize("words", ["-j 2", "--hash sha256", "--broker-version 5.3.3"])
def test_what_needs_a_store_is_refused_with_a_report(run: Run, tmp_path: Path, words: str) -> None:
    status, _, said = run("report", "--from", tmp_path / "no.json", *words.split())
    assert (status, "--from reads no store" in said) == (2, True)


def test_a_file_that_is_no_report_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("[]")
    assert run("report", "--from", tmp_path / "no.json")[0] == 2
    assert run("report", "--from", tmp_path / "none.json")[0] == 4


def test_times_are_in_the_zone_that_is_asked_for(run: Run) -> None:
    _, page, html = page_of(run, sample("flipped-bit-5.3.3"), "--tz", "Asia/Shanghai")
    assert "Times are in Asia/Shanghai" in html
    assert "2026-11-21 16:48:41 +08:00" in page.text("s1-answer")
    assert "UTC" not in page.text("s1-answer")


def test_what_is_redacted_is_not_there_and_the_page_says_so(run: Run, tmp_path: Path) -> None:
    _, plain, _ = page_of(run, sample("flipped-bit-5.3.3"))
    _, page, html = page_of(run, sample("flipped-bit-5.3.3"), "--redact", "keys,body")
    assert "key B98_0" in plain.text("s1-findings")
    assert "B98_0" not in html
    assert "Hidden by <code>--redact</code>: body, keys." in html
    assert "0x48 'H'" not in page.text("s1-findings")
