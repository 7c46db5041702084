"""ST-CONFIG, ST-CONFIG-GONE: configuration files that a broker cannot read, reads only in part, or misses.

    file          .bak           what the broker uses
    good          any            the file
    missing,      good           the .bak, one save older
    empty or      none, empty    nothing: it starts without the table
    damaged       damaged        most managers: it does not start; others: nothing

Up to 5.0.0 a save writes `.tmp` and renames it; no broker reads a `.tmp`.

Source: ConfigManager#load, ConfigManager#loadBak, MixAll#string2File.

ST-CONFIG of `epochFileCheckpoint`: the epochs of the log in controller mode.

    3            number of lines below
    1874630921   CRC32 of these lines, 0 for none
    1-0          epoch-physical offset where it begins, both ascending
    2-1073741824
    3-1610612736

Source: CheckpointFile#read, EpochFileCache; RocketMQ 5.0.0 to 5.5.0.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec import Struct, field

from rmqinspect.broker.gone import TIMERCHECK, emptied_config, gone_config, how_gone, start_without
from rmqinspect.broker.unread import unread_by_writer
from rmqinspect.codec.fastjson import CHARSETS, JsonDocument
from rmqinspect.config.decoding import Decoded, decode
from rmqinspect.config.json_files import key_number, too_large
from rmqinspect.config.shapes import KINDS, Kind, Row, misnamed, renamed
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.text import count
from rmqinspect.verify.findings import Finding, unread_finding

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST_EPOCHS = 16 << 20  # half a million changes of the master
_CRC_MASK = 0x7FFFFFFF  # UtilAll#crc32


def check_epochs(main: StoreFile | None, backup: StoreFile | None) -> Iterator[Finding]:
    """Yield ST-CONFIG if a broker cannot read the file, ST-IO if the system cannot."""
    try:
        trouble = _trouble(main) if main else None
        if main is None or trouble is None:
            return
        good = backup is not None and _trouble(backup) is None
    except Unreadable as error:
        yield unread_finding(error)
        return
    backed = "is good" if good else "is missing or damaged too"
    yield Finding(
        "ST-CONFIG",
        f"the epochs of the log: {trouble.reason}; {trouble.then.format(backed)}",
        file=main.name,
        offset=trouble.offset,
        length=main.size - trouble.offset,
    )


# An IOException makes the broker read the .bak; a NumberFormatException ends its startup.
_ASKS = "a broker reads the .bak, which {}"
_FAILS = "startup ends with an exception and does not read the .bak, which {}"
_TAKES = "a broker uses them as they are and does not read the .bak, which {}"


class _Trouble(NamedTuple):
    reason: str
    offset: int
    then: str


def _trouble(file: StoreFile) -> _Trouble | None:
    """Return what is wrong with a copy, None when it is good.

    :raises Unreadable: the system reports an I/O error.
    """
    with open_file(file) as reader:
        raw = reader.read(0, _LONGEST_EPOCHS)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return _Trouble("they are not UTF-8 text", error.start, _ASKS)
    ends = [0, *(match.end() for match in _LINE_END.finditer(raw))]
    if ends[-1] < len(raw):
        ends.append(len(raw))
    lines = [raw[start:end].rstrip(b"\r\n").decode() for start, end in pairwise(ends)]
    heads = [key_number(line) for line in lines[:2]]
    for number in range(2):
        if number >= len(heads) or heads[number] is None:
            return _Trouble(f"line {number + 1} is not a number", ends[min(number, len(ends) - 1)], _FAILS)
    epochs: list[tuple[int, int, int]] = []
    for start, line in zip(ends[2:], lines[2:], strict=False):
        parts = line.rstrip("-").split("-")
        if len(parts) != 2:
            continue  # EpochEntry#fromLine skips it, and the count differs
        epoch, begin = key_number(parts[0]), key_number(parts[1], 64)
        if epoch is None or begin is None:
            return _Trouble(f"{line[:40]!r} is not an epoch and an offset", start, _FAILS)
        epochs.append((epoch, begin, start))
    if len(epochs) != heads[0]:
        return _Trouble(f"the first line says {heads[0]}, but there are {len(epochs)}", 0, _ASKS)
    # The broker's own line ends count, Unix or Windows.
    texts = ("".join(line + end for line in lines[2:]) for end in ("\n", "\r\n"))
    if heads[1] and heads[1] not in {zlib.crc32(text.encode()) & _CRC_MASK for text in texts}:
        return _Trouble("the CRC32 of the lines does not match", ends[2], _ASKS)
    for (before, began, _), (epoch, begin, start) in pairwise(epochs):
        if epoch <= before or begin < began:
            return _Trouble("epochs or their offsets do not ascend", start, _TAKES)
    return None


# --- one copy of a file -------------------------------------------------------------------------


class _Copy(Struct):
    """One copy of a file, as a broker reads it."""

    file: StoreFile
    read: Decoded
    doubts: list[Finding] = field(default_factory=list)  # readable, but no broker writes it so
    unread: Finding | None = None  # why it was not judged

    @property
    def good(self) -> bool:
        """Whether a broker reads all of it."""
        return not self.read.trouble and self.unread is None


def _read(file: StoreFile, kind: Kind, limit: int) -> _Copy:
    copy = _Copy(file, Decoded())
    if file.size > limit:
        what = too_large(file, limit)
        copy.unread = Finding("ST-UNCHECKED", what, file=file.name, length=file.size, unchecked=what, covered=True)
        return copy
    try:
        with open_file(file) as reader:
            copy.read = decode(reader.read(0, limit), kind)
    except Unreadable as error:
        copy.unread = unread_finding(error)
        return copy
    if copy.read.parsed:
        copy.doubts += _doubts(copy.file, copy.read.parsed, kind)
        copy.read.parsed = None  # two tables of a large broker would take too much memory
    return copy


def _doubts(file: StoreFile, parsed: JsonDocument, kind: Kind) -> Iterator[Finding]:
    """Yield the oddities of a file that every broker reads and none writes."""
    if keys := parsed.duplicates:
        words = "is twice in one object: only the last value counts, so an entry was lost or renamed"
        yield _odd(file.name, f"the key {keys[0]!r} {words}", count=len(keys), found=keys[0])
    if numbers := [number[:40] for number in parsed.fractions]:
        words = "brokers write whole numbers only, so a comma or a digit is damaged"
        yield _odd(file.name, f"it has the number {numbers[0]}: {words}", count=len(numbers), found=numbers[0])
    if parsed.charset != CHARSETS[0]:
        what = "its text is not UTF-8: 5.0.0 and later read other characters than were written"
        severity = "info" if kind.free_text else "warning"
        yield _odd(file.name, what, severity, expected="UTF-8", found=parsed.charset)
    if parsed.behind and not parsed.behind.strip(b"\0 \t\r\n\f\b"):
        what = "zeros after its end: brokers skip them, but none writes them"
        yield _odd(file.name, what, offset=parsed.end, length=len(parsed.behind))


def _odd(file: str, what: str, severity: str = "warning", **values: Any) -> Finding:
    """Return ST-CONFIG about a file that every broker reads."""
    return Finding("ST-CONFIG", what, severity, file, **values)


# --- a file and its copies ----------------------------------------------------------------------

_SAVED_EMPTY = "delayOffset.json"  # by a failed start


def check_configs(store: Store) -> Iterator[Finding]:
    """Yield ST-CONFIG for every configuration file that a broker cannot read, and what it does then.

    ST-IO is a copy that the system could not read, ST-UNCHECKED one that is too large. A missing file beside a
    good `.bak` is info: a crash during a save leaves it so.
    """
    others = {file.name: file for file in store.files if file.kind == "other"}
    reported = set()
    for kind in KINDS:
        for finding in _check_kind(store, kind, others):
            reported.add(finding.file)
            yield finding
    yield from check_epochs(others.get("epochFileCheckpoint"), others.get("epochFileCheckpoint.bak"))
    yield from _gone(store)
    yield from _not_read(store)
    yield from (finding for finding in _emptied(store) if finding.file not in reported)


def _check_kind(store: Store, kind: Kind, others: Mapping[str, StoreFile]) -> Iterator[Finding]:
    files = {
        end: store.config_files.get(kind.name + end) or others.get(f"{kind.folder}/{kind.name}{end}")
        for end in ("", ".bak", ".tmp")
    }
    backup = _read(files[".bak"], kind, store.max_config) if files[".bak"] else None
    if backup:
        backup.read.value = {}  # not in memory beside that of the file itself
    main = _read(files[""], kind, store.max_config) if files[""] else None
    for copy in (main, backup):
        if copy is not None and copy.unread is not None:
            yield copy.unread
    if main is None:
        hidden = store.hides(*filter(None, (*kind.folder.split("/"), kind.name)))
        if store.neighbours and not hidden and (backup or files[".tmp"]):
            yield _missing(kind, backup, files[".tmp"])
    elif main.unread is None:
        yield from _main(kind, main, backup, alone=not store.neighbours)
        if main.good and backup and backup.read.trouble:
            yield _finding(backup, "the file itself is good, so no broker needs this copy", "info")


def _main(kind: Kind, main: _Copy, backup: _Copy | None, *, alone: bool) -> Iterator[Finding]:
    yield from main.doubts
    # Whole JSON of another shape is another writer's, and not damaged: where brokers count anew, it is no error.
    severity = "warning" if kind.elsewhere and main.read.offset is None else ""
    if main.read.trouble and main.read.ignored:
        yield _finding(main, f"the broker sees no error and starts {kind.without}", severity)
    elif main.read.trouble:
        yield _finding(main, "" if alone else _fallback(kind, backup), severity)
    else:
        yield from _cross_check(kind, main)


def _cross_check(kind: Kind, copy: _Copy) -> Iterator[Finding]:
    """Yield contradictions inside a file that every broker reads."""
    shape, name = Row(kind.members), copy.file.name
    for path, member in renamed(shape, copy.read.value, ""):
        what = f"{path} is one bit off {member}: the broker does not know the name and loses the value"
        yield _odd(name, what, severity="", expected=member, found=path.rpartition(".")[2])
    for path, own in misnamed(shape, copy.read.value, ""):
        what = f"{path} is named {own!r} inside: one of the two names is damaged"
        yield _odd(name, what, expected=path.rpartition(".")[2], found=own)
    topics = copy.read.value.get("groupTopicMap")
    if topics and "groupTopicMap" in kind.members:
        # Made from the keys of offsetTable at each save. A group that comes or goes at that moment gives one key
        # more or one less, never both.
        listed = {f"{topic}@{group}" for group, names in topics.items() for topic in names}
        kept = {key for key in copy.read.value["offsetTable"] if key.count("@") == 1}
        if listed - kept and kept - listed:
            expected, found = min(listed - kept), min(kept - listed)
            what = f"offsetTable has {found}, groupTopicMap has {expected}: one of the names is damaged"
            yield _odd(name, what, expected=expected, found=found, count=len(listed ^ kept))


def _emptied(store: Store) -> Iterator[Finding]:
    """Yield files that a broker reads, and that hold nothing of what their copies hold."""
    without = {kind.name: kind.without for kind in KINDS}
    for name, proof in emptied_config(store).items():
        trace = ", trace of a failed startup" if name == _SAVED_EMPTY else ""
        what = f"the file holds nothing, and its .bak does{trace}. The broker starts {without[name]}"
        yield _odd(f"config/{name}", what, expected=proof, found="none")


def _finding(copy: _Copy, then: str, severity: str = "") -> Finding:
    return Finding(
        "ST-CONFIG",
        f"a broker cannot read this file: {copy.read.trouble}" + (f"; {then}" if then else ""),
        severity=severity,
        file=copy.file.name,
        offset=copy.read.offset,
        count=copy.read.count,
        expected=copy.read.expected,
        found=copy.read.found,
        length=None if copy.read.offset is None else max(0, copy.file.size - copy.read.offset),
    )


def _fallback(kind: Kind, backup: _Copy | None) -> str:
    """Return what a broker does when it cannot read the file itself. Source: ConfigManager#loadBak."""
    if backup is None or backup.read.empty:
        return f"there is {'no' if backup is None else 'only an empty'} .bak: the broker starts {kind.without}"
    if backup.unread is not None:
        return "the .bak could not be read, so what the broker does is not known"
    if backup.good:
        return f"the broker reads the .bak, which is good and one save older ({kind.saved})"
    if backup.read.ignored or not kind.needed:
        return f"the .bak is damaged too ({backup.read.trouble}): the broker starts {kind.without}"
    return f"the .bak is damaged too ({backup.read.trouble}): the broker does not start"


def _gone(store: Store) -> Iterator[Finding]:
    """Yield ST-CONFIG-GONE for each file that others prove, and of which no copy is left."""
    for name, proof in gone_config(store).items():
        file = store.config_files.get(name)
        gone = f"{name} {how_gone(store, name)}" if name == TIMERCHECK else f"{name} and its .bak are gone"
        yield Finding(
            "ST-CONFIG-GONE",
            f"{gone}: the broker starts {start_without(name)}",
            file=f"config/{name}",
            expected=f"the file, because of {proof}",
            found="no file" if file is None else count(file.size, "byte"),
            absent=file is None,
        )


def _not_read(store: Store) -> Iterator[Finding]:
    """Yield what lies only where the broker that broker.conf describes does not look."""
    for one in unread_by_writer(store):
        yield Finding(
            "ST-CONFIG-GONE" if one.document else "CL-NOT-READ",
            f"{one}; {one.remedy}",
            file=one.file,
            expected=f"the same in {one.instead}",
            found=one.setting,
        )


def _missing(kind: Kind, backup: _Copy | None, temporary: StoreFile | None) -> Finding:
    """Return ST-CONFIG for a file of which only other copies exist."""
    good = backup is not None and backup.good
    newest = f" The newest state may be in {temporary.name}, which no broker reads." if temporary else ""
    return Finding(
        "ST-CONFIG",
        f"the file is missing, as after a crash during a save: {_fallback(kind, backup)}.{newest}",
        severity="info" if good or backup is None else "",
        file=f"{kind.folder}/{kind.name}",
        offset=None if good or backup is None else backup.read.offset,
        found="no file",
    )
