"""Cases of the property run: a base store, one to three damages, an exit, settings, and the release that starts it.

`random_case` gives the same in every run. `case_of` and `Case.line` turn a case into one line of JSON and back, so
that what a run found can be run again and kept.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rmqinspect.forecast.load import WHEEL_SIZE
from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.schemas.index import IndexHeader
from rmqinspect.schemas.message import MAGIC_BLANK, SysFlag
from rmqinspect.topics import SCHEDULE_TOPIC
from tests.broker.damages import HOWS, UNITS, Argument, Damage
from tests.broker.situations import SITUATIONS, situations_of
from tests.support import oracle

ABSENT = "-"
"""In the place of a setting's value: broker.conf does not say it."""

Chance = random.Random
Choose = Callable[[Chance], Argument]


class Case(NamedTuple):
    """One question to forecast and to a broker."""

    base: str  # a case of the crash family, or a name of `SITUATIONS`: its store of that release
    damages: tuple[Damage, ...]
    settings: Mapping[str, str]  # of broker.conf, beside the sizes of the base; or `ABSENT`
    release: str
    starts: int = 1  # one after the other; each but the last is killed once it serves

    def line(self) -> str:
        """Return the case as one line of JSON."""
        done = [[one.kind, dict(one.arguments)] for one in self.damages]
        fields = {"base": self.base, "release": self.release, "settings": dict(self.settings), "damages": done}
        return json.dumps(fields | ({"starts": self.starts} if self.starts > 1 else {}), ensure_ascii=False)


def case_of(line: str) -> Case:
    """Return the case of a line that `Case.line` made."""
    fields = json.loads(line)
    damages = tuple(Damage(kind, arguments) for kind, arguments in fields["damages"])
    return Case(fields["base"], damages, fields["settings"], fields["release"], fields.get("starts", 1))


def random_case(seed: int, number: int, release: str, family: str = "") -> Case:
    """Return a case of a release by its number; with a family, one of its damages comes first."""
    chance = random.Random(f"{family}{seed}/{release}/{number}")
    base = chance.choice(_bases_of(chance, release))
    kinds = [kind for kind in CHOICES if kind != "write_config" or release.startswith("4.")]
    most = (0, 0, 0, 1, 1, 2) if family else (0, 1, 1, 1, 1, 1, 2, 2, 3)
    damages = [random_damage(chance, kinds) for _ in range(chance.choice(most))]
    if family:
        kind, arguments = chance.choice(FAMILIES[family])
        damages.insert(0, Damage(kind, {name: choose(chance) for name, choose in arguments.items()}))
    if chance.random() < 0.3:  # the other exit
        damages.append(chance.choice((Damage("remove_file", {"name": "abort"}), Damage("leave_abort", {"text": ""}))))
    if chance.random() < 0.05:
        damages += [Damage("add_file", {"name": name, "size": chance.choice(sizes)}) for name, sizes in _TIMER.items()]
    names = chance.sample(list(SETTINGS), chance.choice((0, 0, 0, 0, 1, 1, 2)))
    settings = {name: chance.choice(SETTINGS[name]) for name in names}
    if settings.get("brokerRole") == "SLAVE":
        settings["brokerId"] = "1"
    if any("INNER_MULTI_DISPATCH" in one.arguments.values() for one in damages):
        settings["enableMultiDispatch"] = "true"
    return Case(base, tuple(damages), settings, release, chance.choice((1,) * 9 + (2,)))


def _bases_of(chance: Chance, release: str) -> list[str]:
    """Return all bases of one sort: stores of that release, of all releases, or in a situation."""
    recorded = {name: oracle.case("crash", name)["written_by"] for name in oracle.cases("crash")}
    whole = [name for name in recorded if not oracle.is_damaged(name)]
    own = [name for name in whole if recorded[name] == release]
    # Controller mode asks for things that hide all else.
    others = [name for name in situations_of(release) if "enableControllerMode" not in SITUATIONS[name].settings]
    return chance.choice([names for names in (own, own, whole, others) if names])


def random_damage(chance: Chance, kinds: Sequence[str] = ()) -> Damage:
    """Return one damage of these kinds, or of any, by weight."""
    (kind,) = chance.choices(kinds or list(CHOICES), [CHOICES[kind][0] for kind in kinds or CHOICES])
    _, arguments = CHOICES[kind]
    return Damage(kind.partition(":")[0], {name: choose(chance) for name, choose in arguments.items()})


def _one_of(*values: Argument) -> Choose:
    return lambda chance: chance.choice(values)


def _any_of(*chooses: Choose) -> Choose:
    return lambda chance: chance.choice(chooses)(chance)


def _number(most: int) -> Choose:
    return lambda chance: chance.randrange(most)


# Mostly what a start reads: the last segments.
SEGMENT = _one_of(-1, -1, -1, -2, -2, -3, -3, -4, 0, 1, -9, -10, -11)
RECORD = _any_of(_one_of(0, -1), _number(100))
ANY_RECORD = {"segment": SEGMENT, "record": RECORD}
QUEUE, FILE = _number(20), _one_of(-1, -1, -2, -3, 0)
_EDGES = ("=0", "=-1", "=1", f"={2**31 - 1}", f"={-(2**31)}", "+1", "+-1")
_TIMES = ("=0", "+-3000", "+3000", "+-100000", "+100000", "=1", "=-1", f"={2**63 - 1}", "=4102444800000")
_OFFSETS = ("+20", "+-20", "+100000", "+-100000", "=0", "=-1", f"={2**40}", f"={2**63 - 1}")

# Fields of a record that a start reads, with values that mean something there.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "total_size": (*_EDGES, "=7", "=8", "=19", "=20", "=91", "+20", "=70000", "=200000", "=300000000"),
    "magic": ("=-626843481", "=-626843477", "=-875286124", "=0", "+1"),
    "body_crc": ("+1", f"={-(2**31)}", "=0"),
    "queue_id": ("=0", "=1", "=7", "=-1", f"={2**31 - 1}"),
    "queue_offset": ("+1", "+-1", "+7", "=0", "=-1", "+1000", f"={2**40}", f"={2**63 - 1}"),
    "physical_offset": _OFFSETS,
    "sys_flag": tuple(f"^{int(flag)}" for flag in (SysFlag.BORNHOST_V6, SysFlag.STOREHOSTADDRESS_V6, 4, 8, 12, 0xC0)),
    "store_timestamp": _TIMES,
    "body_size": (*_EDGES, "=70000"),
    "topic_size": ("=0", "=-1", "+1", "+-1", "=127", "=-128"),
    "properties_size": ("=0", "=-1", "+1", "+-1", "=32767", "=-32768"),
    "reconsume_times": ("+1",),
    "prepared_transaction_offset": ("=-1",),
}

_NUMBERS = ("0", "2", "-1", "17", "18", "99", "x", "", " 2", "2147483648", "+3", "9223372036854775808")

# A fresh timer, or one of a wrong length: no store class writes one before start().
_TIMER: Mapping[str, Sequence[int]] = {
    "timerwheel": (0, WHEEL_SIZE, WHEEL_SIZE, 1, 4096, WHEEL_SIZE - 1),
    "timerlog/00000000000000000000": (5200, 5200, 0, 100, 104_857_600),
    "config/timercheck": (0, 1, 56, 4096),
}

# In the place of a queue's folder a file makes each start wait for 30 seconds: asked by hand.
_PLACES = ("abort", "lock", "checkpoint", "index", "index/*", "commitlog", "commitlog/*", "timerwheel", "timerlog")
_MORE_PLACES = ("config", "config/timercheck", "config/delayOffset.json", "batchconsumequeue", "compaction")
_NAMES = ("-1", "+1", "-65536", "+00000000000000065536", f"{1 << 40}", f"{1 << 62}", "0", "1", "9" * 19, "x")

_FOLDERS = ("commitlog", "commitlog", "queue", "queue", "index")
_HOW = _one_of(*(how for how in HOWS if how != "folder"))
_SEGMENT_SIZES = (-1, 0, 0, 1, 400, 65536, 32768)

CHOICES: Mapping[str, tuple[int, Mapping[str, Choose]]] = {
    "flip_bit": (8, {**ANY_RECORD, "byte": _any_of(_number(100), _number(9999)), "bit": _number(8)}),
    **{
        f"set_field:{name}": (weight, {**ANY_RECORD, "field": _one_of(name), "value": _one_of(*values)})
        for weight, (name, values) in zip((5, 3, 2, 2, 4, 4, 3, 3, 2, 2, 2, 1, 1), FIELDS.items(), strict=True)
    },
    "set_property:delay": (
        1,
        {
            **ANY_RECORD,
            "name": _one_of("DELAY"),
            "value": _one_of(*_NUMBERS),
            "topic": _one_of(SCHEDULE_TOPIC),
        },
    ),
    "set_property": (
        2,
        {
            **ANY_RECORD,
            "name": _one_of("INNER_NUM", "INNER_BASE", "DUP_INFO", "TAGS", "KEYS", "UNIQ_KEY", "__CRC32#", "DELAY"),
            "value": _one_of(*_NUMBERS, "a_b", "a_b_c", "_", "a b", " "),
        },
    ),
    "set_property:lmq": (
        2,
        {
            **ANY_RECORD,
            "name": _one_of("INNER_MULTI_DISPATCH"),
            "value": _one_of(
                *(f"%LMQ%a,{two}\2INNER_MULTI_QUEUE_OFFSET\1{at}" for two in "ab" for at in ("0,1", "7,0", "3", "x,0"))
            ),
        },
    ),
    "set_topic": (1, {**ANY_RECORD, "text": _one_of("Z", "TZ", "\xff", "/", ".", "%")}),
    "zero_pages": (5, {"segment": SEGMENT, "page": _number(16), "pages": _one_of(1, 1, 2, 5)}),
    "tear": (4, {"segment": _one_of(-1, -1, -1, -2), "record": RECORD, "byte": _number(400)}),
    "set_blank": (
        3,
        {
            "segment": _one_of(-2, -2, -3, -4, -1),
            "field": _one_of("total_size", "total_size", "magic"),
            "value": _one_of("+1", "+-1", "=0", "=8", "=-1", f"={2**31 - 1}"),
        },
    ),
    "repeat_records": (
        2,
        {
            "segment": _one_of(-1, -2, 0),
            "record": _number(100),
            "count": _one_of(1, 2, 5),
            "place": _one_of("old", "new", "new"),
        },
    ),
    "change_file": (10, {"folder": _one_of(*_FOLDERS), "file": FILE, "how": _HOW, "queue": QUEUE}),
    # Not in a queue: each put that meets the folder is tried for 30 seconds.
    "change_file:folder": (
        1,
        {"folder": _one_of("commitlog", "index"), "file": FILE, "how": _one_of("folder")},
    ),
    "replace": (4, {"name": _one_of(*_PLACES, *_MORE_PLACES), "how": _one_of("file", "folder", "full")}),
    "add_file": (2, {"name": _one_of(*_TIMER), "size": _one_of(*(size for some in _TIMER.values() for size in some))}),
    "rename_file": (2, {"folder": _one_of("commitlog", "index"), "file": FILE, "name": _one_of(*_NAMES)}),
    "swap_files": (2, {"folder": _one_of(*_FOLDERS), "file": FILE, "other": FILE, "queue": QUEUE}),
    "copy_file": (1, {"folder": _one_of(*_FOLDERS), "file": FILE, "other": FILE, "queue": QUEUE}),
    "add_stray": (
        3,
        {
            "folder": _one_of("commitlog", "queue", "topic", "consumequeue", "index"),
            "name": _one_of(
                ".DS_Store", "x.bak", "0", "9" * 20, "00000000000000000001", "7", "-1", "99", "20301231235959999"
            ),
            "size": _one_of(*_SEGMENT_SIZES),
            "queue": QUEUE,
        },
    ),
    "remove_folder": (
        3,
        {"folder": _one_of("queue", "queue", "topic", "consumequeue", "index", "commitlog"), "queue": QUEUE},
    ),
    "empty_folder": (1, {"folder": _one_of("queue", "topic", "commitlog", "index"), "queue": QUEUE}),
    "set_units": (
        10,
        {
            "queue": QUEUE,
            "file": FILE,
            "unit": _any_of(_number(20), _one_of(0, -1)),
            "count": _one_of(1, 1, 3, 400),
            "how": _one_of(*UNITS),
        },
    ),
    "zero_tails": (3, {"units": _one_of(1, 2, 5, 30)}),
    "change_last_files": (
        3,
        {"how": _one_of("lost", "zero", "next_zero", "next_zero", "short", "empty", "next_empty")},
    ),
    "shift_units": (3, {"queue": QUEUE, "file": FILE, "unit": _number(20), "units": _one_of(1, -1, 3, -3)}),
    "set_index_header": (
        4,
        {
            "file": _one_of(-1, -1, 0, -2),
            "field": _one_of(*dict.fromkeys(part.name for part in IndexHeader.subcons)),
            "value": _one_of("=0", "=-1", "+1", "+-1", "+-100000", "+100000", f"={2**31 - 1}", "=1"),
        },
    ),
    "set_checkpoint": (
        6,
        {"field": _one_of(*(part.name for part in Checkpoint.subcons)), "value": _one_of(*_TIMES, "=40000", "+20")},
    ),
    "cut_checkpoint": (3, {"length": _one_of(-1, -1, 0, 8, 20, 24, 40, 48)}),
    "leave_abort": (4, {"text": _one_of("", "12345", "x")}),
    "remove_file": (4, {"name": _one_of("abort", "abort", "abort.bak", "lock")}),
    "lose_power": (6, {"seconds": _one_of(1, 2, 5, 20), "odds": _one_of(10, 50, 90), "seed": _number(1000)}),
    # Read by the store itself before 5.0, and by the rest of the broker since: no store class says what comes of it.
    "write_config": (
        2,
        {
            "name": _one_of("delayOffset.json"),
            "text": _one_of("-", "", "{", "{}", "null", "[]"),
            "backup": _one_of("-", "", "{", "{}"),
        },
    ),
}
"""By the kind of damage, with a name behind a colon where one kind is chosen in several ways: weight and arguments."""

_LOG_FILE = {"folder": _one_of("commitlog"), "file": FILE}
_LENGTHS = ("short", "half", "long", "page_more", "empty", "next_empty", "renamed", "backup", "unaligned")

FAMILIES: Mapping[str, tuple[tuple[str, Mapping[str, Choose]], ...]] = {
    # A record that says it is the end of the file.
    "forged": (("set_field", {**ANY_RECORD, "field": _one_of("magic"), "value": _one_of(f"={MAGIC_BLANK}")}),),
    # A segment in the place of another.
    "copied": (
        ("change_file", {**_LOG_FILE, "how": _one_of("next_copy")}),
        ("copy_file", {**_LOG_FILE, "other": FILE}),
        ("swap_files", {**_LOG_FILE, "other": FILE}),
    ),
    # What a start may refuse, and what may be done about it.
    "refused": (
        ("change_file", {**_LOG_FILE, "how": _one_of(*_LENGTHS)}),
        ("change_file", {"folder": _one_of("queue", "index"), "file": FILE, "how": _one_of(*_LENGTHS), "queue": QUEUE}),
        ("add_stray", CHOICES["add_stray"][1]),
    ),
}
"""By name of a family: the damages that its cases begin with, and their arguments."""

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "mappedFileSizeCommitLog": (ABSENT, ABSENT, "131072"),
    "mappedFileSizeConsumeQueue": (ABSENT, "800"),
    "mappedFileSizeTimerLog": ("5200", "5200", "100"),
    "maxIndexNum": (ABSENT, "40"),
    "maxHashSlotNum": (ABSENT, "7"),
    "timerWheelEnable": ("false",),
    "checkCRCOnRecover": ("false",),
    "messageIndexSafe": ("true",),
    "messageIndexEnable": ("false",),
    "commitLogRecoverMaxNum": ("1", "2", "3", "0", "-1"),
    "enableAcceleratedRecovery": ("true",),
    "recheckReputOffsetFromCq": ("true",),
    "checkCommitLogOffsetOnRecover": ("true",),
    "forceVerifyPropCRC": ("true",),
    "duplicationEnable": ("true",),
    "flushDiskType": ("SYNC_FLUSH",),
    "transientStorePoolEnable": ("true",),
    "recoverConcurrently": ("true",),
    "brokerRole": ("SLAVE", "SYNC_MASTER"),
    "enableMultiDispatch": ("true",),
    "enableLmq": ("true",),
}
"""Settings that a start depends on, with values that are not the default."""
