"""Reading from Python: what commands say, what is not read, and what a notebook shows of hostile names."""

import json
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqinspect
import rmqinspect.rocksdb.unpack
from rmqinspect import errors, notebook
from rmqinspect.text import escape
from tests.support.building import lay, record, write_segment
from tests.support.command import Run, runner
from tests.support.rocksdb import needs_rocksdict
from tests.support.samples import NAMES, sample
from tests.support.side_tables import ROCKSDB, broker

run = runner()
HOSTILE = "<script>alert(1)</script>&\"'\x1b[31m\u202e"


class Seen(HTMLParser):
    """What a browser makes of a text: its tags, their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def shown(value: object) -> str:
    """Return the text that a notebook shows, after a check that it is nothing but a table."""
    html = value._repr_html_()  # type: ignore[attr-defined]
    seen = Seen(html)
    assert seen.tags <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td"} and not seen.open
    assert seen.attributes <= {"style", "scope"}
    assert len(html) < 100_000
    return seen.text


@pytest.mark.parametrize("name", NAMES)
def test_findings_and_forecasts_are_those_of_the_commands(run: Run, name: str) -> None:
    store = rmqinspect.open_store(sample(name))
    result = rmqinspect.verify_store(store)
    lines = run("verify", sample(name), "-f", "jsonl")[1].splitlines()
    assert result.to_arrow().to_pylist() == [json.loads(line) for line in lines]
    start = json.loads(run("forecast", sample(name), "-f", "json")[1])
    worst = rmqinspect.forecast_start(store).worst
    assert result.next_start is not None
    assert (worst.verdict.value, worst.release) == (start["verdict"], start["broker_version"])
    assert result.next_start.worst.verdict is worst.verdict
    assert result.verdict in shown(result) and worst.verdict.value in shown(rmqinspect.forecast_start(store))
    assert all(found.code in shown(result.findings) and found.message in shown(found) for found in result.findings)


def test_rows_are_those_of_decode_in_the_order_that_is_asked_for(run: Run) -> None:
    store = rmqinspect.open_store(sample("healthy-4.9.7"))
    chosen = ["queue_offset", "topic", "physical_offset"]
    lines = run("decode", sample("healthy-4.9.7"), "-f", "jsonl", "--columns", ",".join(chosen))[1].splitlines()
    table = rmqinspect.read_table(store, columns=chosen).read_all()
    assert table.schema.names == chosen
    assert table.to_pylist() == [json.loads(line) for line in lines]
    first, second = table["physical_offset"].to_pylist()[1:3]
    inside = rmqinspect.read_table(store, columns=["physical_offset"], offsets=(first, second)).read_all()
    assert inside.to_pylist() == [{"physical_offset": first}]


def test_times_without_a_zone_are_utc_and_a_limit_is_told() -> None:
    store = rmqinspect.open_store(sample("healthy-4.9.7"))
    whole = rmqinspect.find_messages(store, topic="orders")
    assert whole.rows.num_rows == 47 and not whole.more and not whole.misses
    middle = whole.rows["store_timestamp"].to_pylist()[20]
    late = rmqinspect.find_messages(store, topic="orders", since=middle)
    naive = rmqinspect.find_messages(store, topic="orders", since=middle.astimezone(UTC).replace(tzinfo=None))
    early = rmqinspect.find_messages(store, topic="orders", until=middle)
    assert naive.rows == late.rows and late.rows.num_rows + early.rows.num_rows == 47
    few = rmqinspect.find_messages(store, topic="orders", limit=5)
    assert few.rows.num_rows == 5 and few.more
    nothing = rmqinspect.find_messages(store, topic="orders", since=datetime(2100, 1, 1))
    assert nothing.rows.num_rows == 0 and nothing.misses[0] in shown(nothing)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda store: rmqinspect.read_table(store, "queue"), "no table 'queue'; nearest: queues"),
        (lambda store: rmqinspect.read_table(store, columns=["tag"]), "no column 'tag' in messages; nearest: tags"),
        (
            lambda store: rmqinspect.verify_store(store, "deepest"),
            "no level 'deepest'; there are: quick, standard, deep",
        ),
    ],
)
def test_a_name_that_is_none_is_refused_before_anything_is_read(call: object, says: str) -> None:
    store = rmqinspect.open_store(sample("healthy-4.9.7"))
    with pytest.raises(errors.BadOption) as refused:
        call(store)  # type: ignore[operator]
    assert str(refused.value) == says


@needs_rocksdict
def test_what_lies_in_rocksdb_is_read_by_each_call_or_once_in_a_block() -> None:
    store = broker(ROCKSDB[0])
    queues = rmqinspect.read_table(store, "queues").read_all()
    assert queues.num_rows
    with rmqinspect.unpacked(store) as whole:
        assert rmqinspect.read_table(whole, "queues").read_all() == queues
        assert rmqinspect.verify_store(whole).complete
    result = rmqinspect.verify_store(store)
    assert result.complete and result.store is store and result.units
    assert "RocksDB" not in shown(result)


def test_what_is_not_read_is_never_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmqinspect.rocksdb.unpack, "has_rocksdict", lambda: False)
    store = broker(ROCKSDB[0])
    with pytest.raises(errors.NotInstalled), rmqinspect.unpacked(store):
        pass
    with pytest.raises(rmqinspect.Unreadable, match="needs the library rocksdict"):
        rmqinspect.read_table(store, "queues").read_all()
    told: list[str] = []
    assert rmqinspect.read_table(store, "queues", on_unreadable=told.append).read_all().num_rows == 0
    assert "rocksdict" in told[0]
    assert not rmqinspect.verify_store(store).complete


@pytest.fixture
def hostile(tmp_path: Path) -> "rmqinspect.Store":
    place = tmp_path / "<img src=x onerror=alert(1)>"
    (place / "commitlog").mkdir(parents=True)
    raw = lay([record(topic=HOSTILE.encode(), properties={"KEYS": HOSTILE})])
    write_segment(place / "commitlog", raw.replace(b"Hello", b"hello"))
    return rmqinspect.open_store(place)


def test_hostile_names_are_text_in_a_notebook(hostile: "rmqinspect.Store") -> None:
    result = rmqinspect.verify_store(hostile)
    assert result.errors
    found = rmqinspect.find_messages(hostile)
    everything = [hostile, result, result.findings, *result.findings, rmqinspect.forecast_start(hostile), found]
    texts = [shown(value) for value in everything]
    assert "<img src=x onerror=alert(1)>" in texts[0]
    assert escape(HOSTILE) in texts[-1]
    assert not any("\x1b" in text or "\u202e" in text for text in texts)


@given(st.text(max_size=100))
def test_any_text_comes_back_from_its_html(text: str) -> None:
    seen = Seen(f"<td>{notebook.as_html(text)}</td>")
    assert seen.tags == {"td"}
    assert seen.text.removesuffix("\n") == escape(text)


def test_a_long_text_is_cut() -> None:
    assert notebook.as_html("<" * 5000) == "&lt;" * 1000 + "…"


def test_a_long_table_is_cut_and_says_so() -> None:
    html = notebook.table(("n",), ([n] for n in range(1234)), 1234)
    assert html.count("<tr>") == 51 and html.endswith("<p>… and 1 184 more rows</p>")
