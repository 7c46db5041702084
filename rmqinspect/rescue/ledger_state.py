"""What stands beside the log of a DLedger group: the folder it lies in, and the two small files of its state.

    dledger-n0/currterm     voteLeader=n0, currTerm=4         with a term below that of the log's last entry the next
                                                              entries have a lower one, and a later start cuts them off
    dledger-n0/checkpoint   committedIndex=46, endIndex=46    what is no number there ends the start

Source: MemberState#loadTerm, DLedgerMmapFileStore#recover, #loadCheckPoint.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rmqinspect.errors import Refused
from rmqinspect.forecast.dledger import why_not_told
from rmqinspect.rescue.job import ledger_folder
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.store.model import Store
from rmqinspect.system.output_file import as_refusal

_TERM = re.compile(rb"^currTerm=(\d{1,18})\s*$", re.MULTILINE)
_COMMITTED = re.compile(rb"^committedIndex=(\d{1,18})\s*$", re.MULTILINE)
_LARGEST = 4096  # bytes; two lines are in each


def ledger_of(stores: Sequence[Store]) -> str | None:
    """Return the folder that a DLedger log gets in the new store; None of plain logs.

    :raises Refused: plain logs and DLedger logs, or several groups in one store.
    """
    with_log = [store for store in stores if store.segments]
    ledgers = [store for store in with_log if any(segment.lead for segment in store.segments)]
    for store in ledgers:
        if (why := why_not_told(store)) is not None:
            raise Refused(f"{store.name}: {why}; give the folder of one log alone")
    if ledgers and len(ledgers) < len(with_log):
        plain = next(store for store in with_log if store not in ledgers)
        raise Refused(f"{plain.name}: a plain log, and {ledgers[0].name}: a DLedger log: no copies of one log")
    first = next((store for store in ledgers if store.given == "store"), ledgers[0] if ledgers else None)
    return None if first is None else f"{ledger_folder(first.segments[0])}/data"


def mend_state(new: NewStore, folder: str, index: int, term: int) -> Iterator[str]:
    """Make the state of a group fit its new log, whose data lie in `folder`; yield what was changed.

    `index`, `term`: of the log's last entry.

    :raises Refused: a file cannot be written.
    """
    above = os.path.dirname(folder)
    name = f"{above}/currterm"
    found = _TERM.search(_read(new, name))
    if found is None or int(found[1]) < term:
        _remove(new, name)
        new.write(name, f"currTerm={term}\n".encode())
        yield f"{name}: written anew with the term of the log's last entry, {term}"
    name = f"{above}/checkpoint"
    if os.path.lexists(new.path_of(name)) and _COMMITTED.search(_read(new, name)) is None:
        _remove(new, name)
        new.write(name, f"committedIndex={index}\nendIndex={index}\n".encode())
        yield f"{name}: written anew, because no index was in it: all entries count as committed"


def _read(new: NewStore, name: str) -> bytes:
    path = new.path_of(name)
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except FileNotFoundError:
        return b""


def _remove(new: NewStore, name: str) -> None:
    path = new.path_of(name)
    with as_refusal(path, "removed"), suppress(FileNotFoundError):
        os.unlink(path)
