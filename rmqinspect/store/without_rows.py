"""Files of a store that no table shows: what each is, and which command knows more about it.

Sources: BrokerPathConfigHelper, StorePathConfigHelper, DLedgerConfig, MixAll#string2File.
"""

from rmqinspect.commands import VERIFY, fill_command

_INFO = "rmqinspect info {store}"

# Kind of `directory.PLACES` -> what its files are, and the command.
KINDS: dict[str, tuple[str, str]] = {
    "timer_log": ("the timer log: one unit per timer message that is not due yet", VERIFY),
    "timer_wheel": ("the timer wheel: per due second, where its units begin and end in the timer log", VERIFY),
    "ext_queue": ("consume queue extensions: tags and filter bits that queue units point at", VERIFY),
    "dledger_index": ("the DLedger index: where each entry begins in the log", VERIFY),
    "dledger_state": ("state of the DLedger node", VERIFY),
    "compaction_log": ("a compacted copy of a topic's records, which the broker makes again from the log", _INFO),
    "compaction_queue": ("the consume queue of a compacted copy", _INFO),
    "rocksdb": ("a RocksDB database", _INFO),
}

# Name of a file, without `.bak` -> what it is, and the command.
NAMES: dict[str, tuple[str, str]] = {
    "lock": ("the lock file that a running broker holds", _INFO),
    "abort": ("the mark of a running broker; what a clean stop deletes", _INFO),
    "abort.bak": ("a side effect of writing abort; it says nothing about a crash", _INFO),
    "timercheck": ("the timer checkpoint: how far timer messages are read and delivered", VERIFY),
    "timermetrics": ("timer messages that are not due yet, counted by topic", VERIFY),
    "transactionMetrics": ("half messages that are not decided yet, counted by topic", VERIFY),
    "consumerFilter.json": ("SQL filters of consumer groups", VERIFY),
    "consumerOrderInfo.json": ("messages that ordered pop consumers hold", VERIFY),
    "messageRequestMode.json": ("which groups consume in pop mode", VERIFY),
    "topicQueueMapping.json": ("queues of static topics", VERIFY),
    "position-checkpoint": ("how far each compacted queue has been compacted", VERIFY),
    "currterm": ("term and vote of the DLedger node", VERIFY),
    "epochFileCheckpoint": ("the start offset of each master epoch", VERIFY),
    "brokerIdentity": ("the broker id that a controller gave", VERIFY),
}


def words_of_kind(kind: str) -> str | None:
    """Return what files of a kind of `directory.PLACES` are, and what to run; None if a table shows them."""
    return _words(*KINDS[kind]) if kind in KINDS else None


def words_of_file(name: str) -> str | None:
    """Return what a file of this name is, and what to run; None if it is not known, or a table shows it."""
    if name in NAMES:
        return _words(*NAMES[name])
    plain = name.removesuffix(".bak").removesuffix(".tmp")
    return f"a backup copy: {_words(*NAMES[plain])}" if plain in NAMES else None


def words_of_folder(names: frozenset[str]) -> str | None:
    """Return what a folder with these files is, and what to run; None if it is not a RocksDB database."""
    is_rocksdb = "CURRENT" in names and any(name.startswith("MANIFEST-") for name in names)
    return words_of_kind("rocksdb") if is_rocksdb else None


def _words(what: str, command: str) -> str:
    return f"{what}. No table shows it; for the whole store: {fill_command(command)}"
