"""One record without values of its message, for `show --redact`: fields, hex and facts."""

from collections.abc import Iterator
from dataclasses import replace

from rmqinspect.codec.layout import FieldRow
from rmqinspect.show.offset import Fact, Inspected
from rmqinspect.tables.redact import Redaction
from rmqinspect.text import count

HIDDEN = "hidden"

# Fields that hold values of a word by themselves.
_FIELDS = {"body": "body", "born_host": "hosts", "store_host": "hosts"}
# Words whose values are among the bytes of the field `properties`.
_IN_PROPERTIES = ("keys", "tags", "properties", "hosts")
# Facts that quote: bytes, the host of a broker, a tags code.
_FACTS = {"cause": None, "id": "hosts", "queue unit": "tags", "body": "body"}


def redact_record(found: Inspected, redaction: Redaction) -> Inspected:
    """Return a record with its values masked; sizes, offsets and verdicts stay."""
    body, facts = found.body, [_fact(fact, redaction) for fact in found.facts]
    stored = any(row.name == "body" and row.depth == 0 for row in found.rows)
    if body is not None and (not stored or redaction.hides("body")):
        hashed = redaction.value("body", body) if stored else None
        facts.insert(0, Fact("body", f"{count(len(body), 'byte')}, {hashed or HIDDEN}"))
        body = None
    return replace(
        found,
        raw=b"",  # what is parsed again from it would show all
        rows=list(_rows(found.rows, redaction)),
        body=body,
        facts=facts,
    )


def _rows(rows: list[FieldRow], redaction: Redaction) -> Iterator[FieldRow]:
    parent = ""
    for row in rows:
        if row.depth == 0:
            parent = row.name
            yield _field(row, redaction)
        elif parent == "properties":
            yield _property(row, redaction)
        else:  # a message of an inner batch, with its properties
            yield replace(row, value=HIDDEN, note="", hidden=True)


def _field(row: FieldRow, redaction: Redaction) -> FieldRow:
    if row.name.startswith("("):  # bytes that no field explains
        return replace(row, hidden=True)
    word = _FIELDS.get(row.name)
    if word == "hosts" and redaction.hides(word):
        address = row.value.rpartition(":")[0].strip("[]").encode()
        return replace(row, value=redaction.value(word, address) or HIDDEN, note="", hidden=True)
    if row.name == "body_crc":
        note = row.note.partition(";")[0]  # the cause quotes bytes of the body
        # A short body is found from its checksum by brute force.
        return (
            replace(row, value=HIDDEN, note=_judged(note), hidden=True)
            if redaction.hides("body")
            else replace(row, note=note)
        )
    inside = _IN_PROPERTIES if row.name == "properties" else (word,) if word else ()
    hides = any(map(redaction.hides, inside))
    return replace(row, hidden=True) if hides else row


def _property(row: FieldRow, redaction: Redaction) -> FieldRow:
    if row.name == "__CRC32#" and not redaction.hides("body"):
        return replace(row, note=row.note.partition(";")[0])
    word = redaction.of_property(row.name)
    if row.name.startswith("(") or word is not None:
        raw = row.raw.partition(b"\x01")[2].removesuffix(b"\x02")
        value = (redaction.value(word, raw) if word and row.name != "__CRC32#" else None) or HIDDEN
        return replace(row, value=value, note=_judged(row.note) if row.name == "__CRC32#" else "", hidden=True)
    return row


def _judged(note: str) -> str:
    """Return the verdict on a checksum, without the other value that it may name."""
    return note if note == "ok" else "differs" if note else ""


def _fact(fact: Fact, redaction: Redaction) -> Fact:
    if fact.name not in _FACTS:
        return fact
    word = _FACTS[fact.name]
    if word == "tags" and redaction.hides("tags"):
        head, found, tail = fact.text.partition(", tags code ")
        verdict = ": ok" if tail.endswith(": ok") else ": differs" if ": differs" in tail else ""
        return fact._replace(text=f"{head}{', tags code ' + HIDDEN if found else ''}{verdict}")
    return fact._replace(text=HIDDEN) if word is None or redaction.hides(word) else fact
