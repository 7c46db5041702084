"""ST-CONFIG: what brokers of each era cannot read, what they do then, and what they read all the same.

What a decoder takes was tried on the managers of 4.2.0, 4.9.7, 5.3.3, 5.4.0 and 5.5.0: the tables
below are what all of them, or the named ones, did.
"""

import json
import random
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.config.shapes import KINDS
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.verify.config import check_configs
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.rocksdb import needs_rocksdict
from tests.support.side_tables import BROKERS, broker, store_of, write

TOPIC = (
    b'{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"A",'
    b'"topicSysFlag":0,"writeQueueNums":4}'
)
# One small document of each kind, as a broker writes it.
WHOLE = {
    "topics.json": b'{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{"A":' + TOPIC + b"}}",
    "subscriptionGroup.json": b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"forbiddenTable":{},'
    b'"subscriptionGroupTable":{"G":{"groupName":"G","consumeEnable":true,"retryMaxTimes":16,"brokerId":0,'
    b'"groupRetryPolicy":{"type":"CUSTOMIZED"}}}}',
    "consumerOffset.json": b'{"offsetTable":{"T@G":{0:5,1:6}}}',
    "lmqConsumerOffset.json": b'{"lmqOffsetTable":{"%LMQ%a@%LMQ%b":7},"offsetTable":{"T@G":{0:5}}}',
    "delayOffset.json": b'{"offsetTable":{1:5,2:3}}',
    "consumerFilter.json": b'{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bloomFilterData":{"bitNum":112,'
    b'"bitPos":[1,2,3]},"bornTime":1,"consumerGroup":"G","deadTime":0,"expression":"a > 3","topic":"T"}},'
    b'"topic":"T"}}}',
    "consumerOrderInfo.json": b'{"table":{"T@G":{0:{"cm":3,"i":30,"l":5,"o":[100,1],"oc":{100:1},"popTime":7}}}}',
    "topicQueueMapping.json": b'{"dataVersion":{"counter":1,"timestamp":5},"topicQueueMappingInfoMap":{"S":{'
    b'"bname":"b","currIdMap":{0:0},"epoch":5,"hostedQueues":{0:[{"bname":"b","endOffset":-1,"queueId":0}]},"topic":"S"}}}',
    "messageRequestMode.json": b'{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","topic":"T"}}}}',
    "timermetrics": b'{"dataVersion":{"counter":1,"timestamp":5},"timingCount":{"T":{"count":-2,"timeStamp":1}}}',
    "transactionMetrics": b'{"dataVersion":{"counter":1,"timestamp":5},"transactionCount":{}}',
    "tieredStoreMetadata.json": b'{"topicSerialNumber":3,"queueMetadataTable":{"T":{0:{"maxOffset":9,"minOffset":0}}}}',
    "position-checkpoint": b'{"queueOffsetMap":{}}',
}
OFFSETS = "config/consumerOffset.json"
GOOD = WHOLE["consumerOffset.json"]


def table(raw: bytes) -> bytes:
    return b'{"offsetTable":' + raw + b"}"


def place(kind: str) -> str:
    return ("compaction/" if kind == "position-checkpoint" else "config/") + kind


def found(root: Path) -> list[Finding]:
    """Return what is wrong with the files that are there."""
    return [finding for finding in check_configs(store_of(root)) if finding.code != "ST-CONFIG-GONE"]


def gone(root: Path) -> list[Finding]:
    return [finding for finding in check_configs(store_of(root)) if finding.code == "ST-CONFIG-GONE"]


def only(root: Path) -> Finding:
    [finding] = found(root)
    assert finding.code == "ST-CONFIG"
    return finding


def test_there_is_a_whole_document_of_every_kind() -> None:
    assert {kind.name for kind in KINDS} == WHOLE.keys()


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKERS)
def test_a_store_that_a_broker_left_has_no_config_finding(name: str) -> None:
    assert list(check_configs(broker(name))) == []


def test_a_store_without_configuration_has_none_to_complain_of(tmp_path: Path) -> None:
    assert found(tmp_path) == []


@pytest.mark.parametrize("kind", WHOLE)
def test_a_whole_file_is_silent(tmp_path: Path, kind: str) -> None:
    write(tmp_path, place(kind), WHOLE[kind])
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    "raw",
    [
        GOOD + b" \r\n\t",
        b"\xef\xbb\xbf" + GOOD,
        b'{\n\t"offsetTable":{\n\t\t"T@G":{0:5,1:5\n\t\t}\n\t}\n}',
        b'{\n\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:5,\n\t\t\t1:5\n\t\t}\n\t}\n}',
        table(b"{}"),
        table(b'{"T@G":{"0":"5","1":5}}'),
        table(b'{"T@G@broadcast-1":{0:9223372036854775807}}'),
        b'{"someLaterMember":[{}],"offsetTable":{"T@G":{-1:-5}}}',
        b'{"dataVersion":{"counter":1,"timestamp":null},"offsetTable":{}}',
        b'{"groupTopicMap":{"G":["T"]},"offsetTable":{"T@G":{0:5},"U@G":{0:5}}}',  # a group appeared meanwhile
        b'{"groupTopicMap":{"G":["T"]},"offsetTable":{"T@G":{},"T@G@broadcast-1":{}},"pullOffsetTable":{"T@G":{0:5}}}',
        '{"offsetTable":{"\u952e@G":{0:5}}}'.encode(),
    ],
)
def test_what_every_broker_reads_is_silent(tmp_path: Path, raw: bytes) -> None:
    write(tmp_path, OFFSETS, raw)
    assert found(tmp_path) == []


def test_names_that_no_broker_reads_are_silent(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS, GOOD)
    write(tmp_path, OFFSETS + ".tmp", GOOD[:9])  # a save of up to 5.0.0 that was cut off
    write(tmp_path, "config/notes.json", b"{")
    write(tmp_path, "config/timercheck", bytes(4096))
    write(tmp_path, "config/topics/CURRENT", b"MANIFEST-000004\n")
    assert found(tmp_path) == []


# --- what is not read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "offset", "words"),
    [
        (b"", None, "it is empty"),
        (bytes(9000), 0, "all of its 9 000 bytes are zero"),
        (b"{", 1, "not JSON as brokers write it, from 1 (0x1) on"),
        (GOOD[:-1], 32, "the text ends within the value"),
        (GOOD[:20] + bytes(13), 20, "from 20 (0x14) on it is all zeros"),
        (GOOD[:17] + bytes(2) + GOOD[19:], 17, "it has zeros inside from 17 (0x11) on"),
        (GOOD + b"}", 33, "extra bytes after its end, from 33 (0x21) on"),
        (GOOD + b"\0\0 \n" + GOOD, 37, "extra bytes after its end, from 37 (0x25) on"),
        (GOOD.replace(b":5", b"=5"), 23, "Expecting"),
        (b'"text"', 0, "no object or array begins here"),
        (b"[]", None, "it is a list"),
        (table(b"[]"), None, "offsetTable is not an object"),
        (table(b"null"), None, "offsetTable is not an object"),
        (table(b'{"T@G":5}'), None, "offsetTable.T@G is not an object"),
        (table(b'{"T@G":null}'), None, "offsetTable.T@G is not a value"),
        (table(b'{"T@G":{0:null}}'), None, "offsetTable.T@G.0 is not a value"),
        (table(b'{"T@G":{0:"x"}}'), None, "offsetTable.T@G.0 is not a number of 64 bits"),
        (table(b'{"T@G":{0:9223372036854775808}}'), None, "offsetTable.T@G.0 is not a number of 64 bits"),
        (table(b'{"T@G":{0:{}}}'), None, "offsetTable.T@G.0 is not a number of 64 bits"),
        (table(b'{"T@G":{"x":1}}'), None, "offsetTable.T@G.x is not a number of 32 bits as the key"),
        (table(b'{"T@G":{4294967296:1}}'), None, "is not a number of 32 bits as the key"),
        (table(b'{"T@G":{"$ref":"$.nowhere"}}'), None, "its reference '$.nowhere' has no target"),
        (b'{"dataVersion":{"counter":null},"offsetTable":{}}', None, "dataVersion.counter is not a number"),
    ],
)
def test_what_no_broker_reads_is_an_error(tmp_path: Path, raw: bytes, offset: int | None, words: str) -> None:
    write(tmp_path, OFFSETS, raw)
    finding = only(tmp_path)
    assert (finding.severity, finding.file, finding.offset) == ("error", OFFSETS, offset)
    assert "a broker cannot read this file: " in finding.message
    assert words in finding.message
    assert "there is no .bak: the broker starts without consumer offsets" in finding.message


@pytest.mark.parametrize(
    ("kind", "old", "new", "words"),
    [
        ("topics.json", b":6", b':"rw"', "topicConfigTable.A.perm is not a number of 32 bits"),
        ("topics.json", b":6", b":4294967296", "topicConfigTable.A.perm is not a number of 32 bits"),
        ("topics.json", b"false", b'"no"', "topicConfigTable.A.order is not true or false"),
        ("topics.json", b"SINGLE_", b"DOUBLE_", "topicFilterType is not SINGLE_TAG or MULTI_TAG"),
        ("subscriptionGroup.json", b'{"type":"CUSTOMIZED"}', b"7", "G.groupRetryPolicy is not an object"),
        ("lmqConsumerOffset.json", b":7}", b":[]}", "lmqOffsetTable.%LMQ%a@%LMQ%b is not a number"),
        ("delayOffset.json", b"1:", b'"one":', "offsetTable.one is not a number of 32 bits as the key"),
        ("consumerFilter.json", b"[1,2,3]", b"1", "bloomFilterData.bitPos is not a list"),
        ("consumerOrderInfo.json", b"[100,1]", b'[100,"x"]', "table.T@G.0.o[1] is not a number of 64 bits"),
        ("topicQueueMapping.json", b"[{", b"[7,{", "hostedQueues.0[0] is not an object"),
        ("messageRequestMode.json", b"POP", b"PIP", "messageRequestModeMap.T.G.mode is not PULL or POP"),
        ("timermetrics", b"-2", b"{}", "timingCount.T.count is not a number of 64 bits"),
        ("tieredStoreMetadata.json", b":9", b':"x"', "queueMetadataTable.T.0.maxOffset is not a number"),
        ("position-checkpoint", b"{}}", b'{"T_0":"x"}}', "queueOffsetMap.T_0 is not a number of 64 bits"),
    ],
)
def test_a_wrong_value_is_named_by_its_key(tmp_path: Path, kind: str, old: bytes, new: bytes, words: str) -> None:
    assert WHOLE[kind].count(old) == 1
    write(tmp_path, place(kind), WHOLE[kind].replace(old, new))
    finding = only(tmp_path)
    assert (finding.severity, finding.file, finding.count) == ("error", place(kind), 1)
    assert words in finding.message


@pytest.mark.parametrize(("text", "severity"), [
    (b'{"version":1,"generation":3,"topics":{}}', None),  # rocketmq-rust's
    (b'{"version":2,"generation":3,"topics":{},"checksum":7}', None),
    (b'{"topics":[1]}', None),
    (b'{"dataVersion":{"counter":1,"timestamp":5},"transactionCount":[]}', "warning"),
    (b'{"transactionCount":{"T":3}}', "warning"),
    (b'{"counts":{}}', "warning"),
    (b"[1]", "warning"),
    (b'{"version":1,"topics":{', "error"),  # cut off
    (bytes(40), "error"),
])  # fmt: skip
def test_transaction_counts_of_another_shape_are_no_error(text: bytes, severity: str | None, tmp_path: Path) -> None:
    """Brokers count anew: TransactionalMessageServiceImpl asks TransactionMetrics#load for no result."""
    write(tmp_path, "config/transactionMetrics", text)
    assert [(row.severity, row.file) for row in found(tmp_path)] == (
        [(severity, "config/transactionMetrics")] if severity else []
    )


def test_many_wrong_values_are_one_finding(tmp_path: Path) -> None:
    entries = b",".join(b'"T%d@G":{0:"x"}' % number for number in range(500))
    write(tmp_path, OFFSETS, table(b"{" + entries + b"}"))
    assert only(tmp_path).count == 500


@pytest.mark.parametrize("kind", WHOLE)
def test_a_file_without_its_table_is_read_as_nothing(tmp_path: Path, kind: str) -> None:
    write(tmp_path, place(kind), b'{"dataVersion":{"counter":1,"timestamp":5}}')
    write(tmp_path, place(kind) + ".bak", WHOLE[kind])
    finding = only(tmp_path)
    assert finding.severity == ("warning" if kind == "transactionMetrics" else "error")
    assert "the broker sees no error and starts " in finding.message
    assert ".bak" not in finding.message  # none is asked for


@pytest.mark.parametrize(
    ("old", "new", "severity", "words"),
    [
        (b'"perm"', b'"perl"', "error", "topicConfigTable.A.perl is one bit off perm"),
        (b'"topicName":"A"', b'"topicName":"B"', "warning", "topicConfigTable.A is named 'B' inside"),
        (b'{"A":', b'{"B":', "warning", "topicConfigTable.B is named 'A' inside"),
        (b'"perm":6', b'"perm":6,"perm":2', "warning", "the key 'perm' is twice in one object"),
        (b'"A"', b'"\xc1"', "warning", "its text is not UTF-8"),
        (b'"perm":6', b'"perm":6.5', "warning", "it has the number 6.5"),
    ],
)
def test_what_every_broker_reads_wrongly_is_told(
    tmp_path: Path, old: bytes, new: bytes, severity: str, words: str
) -> None:
    write(tmp_path, "config/topics.json", WHOLE["topics.json"].replace(old, new))
    finding = only(tmp_path)
    assert (finding.severity, finding.file) == (severity, "config/topics.json")
    assert words in finding.message


def test_names_said_twice_and_differently_are_told(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS, b'{"groupTopicMap":{"G":["T","U"]},"offsetTable":{"T@G":{},"V@G":{}}}')
    finding = only(tmp_path)
    assert (finding.severity, finding.expected, finding.found) == ("warning", "U@G", "V@G")


@pytest.mark.parametrize(
    "members",
    [
        b'"perm":6,"perl":6',  # a member that came later, beside the known one
        b'"pern":6',  # two bits off: another build's own name
        b'"permission":6',
    ],
)
def test_an_unknown_member_is_no_damage(tmp_path: Path, members: bytes) -> None:
    write(tmp_path, "config/topics.json", WHOLE["topics.json"].replace(b'"perm":6', members))
    assert found(tmp_path) == []


def test_zeros_behind_the_end_are_a_warning_because_they_are_read(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS, GOOD + bytes(67))
    finding = only(tmp_path)
    assert (finding.severity, finding.offset, finding.length) == ("warning", 33, 67)


def test_users_own_text_may_be_of_another_charset(tmp_path: Path) -> None:
    gbk = WHOLE["consumerFilter.json"].replace(b"a > 3", "a = '中文'".encode("gbk"))
    write(tmp_path, "config/consumerFilter.json", gbk)
    assert only(tmp_path).severity == "info"


# --- what a broker does instead -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backup", "words"),
    [
        (None, "there is no .bak: the broker starts without its topics"),
        (b"", "there is only an empty .bak: the broker starts without its topics"),
        (WHOLE["topics.json"], "the broker reads the .bak, which is good and one save older (saved at each change)"),
        (b"{", "the .bak is damaged too (it is not JSON"),
        (bytes(5), "the .bak is damaged too (all of its 5 bytes are zero): the broker does not start"),
        (b"{}", "the .bak is damaged too (it has no topicConfigTable): the broker starts without its topics"),
    ],
)
def test_the_backup_decides_what_a_start_does(tmp_path: Path, backup: bytes | None, words: str) -> None:
    write(tmp_path, "config/topics.json", WHOLE["topics.json"][:-1])
    if backup is not None:
        write(tmp_path, "config/topics.json.bak", backup)
    finding = only(tmp_path)
    assert (finding.severity, finding.offset) == ("error", len(WHOLE["topics.json"]) - 1)
    assert words in finding.message


@pytest.mark.parametrize("kind", WHOLE)
def test_only_some_files_let_a_start_fail(tmp_path: Path, kind: str) -> None:
    for end in ("", ".bak"):
        write(tmp_path, place(kind) + end, b"{")
    optional = ("messageRequestMode.json", "transactionMetrics", "tieredStoreMetadata.json", "position-checkpoint")
    assert ("the broker does not start" in only(tmp_path).message) == (kind not in optional)


def test_a_bad_backup_of_a_good_file_is_info(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS, GOOD)
    write(tmp_path, OFFSETS + ".bak", GOOD[:-1])
    finding = only(tmp_path)
    assert (finding.severity, finding.file, finding.offset) == ("info", OFFSETS + ".bak", 32)
    assert "no broker needs this copy" in finding.message


@pytest.mark.parametrize(
    ("copies", "severity", "words"),
    [
        ({".bak": GOOD}, "info", "the broker reads the .bak, which is good and one save older"),
        ({".bak": GOOD, ".tmp": GOOD}, "info", "may be in config/consumerOffset.json.tmp, which no broker reads"),
        ({".tmp": GOOD}, "info", "there is no .bak: the broker starts without consumer offsets"),
        ({".bak": b""}, "error", "only an empty .bak"),
        ({".bak": b"{"}, "error", "the broker does not start"),
    ],
)
def test_a_missing_file_with_other_copies(tmp_path: Path, copies: dict[str, bytes], severity: str, words: str) -> None:
    for end, raw in copies.items():
        write(tmp_path, OFFSETS + end, raw)
    finding = only(tmp_path)
    assert (finding.severity, finding.file, finding.found) == (severity, OFFSETS, "no file")
    assert words in finding.message


def test_of_a_file_given_alone_no_backup_is_missed(tmp_path: Path) -> None:
    path = write(tmp_path, "consumerOffset.json", GOOD[:12])
    [finding] = check_configs(open_store([str(path)]))
    assert ".bak" not in finding.message
    path = write(tmp_path, "topics.json.bak", WHOLE["topics.json"])
    assert list(check_configs(open_store([str(path)]))) == []


@pytest.mark.parametrize(
    ("main", "backup", "warned"), [(b"{}", b"{3:7}", True), (b"{}", b"{}", False), (b"{3:7}", b"{3:6}", False)]
)
def test_an_empty_delay_table_is_the_trace_of_a_failed_start(
    tmp_path: Path, main: bytes, backup: bytes, warned: bool
) -> None:
    write(tmp_path, "config/delayOffset.json", table(main))
    write(tmp_path, "config/delayOffset.json.bak", table(backup))
    assert [finding.severity for finding in found(tmp_path)] == ["warning"] * warned


def test_what_cannot_be_read_is_no_damage(tmp_path: Path) -> None:
    path = write(tmp_path, OFFSETS, GOOD)
    store = store_of(tmp_path)
    path.unlink()  # as a broker that runs does
    assert [finding.code for finding in check_configs(store)] == ["ST-IO"]
    write(tmp_path, OFFSETS, b"{")
    small = replace(store_of(tmp_path), max_config=0)
    assert [finding.code for finding in check_configs(small)] == ["ST-UNCHECKED"]


# --- controller mode ------------------------------------------------------------------------------

EPOCHS = b"3\n1040970632\n1-0\n2-5000\n3-10000\n"  # written by EpochFileCache
UNCHECKED = EPOCHS.replace(b"1040970632", b"0")  # 0: the lines are not to be checked


@pytest.mark.parametrize(
    "raw",
    [
        EPOCHS,
        UNCHECKED.replace(b"-5000", b"-6000"),
        b"1\r\n%d\r\n7-1\r\n" % (zlib.crc32(b"7-1\r\n") & 0x7FFFFFFF),
    ],
)
def test_epochs_that_a_broker_reads_are_silent(tmp_path: Path, raw: bytes) -> None:
    write(tmp_path, "epochFileCheckpoint", raw)
    write(tmp_path, "epochFileCheckpoint.bak", b"")
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("raw", "offset", "words"),
    [
        (EPOCHS.replace(b"5000", b"5001"), 13, "the CRC32 of the lines does not match; a broker reads the .bak"),
        (EPOCHS[:-8], 0, "the first line says 3, but there are 2; a broker reads the .bak"),
        (EPOCHS.replace(b"2-5000", b"250000"), 0, "the first line says 3, but there are 2; a broker reads the .bak"),
        (UNCHECKED.replace(b"2-", b"1-"), 8, "epochs or their offsets do not ascend; a broker uses them"),
        (UNCHECKED.replace(b"-10000", b"-4000"), 15, "epochs or their offsets do not ascend; a broker uses them"),
        (EPOCHS.replace(b"1-0", b"1-\xff"), 15, "they are not UTF-8 text; a broker reads the .bak"),
        (EPOCHS.replace(b"2-5000", b"2-5OOO"), 17, "'2-5OOO' is not an epoch and an offset; startup ends"),
        (b"", 0, "line 1 is not a number; startup ends"),
        (b"3\n", 2, "line 2 is not a number; startup ends"),
        (b"x" + EPOCHS, 0, "line 1 is not a number; startup ends"),
    ],
)
def test_epochs_that_are_damaged(tmp_path: Path, raw: bytes, offset: int, words: str) -> None:
    write(tmp_path, "epochFileCheckpoint", raw)
    finding = only(tmp_path)
    assert (finding.severity, finding.file, finding.offset) == ("error", "epochFileCheckpoint", offset)
    assert words in finding.message
    assert "is missing or damaged too" in finding.message
    write(tmp_path, "epochFileCheckpoint.bak", EPOCHS)
    assert ".bak, which is good" in only(tmp_path).message


# --- whatever stands in a file --------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["topics.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json", "consumerOrderInfo.json"]
)
def test_every_flip_of_a_structural_character_is_told(tmp_path: Path, kind: str) -> None:
    raw = WHOLE[kind]
    silent = []
    for position, byte in enumerate(raw):
        for bit in range(8) if byte in b'{}[]:,"' else ():
            damaged = bytearray(raw)
            damaged[position] ^= 1 << bit
            write(tmp_path, place(kind), bytes(damaged))
            if not found(tmp_path):
                silent.append((position, bit))
    assert silent == []


@pytest.mark.parametrize("name", ["main-4.9.7", "main-5.5.0"])
def test_every_cut_of_a_real_file_is_told(tmp_path: Path, name: str) -> None:
    dice = random.Random(name)
    for path in sorted((oracle.store("broker", name) / "config").iterdir()):
        raw = path.read_bytes()
        for end in dice.sample(range(len(raw)), 5) if path.name in WHOLE else ():
            write(tmp_path, place(path.name), raw[:end])
            assert [finding.severity for finding in found(tmp_path)] == ["error"]
            write(tmp_path, place(path.name), raw[:end] + bytes(len(raw) - end))
            assert [finding.severity for finding in found(tmp_path)] == ["error"]
            (tmp_path / place(path.name)).unlink()


def mutations(raw: bytes, dice: random.Random) -> Iterator[bytes]:
    for _ in range(40):
        damaged = bytearray(raw)
        for _ in range(dice.choice((1, 1, 1, 4))):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        first, second = sorted(dice.choices(range(len(damaged)), k=2))
        yield bytes(damaged)
        yield bytes(damaged[:first] + damaged[second:])
        yield bytes(damaged[:second] + damaged[first:])


@pytest.mark.parametrize("kind", [*WHOLE, "epochFileCheckpoint"])
def test_no_mutation_raises(tmp_path: Path, kind: str) -> None:
    raw, name = (WHOLE[kind], place(kind)) if kind in WHOLE else (EPOCHS, kind)
    codes = set()
    for damaged in mutations(raw, random.Random(kind)):
        write(tmp_path, name, damaged)
        codes |= {finding.code for finding in found(tmp_path)}
    assert codes == {"ST-CONFIG"}


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "1", "T@G", "topic", "x"]), inner)
    ),
    max_leaves=8,
)
MEMBERS = sorted({name for kind in KINDS for name in kind.members})


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(MEMBERS), JUNK), st.binary(max_size=200))
def test_any_value_at_any_place_raises_nothing(document: dict[str, object], raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        for kind in WHOLE:
            write(Path(folder), place(kind), json.dumps(document).encode())
            write(Path(folder), place(kind) + ".bak", raw)
        write(Path(folder), "epochFileCheckpoint", raw)
        assert {finding.code for finding in found(Path(folder))} <= {"ST-CONFIG"}


def test_references_cannot_make_a_small_file_a_large_one(tmp_path: Path) -> None:
    inner = b",".join(b"%d:1" % number for number in range(4_000))
    same = b",".join(b'"T%d@G":{"$ref":"$.offsetTable.A"}' % number for number in range(4_000))
    write(tmp_path, OFFSETS, table(b'{"A":{' + inner + b"}," + same + b"}"))
    assert "has no target" in only(tmp_path).message
    write(tmp_path, OFFSETS, table(b'{"A@G":{0:1},"B@G":{"$ref":"$.offsetTable.A@G"}}'))
    assert found(tmp_path) == []


# --- files that are gone --------------------------------------------------------------------------


def without(name: str, target: Path, *files: str) -> Path:
    """Copy a broker's store without these files of `config/` and their copies."""
    root = oracle.copy("broker", name, target)
    for path in (root / "config").iterdir():
        if path.name.removesuffix(".bak") in files:
            path.unlink()
    return root


@pytest.mark.parametrize("name", ["main-4.7.1", "lmq-5.3.3", "halt-5.5.0"])
@pytest.mark.parametrize(
    ("files", "proof"),
    [
        (("topics.json",), "topics with queues: "),
        (("consumerOffset.json", "lmqConsumerOffset.json"), "groups in subscriptionGroup.json: g_all_1, …"),
        (("subscriptionGroup.json",), "groups with consumer offsets: g_all_1, …"),
        (("delayOffset.json",), "delay levels with queues"),
    ],
)
def test_a_file_that_others_prove_is_gone(name: str, files: tuple[str, ...], proof: str, tmp_path: Path) -> None:
    root = without(name, tmp_path, *files)
    [finding] = gone(root)
    assert found(root) == []
    assert (finding.severity, finding.file) == ("warning", f"config/{files[0]}")
    assert finding.expected is not None
    assert proof in finding.expected


@pytest.mark.parametrize(("size", "words"), [
    (None, "timercheck is gone"),
    (5, "timercheck is cut off: 5 bytes of 32"),
    (32, ""),
    (4096, ""),
])  # fmt: skip
@pytest.mark.parametrize("name", ["main-5.1.4", "main-5.5.0"])
def test_the_timer_log_proves_timercheck(name: str, size: int | None, words: str, tmp_path: Path) -> None:
    root = without(name, tmp_path, *(("timercheck",) if size is None else ()))
    if size is not None:
        file = root / "config/timercheck"
        file.write_bytes(file.read_bytes()[:size])
    findings = gone(root)
    assert [(row.severity, row.file, row.message.startswith(words)) for row in findings] == (
        [("warning", "config/timercheck", True)] if words else []
    )
    assert all("timer messages that were delivered are delivered again" in row.message for row in findings)


def test_what_groups_gave_back_proves_both_of_their_files(tmp_path: Path) -> None:
    root = without("main-4.9.7", tmp_path, "consumerOffset.json", "subscriptionGroup.json")
    assert [finding.expected for finding in gone(root)] == [
        "the file, because of 3 topics of what groups gave back: %DLQ%g_dlq_1, …",
        "the file, because of 3 topics of what groups gave back: %DLQ%g_dlq_1, …",
    ]


def test_a_broker_that_no_group_came_to_has_no_groups_to_save(tmp_path: Path) -> None:
    write(tmp_path, "config/topics.json", WHOLE["topics.json"])
    write(tmp_path, "config/delayOffset.json", WHOLE["delayOffset.json"])
    write(tmp_path, "consumequeue/A/0/00000000000000000000", bytes(40))
    assert gone(tmp_path) == []


@pytest.mark.parametrize(
    ("left", "ends", "lost"),
    [
        ((), "killed", []),
        ((), "stopped", ["config/consumerOffset.json"]),
        ((), "gave back", ["config/consumerOffset.json", "config/delayOffset.json"]),
        (("consumerOffset.json", "consumerFilter.json"), "stopped", []),
        (("consumerOffset.json", "consumerFilter.json"), "gave back", ["config/delayOffset.json"]),
    ],
)
@pytest.mark.parametrize("name", ["main-4.7.1", "main-4.9.7"])
def test_a_broker_that_ended_in_its_first_seconds_lost_no_file(
    name: str, left: tuple[str, ...], ends: str, lost: list[str], tmp_path: Path
) -> None:
    """Timers save offsets after 10 s; a stop in order up to 4.9.2 saves those of consumers, not those of delays.

    What a group gave back comes again after 10 s at the earliest, so that broker lived longer.
    """
    root = oracle.copy("broker", name, tmp_path)
    for path in (root / "config").iterdir():
        if path.name not in ("topics.json", "subscriptionGroup.json", *left):
            path.unlink()
    for path in (root / "consumequeue").iterdir():
        if path.name.startswith("%RETRY%") and ends != "gave back":
            shutil.rmtree(path)
    (root / "abort").unlink(missing_ok=True)
    if ends != "stopped":
        (root / "abort").touch()
    assert [finding.file for finding in gone(root)] == lost


@needs_rocksdict
def test_delays_are_gone_where_consumer_offsets_are_in_rocksdb(tmp_path: Path) -> None:
    with unpacked(open_store([str(without("rocksdb-5.3.3", tmp_path, "delayOffset.json"))])) as store:
        [finding] = check_configs(store)
    assert (finding.code, finding.file) == ("ST-CONFIG-GONE", "config/delayOffset.json")


def test_a_deleted_topic_misses_no_units_where_topics_are_gone(tmp_path: Path) -> None:
    """The broker of this store deleted a topic; its records are still in the log."""
    root = without("main-4.9.7", tmp_path, "topics.json")
    codes = {row.code for row in verify(open_store([str(root)]), VerifyOptions(jobs=1)).findings.rows}
    assert "ST-CONFIG-GONE" in codes
    assert "CQ-MISSING" not in codes


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("name", ["main-4.7.1", "main-4.9.7", "lmq-5.3.3", "halt-5.5.0"])
def test_the_whole_folder_is_gone_where_queues_prove_a_broker(name: str, emptied: bool, tmp_path: Path) -> None:
    """Dead letters come from a broker only: a store class alone does not write them."""
    root = oracle.copy("broker", name, tmp_path)
    rmtree(root / "config")
    if emptied:
        (root / "config").mkdir()
    assert {row.file for row in gone(root)} == {
        f"config/{file}"
        for file in ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
    } | ({"config/timercheck"} if (root / "timerlog").exists() else set())
    codes = {row.code for row in verify(open_store([str(root)]), VerifyOptions(jobs=1)).findings.rows}
    assert "CQ-MISSING" not in codes


@pytest.mark.parametrize("name", ["base-4.2.0-clean", "base-4.9.7-halt", "base-5.3.3-clean"])
def test_a_store_class_without_a_broker_lost_no_folder(name: str, tmp_path: Path) -> None:
    """Its queues of %RETRY% and SCHEDULE_TOPIC_XXXX prove no broker."""
    root = oracle.copy("crash", name, tmp_path)
    assert list((root / "consumequeue").glob("%RETRY%*"))
    assert gone(root) == []


def test_a_copy_of_the_log_lost_no_folder(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-4.9.7", tmp_path)
    for path in root.iterdir():
        if path.is_dir() and path.name != "commitlog":
            rmtree(path)
    assert gone(root) == []


# --- what a broker reads, and what is in its copy alone ----------------------------------------------

EMPTY = {
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
}


@pytest.mark.parametrize(("name", "member"), EMPTY.items())
def test_a_file_that_holds_nothing_is_told_where_its_copy_holds_something(
    name: str, member: str, tmp_path: Path
) -> None:
    write(tmp_path, place(name), b'{"dataVersion":{"counter":9,"timestamp":5},"%s":{}}' % member.encode())
    assert found(tmp_path) == []
    write(tmp_path, place(name) + ".bak", WHOLE[name])
    finding = only(tmp_path)
    assert (finding.severity, finding.file) == ("warning", place(name))
    assert finding.message.startswith("the file holds nothing, and its .bak does")


@pytest.mark.parametrize("raw", [b"null", b"\xef\xbb\xbfnull\n", b"{}"], ids=repr)
def test_groups_and_forecast_agree_about_a_file_of_nothing(raw: bytes, tmp_path: Path) -> None:
    """The brokers of all releases read it, and do not look at the copy."""
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    write(root, OFFSETS, raw)
    store = open_store([str(root)])
    assert read_consumer_offsets(store)[0] == []
    [outcome] = forecast(store, ForecastRequest("5.3.3")).outcomes
    assert any(note.startswith("consumerOffset.json: it") for note in outcome.notes)


def test_topics_of_which_none_is_left_are_restored_before_a_queue_is_moved_away(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    write(root, "config/topics.json", b"{}")
    [outcome] = forecast(open_store([str(root)]), ForecastRequest("5.3.3")).outcomes
    assert outcome.refusal is not None
    assert outcome.refusal.remedy.startswith("restore config/topics.json")


def test_configuration_files_alone_are_no_whole_store() -> None:
    root = oracle.store("broker", "main-4.9.7")
    assert verify(open_store([str(root / "config")]), VerifyOptions(jobs=1)).verdict.startswith("WHOLE CONFIG FILES")
    both = verify(open_store([str(root / "config"), str(root / "commitlog")]), VerifyOptions(jobs=1))
    assert not both.verdict.startswith("WHOLE CONFIG FILES")
