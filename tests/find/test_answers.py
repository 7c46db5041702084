"""A miss begins with its answer: what became of the message, in words that a person acts on at once."""

import json
import shutil
from pathlib import Path

import pytest

from rmqinspect.cli import main
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.outcome_stores import copy_of_case, outcome_store
from tests.support.samples import sample

find = runner("find", after=("-j", "1", "-q"))
show = runner("show")
decode = runner("decode", after=("-j", "1"))

DESTROYED = ("-t", "orders", "--queue", "2", "--queue-offset", "951")
ARRIVED = "It arrived; its record is destroyed."
MAY_BE_GONE = "It may be among the messages that were acknowledged and are gone."


def answer_of(answer: tuple[int, str, str]) -> str:
    """Return the sentence that a screen begins with."""
    lines = answer[1].splitlines()
    end = next(number for number, line in enumerate(lines[1:], 1) if not line.startswith(" "))
    return " ".join(lines[0].split()[1:] + [word for line in lines[1:end] for word in line.split()])


def test_a_record_that_a_page_of_zeros_took_is_found_by_all_three_commands(find: Run, show: Run, decode: Run) -> None:
    """Power loss left a page of zeros: offset 951 of the queue still leads to what is left of its record."""
    store = outcome_store("s01")
    found = find(store, *DESTROYED)
    assert (found[0], answer_of(found)) == (3, ARRIVED)
    assert f"next            rmqinspect show {store} --at 6811195\n" in found[1].replace(" \\\n                ", " ")

    shown = show(store, *DESTROYED)
    assert shown[0] == 3
    assert shown[1].startswith("record        6 811 195 (0x67ee3b)")
    assert shown == show(store, "--at", "6811195")

    status, out, err = decode(store, *DESTROYED)
    assert (status, out.count("\n")) == (3, 1)  # no row below the names of the columns
    assert f"{ARRIVED} Its queue unit leads there: physical offset 6 811 195 lies in a record that is cut" in err
    assert "no such record" not in err


def test_beside_the_page_records_are_found_and_none_is_made_up(find: Run, show: Run) -> None:
    store = outcome_store("s01")
    assert show(store, *DESTROYED[:-1], "952")[0] == 0
    beyond = find(store, *DESTROYED[:-1], "99999")
    assert (beyond[0], answer_of(beyond)) == (5, "The queue has not come so far.")
    assert show(store, *DESTROYED[:-1], "99999")[:2] == (5, "")


def test_a_record_whose_segment_is_missing_arrived_and_cannot_be_shown(find: Run, show: Run, tmp_path: Path) -> None:
    store = copy_of_case("s01", tmp_path / "copy")
    (store / "commitlog" / "00000000000006291456").unlink()
    found = find(store, *DESTROYED)
    words = "It arrived; the part of the log that held its record is missing."
    assert (found[0], answer_of(found)) == (3, words)
    assert "next " not in found[1]
    status, out, err = show(store, *DESTROYED)
    assert (status, out, words in err) == (3, "", True)
    assert answer_of(find(store, "-k", "nothing")) == "It may have arrived: 1 048 576 bytes of the log are missing."


@pytest.mark.parametrize(
    ("store", "question", "status"),
    [
        # 5 is the proof that a message is not there; where damage may have it, a script must not send it again.
        ("s12b", ("-k", "order-1797"), 3),
        ("s12b", ("-k", "order-1797", "--fail-on", "never"), 5),
        ("s12b", ("-k", "nothing", "--offset", "0..1288882"), 5),  # the gap is not in the range asked for
        ("s08", ("-k", "nothing"), 3),
        ("s08", ("-k", "nothing", "--until", "2026-11-28T00:57:30Z", "--offset", "0..1951692"), 5),
        # One message is there, or not; of all of something a gap may have some.
        ("s12b", ("-k", "order-179"), 0),
        ("s12b", ("-t", "orders"), 3),
        ("s12b", ("-t", "orders", "-n", "3"), 0),
        ("s12b", ("-t", "orders", "--offset", "0..1288882"), 0),
    ],
    ids=str,
)
def test_damage_that_may_have_the_answer_ends_with_3(
    find: Run, store: str, question: tuple[str, ...], status: int
) -> None:
    assert find(outcome_store(store), *question, "--no-life")[0] == status


def test_gaps_beside_hits_are_told_where_they_may_hold_more(capsys: pytest.CaptureFixture[str]) -> None:
    store, gap = str(outcome_store("s12b")), "more may have been there"
    for question, told in (
        (("-k", "order-179"), True),
        (("-k", "order-179", "-k", "nothing"), False),  # the miss says it, on the screen
        (("-t", "orders", "--queue", "3", "--queue-offset", "36"), False),
        (("--offset", "180858"), False),
    ):
        main(["find", store, *question, "--no-life", "-j", "1"])
        assert (gap in capsys.readouterr().err) == told, question


@pytest.mark.parametrize("way", [(), ("--scan",)], ids=["planned", "scan"])
def test_decode_says_of_gaps_what_find_says(find: Run, decode: Run, way: tuple[str, ...]) -> None:
    """Missing are a part of a segment and, by its queue units, what was behind the last one."""
    store = outcome_store("s12b")
    gaps = "It may have arrived: 1 933 950 bytes of the log are missing."
    assert answer_of(find(store, "-k", "order-1797", *way)).startswith(gaps)
    status, out, err = decode(store, "-k", "order-1797", *way)
    assert (status, out.count("\n")) == (3, 1)
    assert f"{gaps} Searched: the whole log\n" in err
    assert "no such record" not in err
    # No gap is where an offset msg id leads, whatever else is read.
    status, _, err = decode(store, "--id", "7F00000100002A9F0000000000000001", *way)
    assert (status, "no such record; searched: " in err, "may have arrived" in err) == (5, True, False)


def test_several_stores_are_named_beside_their_gaps(decode: Run) -> None:
    _, _, err = decode(outcome_store("s08"), outcome_store("s12b"), "-k", "nothing")
    assert "\ns08: It may have arrived: 2 080 bytes of the log are destroyed. Searched: " in err
    assert "\ns12b: It may have arrived: 1 933 950 bytes of the log are missing. Searched: " in err


def test_what_a_limit_leaves_unread_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Records are counted behind their rows, so a search that ends at a hit knows only of some."""
    store = str(outcome_store("s12b"))
    main(["find", store, "-t", "orders", "-n", "3", "--no-life", "-j", "1", "-f", "json"])
    captured = capsys.readouterr()
    read = json.loads(captured.out)["stores"][0]["records"]
    assert 3 <= read < 3394
    assert f"by a scan; at least {read} records read\n" in captured.err
    main(["find", store, "-t", "orders", "--no-life", "-j", "1"])
    assert "by a scan; 3 394 records read\n" in capsys.readouterr().err


def test_what_was_acknowledged_behind_the_end_stands_in_a_miss(find: Run) -> None:
    """The disk was full: 12.4 seconds of messages that producers had an answer for are not in the log."""
    found = find(outcome_store("s08"), "-k", "nothing")
    said = " ".join(found[1].split())
    assert answer_of(found).endswith(MAY_BE_GONE)
    assert "acknowledged acknowledged messages of the 12.4 s behind its last record" in said
    # A time in the log cannot be meant by it, a later one can.
    assert MAY_BE_GONE not in answer_of(find(outcome_store("s08"), "-k", "nothing", "--until", "2026-11-28T00:57:30Z"))
    document = json.loads(find(outcome_store("s08"), "-k", "nothing", "-f", "json")[1])
    assert "of the 12.4 s" in document["misses"][0]["acknowledged"]


def test_a_checkpoint_as_old_as_the_log_says_nothing_of_what_is_gone(find: Run, tmp_path: Path) -> None:
    store = copy_of_case("s08", tmp_path / "copy")
    (store / "checkpoint").unlink()
    found = find(store, "-k", "nothing")
    assert answer_of(found) == "It may have arrived: 2 080 bytes of the log are destroyed."
    assert "acknowledged" not in found[1]


@pytest.mark.parametrize(
    ("store", "question", "answer"),
    [
        (
            "retention-4.9.7",
            ("-k", "nothing"),
            "It is not in this log, all of which was read. What was stored before 2026-11-21T08:38:48.459Z is no longer"
            " here.",
        ),
        (
            "retention-4.9.7",
            ("-t", "BasketEvents", "-k", "K121"),
            "It very likely arrived; it was deleted with the old files of the log.",
        ),
        ("retention-4.9.7", ("--offset", "357"), "What was there was deleted with the old files of the log."),
        ("main-5.5.0", ("-k", "work-2", "--tag", "other"), "It is here; another filter of the question leaves it out."),
    ],
    ids=str,
)
def test_the_answer_follows_from_the_reason(find: Run, store: str, question: tuple[str, ...], answer: str) -> None:
    found = find(oracle.store("broker", store), *question)
    assert (found[0], answer_of(found)) == (5, answer)


def test_an_id_of_this_broker_proves_that_its_message_arrived(find: Run) -> None:
    store = sample("flipped-bit-5.3.3")
    here, elsewhere = (f"{host}00005597{230_000:016X}" for host in ("7F000001", "C0A80101"))
    assert (
        answer_of(find(store, "--id", here))
        == "By its id it arrived; it lay behind what is now the end of the log, and is gone."
    )
    assert "is not in this log" in answer_of(find(store, "--id", elsewhere))


def test_files_without_their_neighbours_are_not_called_the_log(find: Run, tmp_path: Path) -> None:
    segment = next((outcome_store("s03") / "commitlog").iterdir())
    shutil.copy(segment, tmp_path / segment.name)
    assert answer_of(find(tmp_path / segment.name, "-k", "nothing")) == (
        "It is not in the files given, all of which were read."
    )
