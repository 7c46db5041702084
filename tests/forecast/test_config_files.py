"""Files of config/ at a start: which are read, which from their .bak, and which refuse."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.gone import gone_config
from rmqinspect.config.decoding import decode
from rmqinspect.config.shapes import KINDS, Kind
from rmqinspect.forecast.config_files import ConfigStart, read_config_files
from rmqinspect.forecast.settings import Settings, settings_of
from rmqinspect.forecast.timer_log import timer_notes
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle
from tests.support.outcome_stores import outcome_store
from tests.support.sampling import sampled

_GOOD = {
    "topics.json": '{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"topicName":"T","perm":6}}}',
    "consumerOffset.json": '{"offsetTable":{"T@g":{0:12}}}',
    "subscriptionGroup.json": '{"subscriptionGroupTable":{}}',
    "consumerFilter.json": '{"filterDataByTopic":{}}',
    "consumerOrderInfo.json": '{"table":{}}',
    "topicQueueMapping.json": '{"topicQueueMappingInfoMap":{}}',
    "delayOffset.json": '{"offsetTable":{1:5}}',
    "timermetrics": '{"timingCount":{}}',
}
_BAD = '{"offsetTable":{"T@g":{0:1'
_UNTOLD = "/* a comment */ {}"


def _start(root: Path, release: str, files: dict[str, str], settings: Settings | None = None) -> ConfigStart:
    """Start a store whose configuration files are good, but for some; None as text leaves a file out."""
    for name, text in {**_GOOD, **files}.items():
        path = root / "config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "commitlog").mkdir(exist_ok=True)
    return read_config_files(open_store([str(root)]), rules_of_start(release), settings or Settings())


@pytest.mark.parametrize("name", sampled(oracle.cases("broker"), 4))
def test_files_of_real_brokers_are_read(name: str) -> None:
    store = open_store([str(oracle.store("broker", name))])
    settings = settings_of(store)[0]
    for release in ("4.0.0", "4.9.8", "5.5.0"):
        start = read_config_files(store, rules_of_start(release), settings)
        assert (start.first, start.last, start.unknown, start.from_backup) == (None, None, None, [])


@pytest.mark.parametrize(
    ("own", "backup", "read", "refused"),
    [
        (_GOOD["consumerOffset.json"], _BAD, False, False),
        ("", _GOOD["consumerOffset.json"], True, False),
        (_BAD, _GOOD["consumerOffset.json"], True, False),
        ("\0" * 30, _GOOD["consumerOffset.json"], True, False),
        ("", "", False, False),
        (_BAD, "", False, False),
        ("", _BAD, False, True),
        (_BAD, _BAD, False, True),
    ],
)
@pytest.mark.parametrize("release", ["4.2.0", "5.3.3", "5.5.0"])
def test_a_file_and_its_backup(tmp_path: Path, release: str, own: str, backup: str, read: bool, refused: bool) -> None:
    start = _start(tmp_path, release, {"consumerOffset.json": own, "consumerOffset.json.bak": backup})
    assert start.from_backup == (["consumerOffset.json"] if read else [])
    assert (start.first is not None) == refused
    if start.first is not None:
        assert start.first.file == "config/consumerOffset.json.bak"
    gone = release == "5.5.0" and own != _GOOD["consumerOffset.json"]
    assert start.deleted == (["config/consumerOffset.json"] if gone else [])


def test_a_missing_file_is_read_from_its_backup_and_not_deleted(tmp_path: Path) -> None:
    _start(tmp_path, "5.5.0", {"topics.json.bak": _GOOD["topics.json"]})
    (tmp_path / "config/topics.json").unlink()
    start = read_config_files(open_store([str(tmp_path)]), rules_of_start("5.5.0"), Settings())
    assert (start.from_backup, start.deleted) == (["topics.json"], [])


@pytest.mark.parametrize(
    ("release", "name", "when"),
    [
        ("4.0.0", "consumerFilter.json", None),
        ("4.1.0", "consumerFilter.json", "first"),
        ("4.9.8", "consumerOrderInfo.json", None),
        ("5.0.0", "consumerOrderInfo.json", "first"),
        ("5.0.0", "topicQueueMapping.json", "first"),
        ("4.9.1", "delayOffset.json", "first"),
        ("4.9.2", "delayOffset.json", "last"),
        ("5.5.0", "delayOffset.json", "last"),
        ("4.9.8", "timermetrics", None),
        ("5.0.0", "timermetrics", "last"),
        ("5.5.0", "messageRequestMode.json", None),
    ],
)
def test_which_files_refuse_when(tmp_path: Path, release: str, name: str, when: str | None) -> None:
    start = _start(tmp_path, release, {name: _BAD, f"{name}.bak": _BAD})
    refused = start.first or start.last
    assert (refused is not None) == (when is not None)
    assert (start.first is not None, start.last is not None) == (when == "first", when == "last")


def test_settings_decide_which_files_are_read(tmp_path: Path) -> None:
    bad = dict.fromkeys(("topics.json", "topics.json.bak", "timermetrics", "timermetrics.bak"), _BAD)
    assert _start(tmp_path, "5.3.3", bad).first is not None
    for settings in (Settings(store_type="defaultRocksDB"), Settings(config_manager_version="V2")):
        start = _start(tmp_path, "5.3.3", bad, settings)
        assert start.first is None
        assert start.last is not None
        assert start.last.file == "config/timermetrics.bak"
    start = _start(tmp_path, "5.3.3", bad, Settings(store_type="defaultRocksDB", timer_wheel_enable=False))
    assert start.last is None
    light = {"lmqConsumerOffset.json": _BAD, "lmqConsumerOffset.json.bak": _BAD, "topics.json": _GOOD["topics.json"]}
    assert _start(tmp_path, "5.3.3", light).first is None
    assert _start(tmp_path, "5.3.3", light, Settings(enable_lmq=True)).first is not None


def test_what_is_not_known_of_the_brokers_parsers_leaves_the_start_open(tmp_path: Path) -> None:
    start = _start(tmp_path, "5.5.0", {"topics.json": _UNTOLD})
    assert (start.unknown, start.first) == (None, None)
    assert start.notes[0].startswith("topics.json: ")
    start = _start(tmp_path, "5.5.0", {"topics.json": _UNTOLD, "topics.json.bak": _BAD})
    assert start.unknown is not None
    start = _start(tmp_path, "5.5.0", {"topics.json": _BAD, "topics.json.bak": _UNTOLD})
    assert start.unknown is not None


def _is_read(raw: bytes, kind: Kind, release: str) -> bool | None:
    """Return whether a release reads these bytes; None where that is not known."""
    found = decode(raw, kind)
    if found.fate == "list":
        return rules_of_start(release).config_list == "read"
    return None if found.fate == "unsure" else found.fate == "read" and not found.empty  # the .bak decides for that


_MEMBER = '{%s,"offsetTable":{"T@g":{"0":12}}}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumerOffset.json", _MEMBER % '"resetOffsetTable":{},"processedPullOffsetTable":{"g":["T"]}'),
        ("consumerOffset.json", _MEMBER % '"resetOffsetTable":{"T@g":{"0":3}}'),
        ("consumerOffset.json", _MEMBER % '"u":[{"a":1},{"b":[{}]}]'),
        ("consumerOffset.json", json.dumps(json.loads(_MEMBER % '"u":{"1":{"true":null}}'), indent=2)),
        (
            "subscriptionGroup.json",
            '{"markers":{},"subscriptionGroupTable":{"g":{"subscriptionDataSet":[]}}}',
        ),
        ("topics.json", '{"u":{"a":1},"topicConfigTable":{"T":{"v":{"a":1},"w":[1]}}}'),
        ("delayOffset.json", '{"offsetTable":{"3":21},"u":{"a":{"1":2}}}'),
        ("timermetrics", '{"timingCount":{},"timingDistribution":{},"timerDist":[5,60]}'),
        ("transactionMetrics", '{"version":1,"generation":3,"topics":{"T":{"count":2,"timestamp":1}}}'),
    ],
)
def test_what_another_writer_adds_is_skipped(name: str, text: str) -> None:
    """Managers of 4.9.7, 5.1.4, 5.3.3 and 5.5.0 read each of these, and what they know of it."""
    found = decode(text.encode(), {kind.name: kind for kind in KINDS}[name])
    assert (found.fate, found.trouble) == ("read", "")


def test_a_note_on_a_file_says_why_it_is_not_known_who_reads_it(tmp_path: Path) -> None:
    # 5.5.0 alone refuses it: fastjson2 cannot skip an object whose names are bare numbers.
    start = _start(tmp_path, "5.3.3", {"consumerOffset.json": '{"u":{1:2},"offsetTable":{}}'})
    assert start.notes[0].startswith("consumerOffset.json: brokers do not know its u: it is not known whether")


def test_a_store_of_another_writer_has_nothing_to_note() -> None:
    store = open_store([str(oracle.store("rust", "clean-1.0.0"))])
    for release in ("4.0.0", "4.9.8", "5.5.0"):
        start = read_config_files(store, rules_of_start(release), settings_of(store)[0])
        assert (start.first, start.last, start.unknown, start.from_backup, start.notes) == (None, None, None, [], [])


def test_texts_that_real_brokers_were_given() -> None:
    """Managers of five releases were given damaged files; their .bak could not be read."""
    asked = json.loads((oracle.DATA / "config-texts.json").read_text())
    kinds = {kind.name.removesuffix(".json"): kind for kind in KINDS}
    sure, wrong = 0, []
    for name, front, behind, between, answers in asked["texts"]:
        whole = asked["files"][name].encode()
        zeros = between.removesuffix(" zeros")
        inside = bytes(int(zeros)) if zeros != between else bytes.fromhex(between)
        raw = whole[:front] + inside + whole[len(whole) - behind :]
        told = [_is_read(raw, kinds[name], release) for release in asked["releases"]]
        sure += told[0] is not None
        wrong += [(name, front, between) for own, answer in zip(told, answers, strict=True) if own is (answer != "+")]
    assert not wrong
    assert sure > len(asked["texts"]) / 2


def test_texts_that_are_no_configuration_at_all() -> None:
    """Managers of eight releases were given null, lists, words, blanks, a byte order mark, members that are null."""
    asked = json.loads((oracle.DATA / "config-texts.json").read_text())["whole"]
    kinds = {kind.name.removesuffix(".json"): kind for kind in KINDS}
    sure, wrong = 0, []
    for name, text, answers in asked["texts"]:
        for release, answer in zip(asked["releases"], answers, strict=True):
            own = _is_read(bytes.fromhex(text), kinds[name], release) if answer != "." else None
            sure += own is not None
            wrong += [(name, bytes.fromhex(text), release)] if own is (answer != "+") else []
    assert not wrong
    assert sure > 3 * len(asked["texts"])


# fastjson 1.2.69 and 1.2.83 and fastjson2 2.0.43 and 2.0.59 throw at each of these.
_NO_JSON = (
    "<nil>\n",
    "<html><body>it's http://here</body></html>",
    "# comment\n{}",
    "key: value\n",
    "key: {}",
    "2026-11-28 10:00:00 error",
    "cat: x: No such file",
    "None",
    "(nil)",
    "@x",
    ";{}",
    "\x7fELF",
    "SQLite format 3\0",
    "\u4e2d\u6587",
)


@pytest.mark.parametrize("text", _NO_JSON)
def test_what_is_no_configuration_refuses_the_start(tmp_path: Path, text: str) -> None:
    for release in ("4.2.0", "5.5.0"):
        start = _start(tmp_path, release, {"topics.json": text, "topics.json.bak": text})
        assert start.unknown is None
        assert start.first is not None
        assert start.first.file == "config/topics.json.bak"
    # The .bak alone is enough.
    start = _start(tmp_path, "4.2.0", {"topics.json": text, "topics.json.bak": _GOOD["topics.json"]})
    assert (start.first, start.unknown, start.from_backup) == (None, None, ["topics.json"])


@pytest.mark.parametrize("text", ["// a comment\n{}", '9"topicConfigTable":{}}', "''", '[{"topicConfigTable":{}}]'])
def test_what_some_brokers_read_leaves_the_start_open(tmp_path: Path, text: str) -> None:
    start = _start(tmp_path, "5.5.0", {"topics.json": text, "topics.json.bak": text})
    assert (start.first, start.unknown is not None) == (None, True)


def test_a_group_file_without_a_value_is_refused_and_can_be_moved_away() -> None:
    """Real 4.9.7, 5.3.3 and 5.5.0 do not start; 4.9.7 does with both copies moved away."""
    found = forecast(open_store([str(outcome_store("nil-group"))]), ForecastRequest(instead=True))
    refusal = found.worst.refusal
    assert refusal is not None
    assert (found.worst.verdict, refusal.file) == ("WILL NOT START", "config/subscriptionGroup.json.bak")
    assert refusal.remedy.startswith("restore config/subscriptionGroup.json from a backup, a slave or another broker")
    best = found.instead[0]
    assert best.is_better
    assert best.remedy.moved == ("config/subscriptionGroup.json", "config/subscriptionGroup.json.bak")
    assert best.remedy.costs == ("starts without its consumer groups",)
    assert best.outcome.losses.messages == 0


def test_a_bad_backup_of_a_file_that_is_missing_is_moved_alone(tmp_path: Path) -> None:
    _start(tmp_path, "5.3.3", {"consumerFilter.json.bak": _BAD})
    (tmp_path / "config/consumerFilter.json").unlink()
    start = read_config_files(open_store([str(tmp_path)]), rules_of_start("5.3.3"), Settings())
    assert start.first is not None
    assert start.first.moves_also == ()
    assert "copy config/consumerFilter.json.bak, then move it to a place outside" in start.first.remedy


@pytest.mark.parametrize("text", ["null", " null\n", "\ufeffnull", "{}", "\ufeff{}"])
@pytest.mark.parametrize("release", ["4.2.0", "5.5.0"])
def test_a_file_with_nothing_in_it_is_read(tmp_path: Path, text: str, release: str) -> None:
    start = _start(tmp_path, release, {"consumerOffset.json": text, "consumerOffset.json.bak": _BAD})
    assert (start.first, start.unknown) == (None, None)
    assert start.notes[0].startswith("consumerOffset.json: it ")


def test_an_empty_list_is_read_up_to_5_3_3(tmp_path: Path) -> None:
    for release, from_backup in (("4.9.7", []), ("5.3.3", []), ("5.4.0", ["delayOffset.json"])):
        files = {"delayOffset.json": "[]", "delayOffset.json.bak": _GOOD["delayOffset.json"]}
        assert _start(tmp_path, release, files).from_backup == from_backup


def test_a_folder_in_the_place_of_a_file_cannot_be_read(tmp_path: Path) -> None:
    _start(tmp_path, "5.3.3", {"consumerOffset.json.bak": _GOOD["consumerOffset.json"]})
    (tmp_path / "config/consumerOffset.json").unlink()
    (tmp_path / "config/consumerOffset.json").mkdir()
    for release in ("5.3.3", "5.5.0"):
        start = read_config_files(open_store([str(tmp_path)]), rules_of_start(release), Settings())
        assert (start.from_backup, start.deleted) == (["consumerOffset.json"], [])
    (tmp_path / "config/consumerOffset.json.bak").unlink()
    (tmp_path / "config/consumerOffset.json.bak").mkdir()
    assert read_config_files(open_store([str(tmp_path)]), rules_of_start("5.5.0"), Settings()).first is not None


@pytest.mark.parametrize("release", ["4.0.0", "5.5.0"])
@pytest.mark.parametrize("name", ["consumerOffset.json", "delayOffset.json", "topics.json", "subscriptionGroup.json"])
def test_what_a_start_does_without_a_file_that_is_gone_is_a_note(name: str, release: str, tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    for file in (name, f"{name}.bak"):
        (root / "config" / file).unlink()
    store = open_store([str(root)])
    start = read_config_files(store, rules_of_start(release), settings_of(store)[0])
    [note] = start.notes
    [without] = [kind.without for kind in KINDS if kind.name == name]
    assert note.startswith(f"{name} is gone (")
    assert note.endswith(f": the broker starts {without}")


def notes_of_timer(store: Store, release: str) -> list[str]:
    return list(timer_notes(store, rules_of_start(release), settings_of(store)[0], gone_config(store)))


@pytest.mark.parametrize("size", [None, 5, 31])
@pytest.mark.parametrize("name", ["main-5.1.4", "main-5.3.3", "main-5.5.0"])
def test_a_timer_begins_anew_without_its_checkpoint(name: str, size: int | None, tmp_path: Path) -> None:
    """Source: TimerCheckpoint#<init>, which reads 0 behind the file's end, TimerMessageStore#recover."""
    root = oracle.copy("broker", name, tmp_path)
    file, release = root / "config/timercheck", name.partition("-")[2]
    whole = file.read_bytes()
    file.unlink()
    if size is not None:
        file.write_bytes(whole[:size])
    store = open_store([str(root)])
    [note] = notes_of_timer(store, release)
    assert note.startswith("timercheck " + ("is gone (" if size is None else f"is cut off: {size} bytes of 32 ("))
    assert note.endswith("timer messages that were delivered are delivered again")
    assert notes_of_timer(store, "4.9.7") == []  # it has no timer
    assert notes_of_timer(replace(store, settings={**store.settings, "timerWheelEnable": "false"}), release) == []
    file.write_bytes(whole[:32])
    assert notes_of_timer(open_store([str(root)]), release) == []


def test_units_that_the_timer_log_lacks_are_a_note(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    for file in (root / "timerlog").iterdir():
        file.unlink()
    [note] = notes_of_timer(open_store([str(root)]), "5.3.3")
    assert note.startswith("the timer log ends at 0 of 3 484, where timercheck has it: timer messages")
    (root / "config/timercheck").unlink()  # then nothing says so
    assert notes_of_timer(open_store([str(root)]), "5.3.3") == []
