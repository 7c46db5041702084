"""What the walks of one store read: everything once, when it is first asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rmqinspect.broker.eras import Rules
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.config.json_files import ConsumerOffset, read_consumer_offsets
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.config_files import ConfigCopies, write_queues
from rmqinspect.forecast.dledger import ledger_files, why_not_told
from rmqinspect.forecast.index_files import IndexFiles
from rmqinspect.forecast.listing import Listing
from rmqinspect.forecast.parts import only_parts
from rmqinspect.forecast.queue_ends import QueueEnds
from rmqinspect.forecast.queues_in_rocksdb import RocksdbTable
from rmqinspect.forecast.scan import LogScanner
from rmqinspect.forecast.settings import Settings, settings_of
from rmqinspect.rocksdb.databases import ENTRIES, QUEUES, unread_databases
from rmqinspect.rocksdb.entries import last_half, last_indexed
from rmqinspect.store.model import Segment, Store

ABORT = "abort"


Announce = Callable[[int, str], None]
"""Is told before a read how many bytes it takes at most, and what for."""


@dataclass
class Evidence:
    """What the walks of one store read, once."""

    store: Store
    jobs: int = 1
    progress: Callable[[int], None] | None = None
    announce: Announce | None = None
    unread: list[str] = field(default_factory=list)  # what the system refused to read
    _scanners: dict[tuple[str, ...], LogScanner] = field(default_factory=dict, init=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings of the broker, as far as they are known."""
        return self._settings[0]

    @property
    def assumptions(self) -> Sequence[str]:
        """What was assumed about the settings."""
        return self._settings[1]

    @cached_property
    def _settings(self) -> tuple[Settings, list[str]]:
        return settings_of(self.store)

    @cached_property
    def has_abort(self) -> bool:
        """Whether the file is there by which a broker knows that it did not stop in order."""
        return any(file.name == ABORT for file in self.store.files)

    @cached_property
    def checkpoint(self) -> Mapping[str, int]:
        """The values of the checkpoint by field; empty without one."""
        try:
            return read_checkpoint(self.store, mapped=True)
        except Unreadable as error:
            self.unread.append(str(error))
            return {}

    @cached_property
    def config(self) -> ConfigCopies:
        """All files of `config/` as brokers read them."""
        return ConfigCopies(self.store)

    @cached_property
    def listing(self) -> Listing:
        """The folders of mapped files, entry by entry."""
        return Listing(self.store)

    @cached_property
    def queues(self) -> QueueEnds:
        """All queues as they are."""
        return QueueEnds.read(self.store, self.settings)

    @cached_property
    def rocksdb_queues(self) -> RocksdbTable | str:
        """The queues in RocksDB as they are; why they are not known, if they were not read."""
        if why := self._unread(QUEUES):
            return why
        return RocksdbTable.read(self.store, self.settings, write_queues(self.store))

    def asked_beside(self, rules: Rules) -> tuple[list[int | None], str | None]:
        """Return how far indexes and transactions in RocksDB are, where a start asks them; or why it is not known."""
        settings, all_stores = self.settings, rules.dispatch_from == "all_stores"
        asks_transactions = settings.trans_rocks_db_enable and (
            all_stores or not settings.trans_write_origin_trans_half_enable
        )
        asked: list[int | None] = []
        if rules.unclean_start != "record" or not (settings.index_rocks_db_enable or asks_transactions):
            return asked, None
        if settings.index_rocks_db_enable:
            asked.append(last_indexed(self.store))
        if asks_transactions:
            asked.append(last_half(self.store))
        return asked, self._unread(ENTRIES)

    def _unread(self, holds: str) -> str | None:
        """Return why a database was not read that holds something; None if it was, or there is none."""
        for database in unread_databases(self.store, holds):
            known = [oddity.detail for oddity in self.store.oddities if oddity.place == database.place]
            return f"{database.name}: {known[0] if known else 'a RocksDB database, which was not read'}"
        return None

    @cached_property
    def group_offsets(self) -> Sequence[ConsumerOffset]:
        """The offsets of all groups, as far as they can be read."""
        return read_consumer_offsets(self.store)[0]

    @cached_property
    def index(self) -> IndexFiles:
        """All index files as they are."""
        return IndexFiles.read(self.store, self.settings)

    @property
    def unknown(self) -> str | None:
        """Why nothing can be told about a start; None if it can."""
        store = self.store
        if (parts := only_parts(store)) is not None:
            return parts
        if store.hides_log:
            return "the folder of the commit log cannot be listed"
        return why_not_told(store)

    @cached_property
    def ledger(self) -> tuple[Segment, ...]:
        """The data files of a DLedger log; none for a plain one."""
        return ledger_files(self.store)

    def scanner(self, segments: Sequence[Segment]) -> LogScanner:
        """Return the scanner of a log that consists of these segments."""
        key = tuple(segment.path for segment in segments)
        if key not in self._scanners:
            self._scanners[key] = LogScanner(self.store, segments, self.settings, self.jobs, self.progress)
        return self._scanners[key]
