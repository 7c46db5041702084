"""What the walks of one store read: everything once, when it is first asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.config.json_files import ConsumerOffset, read_consumer_offsets
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.config_files import ConfigCopies
from rmqinspect.forecast.dledger import ledger_files, why_not_told
from rmqinspect.forecast.index_files import IndexFiles
from rmqinspect.forecast.listing import Listing
from rmqinspect.forecast.parts import only_parts
from rmqinspect.forecast.queue_ends import QueueEnds
from rmqinspect.forecast.scan import LogScanner
from rmqinspect.forecast.settings import Settings, settings_of
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
