"""What a salvage has brought as it is, and has to leave out after all: files that are broken, or do not fit the log.

The proof of the new store says which: verify finds an error in them, or forecast says that no broker starts with them.
Before there is one, verify of the source says the same: but timer units that lead into what will be a bridge stay.
Files of the timer are of no use without each other, nor are those of a database, and those of the compaction log.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rmqinspect.rescue.sources import Range
from rmqinspect.rocksdb.unpack import UNPACKED
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyResult
from rmqinspect.verify.timer_survey import TIMERS

TIMER = ("timerwheel", "timerlog/", "config/timercheck")
_FOLDERS = ("compaction/", "rocksdbstore/", "kvStore/")
_COMPACTION_STATE = "compaction/position-checkpoint"
_WRITTEN = ("commitlog/",)
_TIMER_LOST = (
    "the timer wheel and its log are left out, {why}: a broker reads the timer's topic anew from its beginning, so that"
    " timer messages that were delivered come again, and none that waits is forgotten"
)
_LOST = "{names} is broken: the new store is without it"
_MEANINGS = {
    "compaction/": ", and a broker compacts each queue again, from its first message that is left",
    "rocksdbstore/": "; timer and half messages that it alone kept stay in the log, where no broker looks",
}


class Broken(NamedTuple):
    """Files that are left out together."""

    names: tuple[str, ...]  # that they begin with, relative to the store; a folder ends in /
    why: str
    note: str  # what that means


def broken_files(proof: VerifyResult, brought: Collection[str], bridged: Sequence[Range] = ()) -> list[Broken]:
    """Return what a proof finds broken of the files that were brought, by their names relative to the new store.

    `proof`: of the new store; or of the source, with the ranges of its log that will be `bridged`.
    """
    wrong = [
        (one.file, one.code, "no broker reads it")
        for one in proof.findings.rows
        if one.severity == "error" and not _leads_into(one, bridged)
    ]
    start = proof.next_start
    if start is not None and (refusal := start.worst.refusal) is not None:
        wrong.append((refusal.file, "", f"no broker starts with it: {refusal.why}"))
    timer = [one for one in wrong if one[1].startswith("TM-") or (one[0] or "").startswith(TIMER)]
    found: dict[tuple[str, ...], Broken] = {}
    if timer and any(file.startswith(TIMER) for file in brought):
        codes = sorted({code for _, code, _ in timer if code.startswith("TM-")})
        why = f"{', '.join(codes)}: they do not fit the log" if codes else timer[0][2]
        found[TIMER] = Broken(TIMER, why, _TIMER_LOST.format(why=why))
    for file, code, why in wrong:
        name = _name_of(file, brought)
        if name is None or name.startswith((*_WRITTEN, *TIMER)):
            continue
        folder = name.partition("/")[0] + "/"
        name = folder if folder in _FOLDERS and not name.startswith(_COMPACTION_STATE) else name
        meaning = next((text for start, text in _MEANINGS.items() if name.startswith(start)), "")
        note = _LOST.format(names=name.rstrip("/")) + meaning
        found.setdefault((name,), Broken((name,), f"{code}: {why}" if code else why, note))
    return list(found.values())


def _leads_into(finding: Finding, bridged: Sequence[Range]) -> bool:
    """Whether a finding is about where timer units lead, and a bridge will be there."""
    place = finding.physical_offset
    if place is None or finding.code != TIMERS.dangling or not finding.message.startswith(TIMERS.noun):
        return False
    return any(one.start <= place < one.end for one in bridged)


def _name_of(file: str | None, brought: Collection[str]) -> str | None:
    """Return the name of a file that was brought, with / that of a folder of such; None of any other."""
    if file is None or file in brought:
        return file
    file = file.removesuffix(UNPACKED)
    return f"{file}/" if any(name.startswith(f"{file}/") for name in brought) else None
