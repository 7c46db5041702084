"""ST-CONFIG: configuration files that a broker cannot read, or reads only in part.

    file          .bak           what the broker uses
    good          any            the file
    missing,      good           the .bak, one save older
    empty or      none, empty    nothing: it starts without the table
    damaged       damaged        most managers: it does not start; others: nothing

Up to 5.0.0 a save writes `.tmp` and renames it; no broker reads a `.tmp`.

Source: ConfigManager#load, ConfigManager#loadBak, MixAll#string2File.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rmqinspect.codec.fastjson import CHARSETS, JsonDocument
from rmqinspect.config.decoding import Decoded, decode
from rmqinspect.config.json_files import too_large
from rmqinspect.config.shapes import KINDS, Kind, Row, misnamed, renamed
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.text import count
from rmqinspect.verify.config.epochs import check_epochs
from rmqinspect.verify.findings import Finding, unread_finding

# --- one copy of a file -------------------------------------------------------------------------


@dataclass(slots=True)
class _Copy:
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
        copy.unread = Finding("ST-UNCHECKED", what, file=file.name, length=file.size, unchecked=what)
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
    if parsed.duplicates:
        yield Finding(
            "ST-CONFIG",
            f"the key {parsed.duplicates[0]!r} is twice in one object: only the last value counts, "
            "so an entry was lost or renamed",
            severity="warning",
            file=file.name,
            count=len(parsed.duplicates),
            found=parsed.duplicates[0],
        )
    if parsed.fractions:
        yield Finding(
            "ST-CONFIG",
            f"it has the number {parsed.fractions[0][:40]}: brokers write whole numbers only, "
            "so a comma or a digit is damaged",
            severity="warning",
            file=file.name,
            count=len(parsed.fractions),
            found=parsed.fractions[0][:40],
        )
    if parsed.charset != CHARSETS[0]:
        yield Finding(
            "ST-CONFIG",
            "its text is not UTF-8: 5.0.0 and later read other characters than were written",
            severity="info" if kind.free_text else "warning",
            file=file.name,
            expected="UTF-8",
            found=parsed.charset,
        )
    if parsed.behind and not parsed.behind.strip(b"\0 \t\r\n\f\b"):
        yield Finding(
            "ST-CONFIG",
            "zeros after its end: brokers skip them, but none writes them",
            severity="warning",
            file=file.name,
            offset=parsed.end,
            length=len(parsed.behind),
        )


# --- a file and its copies ----------------------------------------------------------------------

_EMPTIED = "delayOffset.json"  # a failed start saves it empty


def check_configs(store: Store) -> Iterator[Finding]:
    """Yield ST-CONFIG for every configuration file that a broker cannot read, and what it does then.

    ST-IO is a copy that the system could not read, ST-UNCHECKED one that is too large. A missing file beside a
    good `.bak` is info: a crash during a save leaves it so.
    """
    others = {file.name: file for file in store.files if file.kind == "other"}
    for kind in KINDS:
        yield from _check_kind(store, kind, others)
    yield from check_epochs(others.get("epochFileCheckpoint"), others.get("epochFileCheckpoint.bak"))


def _check_kind(store: Store, kind: Kind, others: Mapping[str, StoreFile]) -> Iterator[Finding]:
    files = {
        end: store.config_files.get(kind.name + end) or others.get(f"{kind.folder}/{kind.name}{end}")
        for end in ("", ".bak", ".tmp")
    }
    backup = _read(files[".bak"], kind, store.max_config) if files[".bak"] else None
    if backup and kind.name != _EMPTIED:
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
    if main.read.trouble and main.read.ignored:
        yield _finding(main, f"the broker sees no error and starts {kind.without}")
    elif main.read.trouble:
        yield _finding(main, "" if alone else _fallback(kind, backup))
    else:
        yield from _cross_check(kind, main)
        if kind.name == _EMPTIED and not main.read.value["offsetTable"]:
            yield from _failed_start(kind, main, backup)


def _cross_check(kind: Kind, copy: _Copy) -> Iterator[Finding]:
    """Yield contradictions inside a file that every broker reads."""
    shape, name = Row(kind.members), copy.file.name
    for path, member in renamed(shape, copy.read.value, ""):
        yield Finding(
            "ST-CONFIG",
            f"{path} is one bit off {member}: the broker does not know the name and loses the value",
            file=name,
            expected=member,
            found=path.rpartition(".")[2],
        )
    for path, own in misnamed(shape, copy.read.value, ""):
        yield Finding(
            "ST-CONFIG",
            f"{path} is named {own!r} inside: one of the two names is damaged",
            severity="warning",
            file=name,
            expected=path.rpartition(".")[2],
            found=own,
        )
    topics = copy.read.value.get("groupTopicMap")
    if topics and "groupTopicMap" in kind.members:
        # Made from the keys of offsetTable at each save. A group that comes or goes at that moment gives one key
        # more or one less, never both.
        listed = {f"{topic}@{group}" for group, names in topics.items() for topic in names}
        kept = {key for key in copy.read.value["offsetTable"] if key.count("@") == 1}
        if listed - kept and kept - listed:
            expected, found = min(listed - kept), min(kept - listed)
            yield Finding(
                "ST-CONFIG",
                f"offsetTable has {found}, groupTopicMap has {expected}: one of the names is damaged",
                severity="warning",
                file=name,
                expected=expected,
                found=found,
                count=len(listed ^ kept),
            )


def _failed_start(kind: Kind, main: _Copy, backup: _Copy | None) -> Iterator[Finding]:
    """Yield the trace of a failed startup, which saves this file without having read it."""
    before = backup.read.value.get("offsetTable") if backup and backup.good else None
    if before:
        yield Finding(
            "ST-CONFIG",
            f"offsetTable is empty, but not in its .bak: trace of a failed startup. The broker starts {kind.without}",
            severity="warning",
            file=main.file.name,
            expected=count(len(before), "level"),
            found="none",
        )


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
