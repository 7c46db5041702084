"""What `rebuild` asks of a source before anything is written: a sound log, and the library for what is in RocksDB."""

from collections.abc import Callable

from msgspec.structs import replace

from rmqinspect.commands import SALVAGE, fill_command
from rmqinspect.errors import DamageFound, NotAStore, Unreadable
from rmqinspect.rocksdb.databases import used_databases
from rmqinspect.rocksdb.unpack import INSTALL, has_rocksdict
from rmqinspect.store.model import Store
from rmqinspect.text import count
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify

Advance = Callable[[int], None]
_LOGS = ("commitlog", "dledger-")  # folders of a log


def refuse_damage(store: Store, jobs: int, advance: Advance) -> VerifyResult:
    """Check the log of a store alone, and every record in it; return the result.

    :raises DamageFound: it is damaged.
    :raises Unreadable: not all of it can be read.
    :raises NotAStore: there is no log, or no record in it.
    """
    if not store.segments:
        raise NotAStore(f"{store.name}: no commit log: there is nothing to rebuild from")
    codes = frozenset(code for code in BY_CODE if code.startswith(("CL-", "DL-"))) | {"ST-IO"}
    log = replace(
        store,
        given="segment",
        files=tuple(store.segments),
        queue_files=(),
        index_files=(),
        checkpoint=None,
        config_files={},
        queue_folders=frozenset(),
        unpacked_config={},
        # What hides segments counts, what lies among them does not: it is left out.
        oddities=tuple(one for one in store.unread_entries if not one.place or one.place[0].startswith(_LOGS)),
    )
    result = verify(log, VerifyOptions("standard", codes, 10, jobs), progress=advance)
    if result.interrupted_at is not None:
        raise KeyboardInterrupt
    if result.unread:
        raise Unreadable(f"{store.name}: the log cannot be read: {result.unread[0]}")
    if result.damage:
        worst = next(one for one in result.findings.rows if one.severity == "error" and one.code != "ST-IO")
        raise DamageFound(
            f"{store.name}: the log is damaged, {count(result.damage, 'error')}; {worst.code}: {worst.message}; "
            f"rebuild takes a sound log only, this one takes: {fill_command(SALVAGE, store.words)}"
        )
    if not any(account.records for account in result.accounts):
        raise NotAStore(f"{store.name}: no record in the log: there is nothing to rebuild from")
    return result


def refuse_unread_databases(store: Store) -> None:
    """Check that what a store keeps in RocksDB can be read, and written again.

    :raises Unreadable: the library is not installed.
    """
    if used_databases(store) and not has_rocksdict():
        raise Unreadable(
            f"{store.name}: queues, configuration or timers in RocksDB: not read, and could not be written again; "
            f"install the extra: {INSTALL}"
        )
