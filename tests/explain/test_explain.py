"""`rmqinspect explain`: every text is complete, every log line is recognised, any input gives an answer."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.build.findings_page import page
from rmqinspect.cli import VERBS, ExitStatus, main
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.explain.lookup import HARMLESS, LOG_LINES, Explanation, everything, explain, near
from rmqinspect.explain.names import LAYOUTS, SYS_FLAG_BITS, WORDS
from rmqinspect.schemas import message
from rmqinspect.schemas.message import HEADS, SysFlag
from rmqinspect.schemas.places import place_of
from rmqinspect.tables import TABLES
from rmqinspect.tables.messages import STATUSES
from rmqinspect.topics import SYSTEM_TOPICS
from rmqinspect.verify.codes import ALL, CODES, Code, Eras
from tests.explain.examples import EXAMPLES
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import ROOT
from tests.support.sampling import sampled

EVERYTHING = list(everything())


run = runner("explain")


def only(text: str) -> Explanation:
    """Return the one explanation of a text."""
    (found,) = explain(text)
    return found


def described(text: str) -> str:
    """Return the descriptions of the values in a text."""
    return " ".join(f"{value}: {meaning}" for found in explain(text) for value, meaning in found.values)


# --- the tables ---------------------------------------------------------------------------------

Version = tuple[int, int, int]


def read_versions(text: str) -> Iterator[tuple[Version, Version]]:
    """Yield (first, last) of each range in `4.0.0 to 4.4.0, 4.9.2`."""
    one = r"(\d)\.(\d+)\.(\d+)"
    for part in text.split(", "):
        match = re.fullmatch(rf"{one}(?: to {one})?", part)
        assert match, part
        first, last = match.groups()[:3], match.groups()[3:] if match[4] else match.groups()[:3]
        yield tuple(map(int, first)), tuple(map(int, last))  # type: ignore[misc]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.code)
def test_a_code_has_all_its_parts(code: Code) -> None:
    assert all((code.rule, code.broker_effect, code.next, code.cause, code.eras))
    assert all(len(text) > 10 for text in (code.cause, *(effect for _, effect in code.eras)))
    assert not any(text.endswith(".") for text in (code.rule, code.broker_effect, code.cause))


def all_eras() -> Iterator[tuple[str, Eras]]:
    for explanation in EVERYTHING:
        yield explanation.name, explanation.eras


def test_versions_are_written_in_one_form_and_in_order() -> None:
    for name, eras in all_eras():
        for versions, effect in eras:
            assert effect, name
            ranges = list(read_versions(versions)) if versions != ALL else []
            ends = [end for first_and_last in ranges for end in first_and_last]
            assert ends == sorted(ends), (name, versions)
            assert all((4, 0, 0) <= end <= (5, 5, 0) for end in ends), (name, versions)


def test_the_versions_of_a_code_have_no_gap() -> None:
    """A row for all releases, or rows that cover 4.0.0 to 5.5.0 without a gap."""
    for code in CODES:
        if any(versions == ALL for versions, _ in code.eras):
            continue
        ranges = sorted(span for versions, _ in code.eras for span in read_versions(versions))
        assert ranges[0][0] == (4, 0, 0), code.code
        assert max(last for _, last in ranges) == (5, 5, 0), code.code
        reached = ranges[0][1]
        for first, last in ranges[1:]:
            assert follows(reached, first), (code.code, reached, first)
            reached = max(reached, last)


def follows(before: Version, first: Version) -> bool:
    """Return whether no release lies between `before` and `first`."""
    if first <= before:
        return True
    last_of = {(4, 0): 0, (4, 1): 0, (4, 4): 0, (4, 9): 8, (5, 0): 0, (5, 1): 4, (5, 3): 3, (5, 4): 0}
    if first[:2] == before[:2]:
        return first[2] == before[2] + 1
    if last_of.get(before[:2]) != before[2] or first[2]:
        return False
    return first[:2] in ((before[0], before[1] + 1), (before[0] + 1, 0))


def test_only_commands_that_exist_are_named() -> None:
    texts = json.dumps([*map(str, EVERYTHING), page()])
    named = set(re.findall(r"rmqinspect (\w+)", texts)) - {"print"}
    assert named - VERBS.keys() == set()


def test_every_command_has_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    commands = {command for explanation in EVERYTHING for command in explanation.next}
    helps: dict[str, str] = {}
    for command in sorted(commands):
        tool, verb, *words = command.split()
        if tool == "ls":
            continue
        assert tool == "rmqinspect", command
        if verb not in helps:
            main([verb, "--help"])
            helps[verb] = capsys.readouterr().out
        for word in words:
            assert not word.startswith("-") or re.search(rf"(^|\s|,){word}\b", helps[verb]), command
        if "--table" in words:
            assert words[words.index("--table") + 1] in TABLES, command


def test_every_reference_can_be_explained() -> None:
    for explanation in EVERYTHING:
        for name in explanation.see:
            assert explain(name), (explanation.name, name)


def test_every_explanation_has_a_meaning_and_a_next_command() -> None:
    for explanation in EVERYTHING:
        assert explanation.meaning and explanation.where and explanation.next, explanation.name
        assert explanation in explain(explanation.name) or explanation.kind == "log line", explanation.name


def test_every_field_of_a_layout_is_explained_with_its_offset() -> None:
    for label, layout, table, _ in LAYOUTS:
        assert list(table) == [field.name for field in layout.subcons], label
        if layout is message.Message:
            layout = HEADS[False, False]
        for field in layout.subcons:
            (where,) = (e.where for e in explain(field.name) if e.where.startswith(f"{label}, "))
            assert where.startswith(f"{label}, at {place_of(layout, field.name)}"), where
            assert where.endswith(f"{field.sizeof()} byte{'s' if field.sizeof() > 1 else ''}"), where


def test_fields_after_the_body_have_no_fixed_offset() -> None:
    assert [e.where for e in explain("TOPIC")] == ["commit-log record, after topic_size"]
    assert [e.where for e in explain("BODY")] == ["commit-log record, after body_size"]


def test_every_bit_status_and_gap_kind_is_explained() -> None:
    assert set(SYS_FLAG_BITS) == set(SysFlag)
    words = {word.name for word in WORDS}
    assert set(STATUSES) <= words
    assert {"filler", "zeros", "unknown", "missing"} <= words
    assert Gap.__annotations__["kind"] is str


@pytest.mark.parametrize("topic", sorted(SYSTEM_TOPICS))
def test_every_system_topic_is_explained(topic: str) -> None:
    assert only(topic).kind == "topic"


# --- names and values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CL-CRC-BODY", "CL-CRC-BODY"),
        ("cl_crc_body", "CL-CRC-BODY"),
        ("TOTAL_SIZE", "TOTALSIZE"),
        ("totalSize", "TOTALSIZE"),
        ("TOTALSIZE", "TOTALSIZE"),
        ("sys_flag", "SYSFLAG"),
        ("PREPAREDTRANSACTIONOFFSET", "PREPAREDTRANSACTIONOFFSET"),
        ("bodyLength", "BODYLEN"),
        ("hashSlotCount", "hashSlotCount"),
        ("physicMsgTimestamp", "physicMsgTimestamp"),
        ("logics_physical_offset", "logicsPhysicalOffset"),
        ("uniq_key", "UNIQ_KEY"),
        ("__CRC32#", "__CRC32#"),
        ("TIMER_OUT_MS", "TIMER_OUT_MS"),
        ("INNER_NUM", "INNER_NUM"),
        ("bornhost_v6", "BORNHOST_V6"),
        ("DISK_FULL", "DISK_FULL"),
        ("0xdaa320a7", "0xdaa320a7"),
        ("DAA320AB", "0xdaa320ab"),
        ("-875286124", "0xcbd43194"),
        ("3419681172", "0xcbd43194"),
        ("2147483647", "0x7fffffff"),
        ("schedule_topic_xxxx", "SCHEDULE_TOPIC_XXXX"),
        ("%RETRY%orders", "%RETRY%"),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_REVIVE_LOG_"),
        ("DAMAGED", "DAMAGED"),
        ("offset_mismatch", "offset_mismatch"),
    ],
)
def test_a_name_is_found_in_any_spelling(text: str, name: str) -> None:
    assert name in [found.name for found in explain(text)]


def test_a_name_of_several_layouts_is_explained_for_each() -> None:
    places = [found.where.split(",")[0] for found in explain("physicalOffset")]
    assert places == ["commit-log record", "consume queue unit", "batch consume queue unit", "index entry"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sysFlag 0x1c", "BORNHOST_V6, transaction rollback"),
        ("sysFlag 28", "0x1c is BORNHOST_V6, transaction rollback"),
        ("sysFlag=0", "0x0 is none"),
        ("SYSFLAG: 0x101", "COMPRESSED, compression lz4"),
        ("sysFlag -1", "bits 0xfffff800 without a meaning"),
        ("magicCode -626843481", "0xdaa320a7 (-626843481) is a record (V1)"),
        ("magicCode 0xdaa320ab", "V2, 5.1.0 and later"),
        ("magicCode 0xcbd43194", "blank record"),
        ("magicCode 0", "zeros"),
        ("magicCode 0xdaa321a7", "one flipped bit away from 0xdaa320a7"),
        ("magicCode 0x696e4d73", "is text, 'inMs'"),
        ("magicCode 0x66666", "the bytes are 00 06 66 66"),
        ("bodyCrc -5", "never has: damaged"),
        ("totalSize 91", "too small"),
        ("physicalOffset 1073745920", "00000000001073741824 at 4 096 (0x1000)"),
        ("queueOffset 300000", "00000000000006000000 at 0"),
        ("tagsCode 2598919", "hashCode() of the TAGS"),
        ("tagsCode 100", "tag 'd'"),
        ("tagsCode 1795210339410", "delivery time, as in SCHEDULE_TOPIC_XXXX: 2026-11-20T21:32:19.410Z"),
        ("tagsCode -9223372036854775788", "position 20"),
        ("tagsCode 0x8000000000000014", "position 20"),
        ("tagsCode 5000000000", "neither a hash, nor a time, nor an ext address: damaged"),
        ("unitSize 2147483647", "filler before a queue's first message"),
        ("unitSize 0", "an unused unit"),
        ("TAGS TagA", "tags code 2598919"),
        ("DELAY 3", "queue 2 of SCHEDULE_TOPIC_XXXX, by default 10s"),
        ("DELAY 40", "queue 17 of SCHEDULE_TOPIC_XXXX, by default 2h"),
        ("storeTimestamp 1716193815135", "2024-05-20T08:30:15.135Z"),
        ("physicMsgTimestamp 0", "never set"),
        ("timeDiff -1", "negative: damaged"),
        ("keyHash 1385150910", "slot 150 910 of 5 000 000"),
        ("flagBits 20", "WRITE_LOGICS_QUEUE_ERROR, DISK_FULL"),
        ("perm 6", "PERM_READ, PERM_WRITE"),
        ("UNIQ_KEY 7F0000010000", "rmqinspect id 7F0000010000"),
    ],
)
def test_a_value_is_described(text: str, words: str) -> None:
    assert words in described(text)


@pytest.mark.parametrize(
    "text", ["sysFlag abc", "sysFlag 0x1ffffffff", "queueOffset 1.5", "tagsCode 99999999999999999999"]
)
def test_a_value_of_the_wrong_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number|does not fit"):
        explain(text)


def test_a_physical_offset_is_filled_into_the_command() -> None:
    assert explain("PHYSICALOFFSET 0x17ba3")[0].next == ("rmqinspect show STORE --at 97187",)


def test_a_value_without_a_description_is_ignored() -> None:
    assert explain("queueId 3") == explain("queueId")


def test_a_topic_is_quoted_in_the_command() -> None:
    assert only("%RETRY%a;b").next == ("rmqinspect decode STORE -t '%RETRY%a;b'",)


# --- log lines ----------------------------------------------------------------------------------

# Log lines that say nothing about the store.
UNRELATED = (
    "AllocateMappedFileService interrupted",
    "take flush disk commit request, but interrupted",
    "No resource file with name",
    "Load default HA Service",
    "AcceptSocketService service has exception",
)


@pytest.mark.parametrize(("template", "example"), sampled(EXAMPLES.items(), 3), ids=range(len(EXAMPLES)))
def test_a_real_line_is_recognised_whatever_surrounds_it(template: str, example: str) -> None:
    for text in (
        example,
        example.lower(),
        f"broker-a | 2026-11-21 08:48:46,708 [thread-7] {example} (x.java:17)\n\tat java.lang.Thread.run",
        "  ".join(example.split()),
    ):
        assert [found.name for found in explain(text)] == [template]


@pytest.mark.parametrize(("template", "example"), EXAMPLES.items(), ids=range(len(EXAMPLES)))
def test_every_value_of_a_line_is_read(template: str, example: str) -> None:
    (line,) = (line for line in LOG_LINES if line.template == template)
    read = [value.split(" ")[0] for value, _ in only(example).values]
    several = len({value.name.split(" ")[0] for value in line.values})
    assert read or not line.values
    assert len(set(read) - {"together"}) >= min(several, 1)


def test_every_value_is_read_from_some_line() -> None:
    """Every pattern matches the example of its line, or another form of the line."""
    others = {
        "reputFromOffset": "[BUG]read total count not equals msg total size. reputFromOffset=30260",
        "index": "Offset for <root>/x not matched. Request offset: 7858421, index: -1, mappedFileSize: 1073741824",
        "logicsMsgTimestamp": "store checkpoint file logicsMsgTimestamp 1805250926708, 20270317023526708",
        "indexMsgTimestamp": "store checkpoint file indexMsgTimestamp 1805250925095, 20270317023525095",
        "confirmPhyOffset": "store checkpoint file confirmPhyOffset 97187",
        "logicsPhysicalOffset": "store checkpoint file logicsPhysicalOffset 226710",
        "minOffsetInQueue": "Timer currQueueOffset:2 is smaller than minOffsetInQueue:30",
        "lastTimerQueueOffset": "timer checkpoint file lastTimerQueueOffset 17",
        "offset": "consumer request topic: a, offset: 42, minOffset: 0, maxOffset: 90, but access logic queue failed.",
    }
    for line in LOG_LINES:
        read = described(EXAMPLES[line.template])
        for value in line.values:
            assert f"{value.name} " in read or f"{value.name} " in described(others[value.name]), (
                line.template,
                value.name,
            )


def test_a_part_of_a_line_is_enough() -> None:
    assert only("illegal magic code").name == "found a illegal magic code 0x{}"
    assert only("length not matched message store config value").values == ()
    assert only("[BUG]logic queue order").name.startswith("[BUG]logic queue order maybe wrong")


def test_several_pasted_lines_are_explained_each_once() -> None:
    text = "\n".join([*EXAMPLES.values(), *EXAMPLES.values(), "nothing that is known"])
    assert [found.name for found in explain(text)] == list(EXAMPLES)


def test_the_swapped_values_of_the_crc_line_are_explained() -> None:
    words = dict(only(EXAMPLES["CRC check failed. bodyCRC={}, currentCRC={}"]).values)
    assert words["bodyCRC 949938881"].startswith("computed now from the body")
    assert words["currentCRC 600743239"].startswith("the one stored in the record")
    # The store is that of the oracle's case: verify finds the same two values.
    log = oracle.truth("crash", "flip_body_third-5.3.3-h")["log"]
    assert any("bodyCRC=949938881, currentCRC=600743239" in line for line in log)


def test_offset_topic_and_queue_of_a_line_are_filled_into_the_commands() -> None:
    assert "rmqinspect show STORE --at 225112" in only("found a half message at 225112").next
    line = "[BUG]logic queue order maybe wrong, Topic: %RETRY%a'b QID: 1 Diff: 60"
    assert """rmqinspect decode STORE --table queue_units -t '%RETRY%a'"'"'b' --queue 1""" in only(line).next
    line = "Build consume queue repeatedly, Topic: -rf QID: 1"
    assert "rmqinspect decode STORE --table queue_units -t TOPIC --queue 1" in only(line).next


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Offset not matched. Request offset: 400, firstOffset: 0, lastOffset: 400", "harmless"),
        ("Offset not matched. Request offset: 99, firstOffset: 100, lastOffset: 400", "before the first file: gone"),
        ("Offset not matched. Request offset: 401, firstOffset: 100, lastOffset: 400", "the end was lost or truncated"),
        ("Offset for x not matched. Request offset: 12130, index: -1", "before the first file"),
        ("maxPhyOffsetOfConsumeQueue(5) >= processOffset(5), truncate dirty logic files", "nothing was cut"),
        ("maxPhyOffsetOfConsumeQueue(9) >= processOffset(5), truncate dirty logic files", "units for 4 bytes of log"),
        (
            "PULL_OFFSET_MOVED:correction offset. topic=a, requestOffset=1, newOffset=9",
            "8 messages of the queue skipped",
        ),
        ("PULL_OFFSET_MOVED:correction offset. topic=a, requestOffset=9, newOffset=1", "back by 8"),
        ("found a illegal magic code 0x0", "zeros"),
        ("[BUG]logic queue order maybe wrong, expectLogicOffset: 180 currentLogicOffset: 120 Diff: 60", "unit 9"),
    ],
)
def test_the_numbers_of_a_line_are_compared(text: str, words: str) -> None:
    assert words in described(text)


def test_every_warning_of_real_brokers_about_their_stores_is_known() -> None:
    lines = {
        line
        for name in oracle.cases("crash")
        for line in oracle.truth("crash", name).get("log", ())
        if re.match(r"WARN|ERROR", line) and not any(text in line for text in UNRELATED)
    }
    assert len(lines) > 300
    assert [line for line in lines if len(explain(line)) != 1] == []


def test_no_log_line_of_an_undamaged_store_is_called_serious() -> None:
    lines = oracle.truth("crash", "base-5.3.3-clean")["log"]
    found = {explanation.name: explanation.where for line in lines for explanation in explain(line)}
    assert found
    assert not [name for name, where in found.items() if where.startswith("something is lost")]
    assert [where for where in found.values() if where.startswith(f"{HARMLESS};")]


# --- the command --------------------------------------------------------------------------------


def test_without_arguments_everything_is_listed(run: Run) -> None:
    status, out, err = run()
    assert (status, err) == (ExitStatus.DONE, "")
    listed = " ".join(out.split())
    for explanation in EVERYTHING:
        assert explanation.name in out or " ".join(explanation.name.split()) in listed, explanation.name


def test_no_line_is_wider_than_the_screen(run: Run, all_cases: bool) -> None:
    texts = [explanation.name for explanation in EVERYTHING] + list(EXAMPLES.values())
    texts = texts if all_cases else texts[::5]
    widest = max(len(line) for text in ("", *texts) for line in run(*text.split(" "))[1].splitlines())
    assert widest <= 100


def test_a_code_is_explained_with_everything(run: Run) -> None:
    status, out, _ = run("CL-CRC-BODY")
    assert status == ExitStatus.DONE
    labels = [line[:13].strip() for line in out.splitlines() if line[:13].strip()]
    assert labels == ["CL-CRC-BODY", "code", "means", "cause", "broker", "versions", "logged as", "do", "next"]
    assert "rmqinspect show STORE --at OFFSET" in out


@pytest.mark.parametrize("words", [("magicCode", "-626843481"), ("magicCode -626843481",), ("-626843481",)])
def test_a_negative_number_is_no_option(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words)[0] == ExitStatus.DONE


@pytest.mark.parametrize("words", [("--colour",), ("sysFlag", "--frm"), ("-x",)])
def test_an_unknown_option_is_wrong_usage(run: Run, words: tuple[str, ...]) -> None:
    status, _, err = run(*words)
    assert status == ExitStatus.USAGE
    assert "No such option" in err


def test_an_impossible_value_is_wrong_usage(run: Run) -> None:
    status, out, err = run("sysFlag", "abc")
    assert (status, out) == (ExitStatus.USAGE, "")
    assert "'abc' is not a number" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CL-CRC", ["CL-CRC-BODY", "CL-CRC-RECORD"]),
        ("CL-CRC-BODDY", ["CL-CRC-BODY"]),
        ("hashSlotCnt", ["hashSlotCount"]),
        ("TIMER_OUT", ["TIMER_OUT_MS"]),
        ("the commitlog files were deleted", ["The commitlog files are deleted, and delete the consume queue files"]),
    ],
)
def test_an_unknown_text_suggests_similar_names(run: Run, text: str, expected: list[str]) -> None:
    status, out, err = run(text)
    assert (status, out) == (ExitStatus.NOTHING_FOUND, "")
    assert near(text)[: len(expected)] == expected
    assert all(name in err for name in expected)


def test_a_number_alone_asks_for_its_field(run: Run) -> None:
    status, _, err = run("0x1c")
    assert status == ExitStatus.NOTHING_FOUND
    assert "name the field too" in err


def test_json_holds_the_same(run: Run) -> None:
    status, out, _ = run("sysFlag", "28", "-f", "json")
    document = json.loads(out)
    assert (status, document["schema_version"], document["complete"]) == (0, 1, True)
    (row,) = document["rows"]
    assert row["name"] == "SYSFLAG"
    assert row["values"] == [{"value": "28", "meaning": "0x1c is BORNHOST_V6, transaction rollback"}]
    code = json.loads(run("CQ-MISSING", "-f", "json")[1])["rows"][0]
    assert code["eras"][0].keys() == {"versions", "effect"}
    assert code.keys() == row.keys()


def test_json_lists_everything(run: Run) -> None:
    rows = json.loads(run("-f", "json")[1])["rows"]
    assert [(row["kind"], row["name"]) for row in rows] == [(one.kind, one.name) for one in EVERYTHING]


def test_json_of_an_unknown_text_has_similar_names(run: Run) -> None:
    status, out, _ = run("CL-CRC", "-f", "json")
    document = json.loads(out)
    assert status == ExitStatus.NOTHING_FOUND
    assert (document["rows"], document["near"][0]) == ([], "CL-CRC-BODY")


def test_hostile_text_is_escaped(run: Run) -> None:
    status, out, err = run("Topic: \x1b[31mred\u202e QID: 1 logic queue order maybe wrong")
    assert status == ExitStatus.DONE
    assert "\x1b" not in out + err and "\u202e" not in out
    assert r"\x1b[31mred\u202e" in out
    _, _, err = run("\x1b[2Jnothing")
    assert "\x1b" not in err


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_any_text_gives_known_names_or_a_sentence(text: str) -> None:
    names = {explanation.name for explanation in EVERYTHING}
    try:
        assert {explanation.name for explanation in explain(text)} <= names
    except ValueError as error:
        assert "number" in str(error) or "does not fit" in str(error)
    assert names.issuperset(near(text))


@settings(max_examples=50)
@given(st.sampled_from([one.name for one in EVERYTHING]), st.text(max_size=30))
def test_any_value_gives_known_names_or_a_sentence(name: str, value: str) -> None:
    names = {explanation.name for explanation in EVERYTHING}
    try:
        assert {explanation.name for explanation in explain(f"{name} {value}")} <= names
    except ValueError as error:
        assert "not a number" in str(error) or "does not fit" in str(error)


def test_a_very_long_line_takes_no_time() -> None:
    # 100 kB is what a shell passes as one argument; a quadratic pattern would need minutes.
    assert only("9" * 100_000 + " length not matched message store config value").kind == "log line"
    assert explain("9" * 100_000) == []


def test_no_heavy_library_is_loaded() -> None:
    code = (
        "import sys; from rmqinspect.cli import main; main(['explain', 'CL-CRC-BODY']); "
        "print([name for name in 'pyarrow numpy rich pyspark'.split() if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert printed.stdout.splitlines()[-1] == "[]"


def test_colours_are_for_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run("CL-CRC-BODY")[1]
    monkeypatch.setattr("rmqinspect.cli.explain.use_colour", lambda *_: True)
    assert run("CL-CRC-BODY")[1].startswith("\x1b[1mCL-CRC-BODY\x1b[0m\n")
