"""A folder of mapped files, as a start loads it.

Its entries are taken in the order of their names; for each, the first row that fits decides:

    a folder                          skipped, or taken for a file of another length   rule folder_entry
    empty, and the last entry         deleted, or a file of another length             rule empty_last_file
    of another length                 it and all behind it ignored, or refused         rule wrong_length
    its name is no Java long          refused
    anything else                     loaded

Source: MappedFileQueue#load, #doLoad, MultiPathMappedFileQueue#load, MappedFile#init; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.java_numbers import java_number
from rmqinspect.forecast.outcome import Refusal
from rmqinspect.store.model import LAST_BASE, Oddity, StoreFile
from rmqinspect.text import count, group_digits


class Entry(NamedTuple):
    """An entry of a folder of mapped files."""

    name: str  # in its folder
    shown: str  # relative to the store
    size: int  # bytes
    is_folder: bool = False
    file: StoreFile | None = None
    unread: str = ""  # why its length is not known


class Folder(NamedTuple):
    """What a start makes of the entries of one folder of mapped files."""

    loaded: list[Entry]
    ignored: list[Entry]
    deleted: list[Entry]
    refusal: Refusal | None = None
    unknown: str | None = None  # why it cannot be told; what is loaded is a guess then


def entry_of(file: StoreFile, unopened: frozenset[str]) -> Entry:
    """Return a file as an entry of its folder; `unopened` has the paths of files whose size is guessed."""
    unread = "the file could not be opened" if file.path in unopened else ""
    return Entry(file.name.rpartition("/")[2], file.name, file.size, file=file, unread=unread)


def odd_entry(oddity: Oddity, file: StoreFile | None) -> Entry:
    """Return what does not belong into a folder as an entry of it; `file`, where it is one."""
    name = oddity.place[-1]
    if oddity.kind == "directory":
        return Entry(name, oddity.name, 0, is_folder=True)
    if file is not None:
        return Entry(name, oddity.name, file.size, file=file)
    # File#length is 0 for a link that leads nowhere, and for what is no file.
    unread = "" if oddity.kind == "special" or "dangling" in oddity.detail else oddity.detail
    return Entry(name, oddity.name, 0, unread=unread)


def load_folder(entries: Iterable[Entry], size: int, rules: Rules) -> Folder:
    """Return what a start makes of a folder of mapped files, each of which must have `size` bytes."""
    ordered = sorted(entries, key=lambda entry: entry.name.encode("utf-16-be", "surrogatepass"))
    found = Folder([], [], [])
    for number, entry in enumerate(ordered):
        if entry.is_folder and rules.folder_entry == "skip":
            found.ignored.append(entry)
        elif entry.unread:
            return found._replace(unknown=f"{entry.shown}: {entry.unread}")
        elif (
            not entry.is_folder and not entry.size and number == len(ordered) - 1 and rules.empty_last_file == "delete"
        ):
            found.deleted.append(entry)
        elif entry.is_folder or entry.size != size:
            if rules.wrong_length == "ignore":
                found.ignored.extend(ordered[number:])
                return found
            return found._replace(refusal=_wrong_length(entry, size))
        elif (base := java_number(entry.name, 64)) is None:
            return found._replace(refusal=_no_number(entry))
        elif not 0 <= base <= LAST_BASE:
            return found._replace(unknown=f"{entry.shown}: a file that begins at the impossible offset {base}")
        else:
            found.loaded.append(entry)
    return found


def _wrong_length(entry: Entry, size: int) -> Refusal:
    if entry.is_folder:
        why = f"{entry.shown} is a folder among mapped files"
    else:
        why = f"{entry.shown} has {count(entry.size, 'byte')}, the setting says {group_digits(size)}"
    remedy = f"move {entry.shown} to a place outside of the store"
    holds_none = entry.is_folder or not entry.size or java_number(entry.name, 64) is None
    if not holds_none and entry.size < size:
        remedy = f"copy {entry.shown}, then fill it with zeros to its full length: truncate -s {size} {entry.shown}"
    return Refusal(entry.shown, "wrong_length", why, remedy, moves=holds_none)


def _no_number(entry: Entry) -> Refusal:
    why = f"the name of {entry.shown} is no number (NumberFormatException), though its length is right"
    return Refusal(entry.shown, "file_name", why, f"move {entry.shown} to a place outside of the store", moves=True)
