"""One `rebuild`: the log judged, brought and read; everything else written anew; the result proven, then named.

    source                                   the new store, in a hidden folder
    log          judged: damage refuses  ->  linked, reflinked or copied
    config, timer, identity              ->  copied byte for byte
    queues, index, checkpoint                written from the new store's own log
    abort, lock of a broker that runs        left out: the new store was stopped in order
                                             verify and forecast: WHOLE, and loses nothing; then it gets its name

What is written is what a broker of one release writes: the one asked for, else the newest that may have written the
source. Sizes come from broker.conf, else from the files that are there, else they are the broker's defaults.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.broker.delays import DEFAULT_LEVELS, level_delay
from rmqinspect.broker.gone import TOPICS, gone_config
from rmqinspect.broker.groups import is_own_topic
from rmqinspect.broker.version_estimate import YOUNGEST, estimate_version
from rmqinspect.config.json_files import read_config, read_consumer_offsets
from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.document import as_object
from rmqinspect.errors import DamageFound, Refused, Unreadable
from rmqinspect.forecast.config_files import BATCH_TYPE, topic_types
from rmqinspect.forecast.outcome import SERVING
from rmqinspect.forecast.settings import settings_of
from rmqinspect.forecast.words import verdict_line
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, read_index_files
from rmqinspect.index.geometry import Geometry as IndexGeometry
from rmqinspect.rescue import receipt as document
from rmqinspect.rescue.group_offsets import Beyond, beyond, positions_of, set_back, without_record
from rmqinspect.rescue.new_store import COPIED, EDITED, LINKED, NewStore
from rmqinspect.rescue.rebuild import DERIVED, INDEX, QUEUES, Plan, Rebuilt, count_derived, rebuild_derived
from rmqinspect.rescue.sound_log import refuse_damage, refuse_unread_databases
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.schemas.dledger import EntryIndexUnit
from rmqinspect.store.discover import open_store
from rmqinspect.store.log_paths import paths_in
from rmqinspect.store.model import Segment, Store, StoreFile
from rmqinspect.store.reader import allocated_size, running_broker
from rmqinspect.system import uri
from rmqinspect.system.run import describe_run
from rmqinspect.text import escape
from rmqinspect.times import format_micros, to_micros
from rmqinspect.verify.custody import Watch
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify_and_forecast
from rmqinspect.version import tool_name

_LARGEST_FILE = 2**31 - 1  # bytes: a broker's sizes are Java ints
_DERIVED_PER_LOG = 4  # derived files take less than a fourth of a log of small records
_TOPIC_DATABASES = ("config/topics", "config/metadata", "config/rdb")
QUEUE_DATABASES = ("consumequeue", "consumequeue_rocksdb")

# Folders and files of a store, by the first part of their names, that are brought as they are.
_KEPT = ("config", "timerlog", "compaction", "rocksdbstore", "kvStore")
_KEPT_FILES = (
    "timerwheel",
    "lock",
    "abort.bak",
    "epochFileCheckpoint",
    "epochFileCheckpoint.bak",
    "brokerIdentity",
    "brokerIdentity-temp",
)
_WRITTEN_ANEW = ("checkpoint", "abort")


_BELOW_ROOT = (
    "all of the new store is below its root: take {} out of broker.conf before it is started, or let them name it"
)

Note = Callable[[str], None]
Advance = Callable[[int], None]


class RebuildRequest(Struct, frozen=True):
    """What is asked for."""

    target: str
    release: str | None = None  # None: estimated
    only: str | None = None  # QUEUES or INDEX; None: both
    link: bool = False
    digests: bool = False
    config: str | None = None  # a broker.conf
    max_config: int = 13 << 20
    jobs: int = 1
    dry_run: bool = False
    set_offsets: bool = False  # set consumer offsets beyond the end of their queue back to it, in the new store


class Result(Struct):
    """What was made; not named yet."""

    receipt: document.Receipt
    proof: VerifyResult | None  # None: nothing was written
    holds: bool  # WHOLE, and its start loses nothing; of a dry run, nothing speaks against it
    salvage_keeps_ends: bool = False  # the source has units up to all offsets that lie beyond the rebuilt queues
    lacks_topics: bool = False  # topics.json had topics that it does not name: clients do not see them before it does

    @property
    def would_skip(self) -> bool:
        """Whether groups would not get messages that are stored after the next start."""
        return any(not one.is_set for one in self.receipt.offsets_beyond)

    @property
    def is_complete(self) -> bool:
        """Whether nobody has to do anything before the next start."""
        return self.holds and not self.would_skip and not self.lacks_topics


class RebuildJob:
    """The steps of one run, and what they hand on."""

    def __init__(self, store: Store, request: RebuildRequest, new: NewStore, advance: Advance, note: Note) -> None:
        """Take a source, and a place that was claimed for it and is entered."""
        self._store, self._request, self._new = store, request, new
        self._advance, self._note = advance, note
        self._started = datetime.now(UTC)
        self._brought: list[document.Brought] = []
        self._paths: list[str] = []  # of what was brought
        self._left_out: list[document.LeftOut] = []
        self._beyond: list[Beyond] = []  # offsets of groups beyond the ends of rebuilt queues

    def go(self) -> Result:
        """Build the store up to where it could get its name.

        :raises DamageFound: the log is damaged.
        :raises Refused: something cannot be written; or the source changed meanwhile.
        :raises Unreadable: something of the source cannot be read, or is in RocksDB and its library is missing.
        """
        store, request = self._store, self._request
        if (holder := running_broker(store, [])) is not None:
            raise Refused(f"{store.name}: a broker runs on this store (pid {holder}): copy it, or stop the broker")
        refuse_unread_databases(store)
        watch = Watch(store)
        checked = refuse_damage(store, request.jobs, self._advance)
        release, why = self._choose_release()
        plan, assumed = self._plan(release)
        counted = self._look_ahead(plan)
        if request.dry_run or (self._beyond and not request.set_offsets):
            return self._foresee_rebuild(checked.log_end, plan, counted, release, why, assumed)
        self._check_room(checked.log_end)
        digests = watch.take_digests(watch.before.exhibits if request.digests else (), request.jobs)
        self._bring_log(checked.log_end)
        self._bring_others(in_rocksdb=plan.in_rocksdb is not None)
        rebuilt = rebuild_derived(self._new.folder, plan, jobs=request.jobs, progress=self._advance)
        digests.wait(self._advance)
        custody = watch.conclude()
        if custody.changed:
            change = custody.changed[0]
            raise Refused(f"{change.file}: changed while it was read: {change.what}; nothing is kept")
        proof = self._prove(release)
        sums = {watch.before.exhibits[name].file.path: digest for name, digest in custody.digests.items()}
        self._brought = [replace_sum(one, sums.get(path)) for one, path in zip(self._brought, self._paths, strict=True)]
        receipt = self._rebuild_receipt(plan, rebuilt, release, why, assumed, proof)
        return Result(receipt, proof, _holds(proof), lacks_topics=self._lacks_topics(receipt))

    # --- before anything is written ---------------------------------------------------------------

    def _look_ahead(self, plan: Plan) -> Rebuilt | None:
        """Look which groups would skip messages, and which topics no file names; return what would be written.

        None where nobody asks for it: the log is read for it.

        :raises DamageFound: topics.json is gone, and the log has batches: which queues are batch queues only it says.
        """
        if QUEUES not in plan.what:
            return count_derived(self._store, plan, progress=self._advance) if self._request.dry_run else None
        in_doubt = without_record(self._store, positions_of(self._store))
        names_topics = read_config(self._store, TOPICS) is not None
        if not in_doubt and names_topics and not self._request.dry_run:
            return None
        asked = plan if self._request.dry_run else replace(plan, what=frozenset((QUEUES,)))
        counted = count_derived(self._store, asked, jobs=self._request.jobs, progress=self._advance)
        if counted.batched and not names_topics:
            raise DamageFound(
                f"{self._store.name}: topics.json is gone, and {', '.join(map(escape, sorted(counted.batched)))} "
                f"{'have' if len(counted.batched) > 1 else 'has'} batches: only topics.json says which topics have "
                "batch queues. Put that of a backup, or of a slave, into config/ and rebuild then"
            )
        ends = {queue: one.end for queue, one in counted.queues.items()}
        self._beyond = beyond(self._store, in_doubt, ends)
        return counted

    def _foresee_rebuild(
        self,
        log_end: int | None,
        plan: Plan,
        counted: Rebuilt | None,
        release: str,
        why: str,
        assumed: Sequence[str],
    ) -> Result:
        """Return what a run would make; nothing is written."""
        for segment in self._store.segments:
            how = LINKED if self._links(segment, log_end) else COPIED
            self._note_brought(segment, log_name(segment), how)
        for file, name in self._others():
            self._note_brought(file, name, COPIED)
        self._name_left_out_of(in_rocksdb=plan.in_rocksdb is not None)
        receipt = self._rebuild_receipt(plan, counted or Rebuilt(), release, why, assumed, None, dry_run=True)
        keeps = bool(self._beyond) and all(one.is_proven for one in self._beyond)
        holds = counted is None or not contradicts_itself(counted)
        return Result(receipt, None, holds, salvage_keeps_ends=keeps, lacks_topics=self._lacks_topics(receipt))

    def _rebuild_receipt(
        self,
        plan: Plan,
        rebuilt: Rebuilt,
        release: str,
        why: str,
        assumed: Sequence[str],
        proof: VerifyResult | None,
        *,
        dry_run: bool = False,
    ) -> document.Receipt:
        request = self._request
        start = None if proof is None else proof.next_start
        return document.Receipt(
            schema_version=document.SCHEMA_VERSION,
            tool=tool_name(),
            command="rebuild",
            store=uri.shown(request.target),
            source=[uri.shown(path) for path in self._store.paths],
            dry_run=dry_run,
            started=format_micros(to_micros(self._started)),
            ended=format_micros(to_micros(datetime.now(UTC))),
            broker_version=release,
            version_from=why,
            only=request.only,
            geometry=document.Geometry(
                plan.queue_file, plan.batch_file, plan.ext_file, plan.index.slots, plan.index.entries
            ),
            assumed=list(assumed),
            brought=self._brought,
            left_out=self._left_out,
            derived=derived(rebuilt),
            offsets_beyond=[
                document.GroupOffset(*one.position, one.end, request.set_offsets and not dry_run)
                for one in self._beyond
            ],
            unnamed_topics=self._unnamed_topics(rebuilt),
            notes=[*self._below_root(), *rebuilt.notes],
            verdict=None if proof is None else proof.verdict,
            next_start=None if start is None else verdict_line(start),
            run=as_object(describe_run()),
        )

    def _lacks_topics(self, receipt: document.Receipt) -> bool:
        """Whether topics.json lacks topics that it had; a log that is given alone never had one."""
        is_there = read_config(self._store, TOPICS) is not None
        return bool(receipt.unnamed_topics) and (is_there or TOPICS in gone_config(self._store))

    def _unnamed_topics(self, rebuilt: Rebuilt) -> dict[str, int]:
        """Return the users' topics with queues that topics.json does not name, and how many; all where it is not there.

        A topic that was deleted has records, too: a group's offset in it says that it was not.
        """
        found = read_config(self._store, TOPICS)
        known = frozenset() if found is None else frozenset(found.table("topicConfigTable"))
        consumed = {one.topic for one in read_consumer_offsets(self._store)[0] if one.offset > 0}
        queues = Counter(topic for topic, _ in rebuilt.queues if topic not in known and not is_own_topic(topic))
        return {topic: number for topic, number in sorted(queues.items()) if found is None or topic in consumed}

    # --- what to write --------------------------------------------------------------------------

    def _choose_release(self) -> tuple[str, str]:
        """Return the release to write for, and what shows it."""
        if self._request.release is not None:
            return self._request.release, "given"
        found = estimate_version(self._store, last_places(self._store, []), None)
        clues = f": {', '.join(found.clues)}" if found.clues else ""
        return found.high, f"the newest of {found}{clues}" if found.low != YOUNGEST else f"{found}{clues}"

    def _plan(self, release: str) -> tuple[Plan, list[str]]:
        """Return how the files are written, and what that rests on."""
        store = self._store
        settings, assumed = settings_of(store)
        if not store.has_conf:
            assumed = [*assumed, *self._untold()]
        with unpacked(store, only=_TOPIC_DATABASES) as whole:
            types = topic_types(whole)
        sizes = settings.mapped_file_size_consume_queue, settings.mapper_file_size_batch_consume_queue
        ext = settings.mapped_file_size_consume_queue_ext
        index = IndexGeometry(settings.max_hash_slot_num, settings.max_index_num)
        if max(*sizes, ext) > _LARGEST_FILE:
            raise Refused(f"{store.name}: queue files of more than {_LARGEST_FILE} bytes: no broker can map them")
        if not index.possible or index.size > _LARGEST_FILE:
            assumed, index = (
                [*assumed, "index files of a size that no broker can map: the default counts"],
                DEFAULT_GEOMETRY,
            )
        levels = settings.message_delay_level or DEFAULT_LEVELS
        conf = {"messageDelayLevel": levels}
        only = self._request.only
        plan = Plan(
            release,
            frozenset((QUEUES, INDEX) if only is None else (only,)),
            *sizes,
            ext if settings.enable_consume_queue_ext or store.of_kind("ext_queue") else None,
            index,
            frozenset(topic for topic, own in types.items() if own == BATCH_TYPE),
            tuple(level_delay(level, conf) for level in range(1, len(levels.split()) + 1)),
        )
        if ledger := [file.size for file in store.of_kind("dledger_index") if _is_ledger_index(file.size)]:
            plan = replace(plan, ledger_index_file=max(ledger, key=ledger.count))
        if settings.has_rocksdb_queues and QUEUES in plan.what:
            plan = replace(plan, in_rocksdb=self._rocksdb_folder(), batch_topics=frozenset())
        return plan, assumed

    def _below_root(self) -> Iterator[str]:
        """Yield what is to be changed in broker.conf, where it names folders beside the root."""
        if elsewhere := paths_in(self._store.settings):
            yield _BELOW_ROOT.format(", ".join(elsewhere))

    def _untold(self) -> Iterator[str]:
        """Yield which sizes no file tells: those of another broker would let it refuse the new store."""
        store = self._store
        told = {
            "queue files": any(file.kind == "queue" and file.size for file in store.queue_files),
            "index files": any(index.geometry and index.entries for index in read_index_files(store, [])),
        }
        if missing := [name for name, is_told in told.items() if not is_told]:
            yield (
                f"no {' and '.join(missing)} tell their size: it is the default; where the broker has another, "
                "--config BROKER.CONF tells it"
            )

    def _rocksdb_folder(self) -> str:
        names = [file.name.partition("/")[0] for file in self._store.of_kind("rocksdb")]
        return next((folder for folder in reversed(QUEUE_DATABASES) if folder in names), QUEUE_DATABASES[0])

    # --- what is brought ------------------------------------------------------------------------

    def _check_room(self, log_end: int | None) -> None:
        """Check that there is room, before anything is written."""
        segments = self._store.segments
        copied = [one for one in segments if not self._links(one, log_end)]
        if self._request.link:
            for segment in segments:
                if segment not in copied and not self._new.can_link(segment):
                    raise Refused(f"{segment.name}: on another file system than the new store: it cannot be linked")
        log = 0 if self._new.shares_blocks(copied) else sum(map(allocated_size, copied))
        self._new.check_room(log + self._room_of_others() + sum(one.size for one in segments) // _DERIVED_PER_LOG)

    def _room_of_others(self) -> int:
        """Return the bytes on disk of what is brought beside the log: holes stay holes."""
        room = 0
        for file, _ in self._others():
            with suppress(Unreadable):  # told where it is brought
                room += min(file.size, allocated_size(file))
        return room

    def _links(self, segment: Segment, log_end: int | None) -> bool:
        """Whether a segment is hard-linked: full, and none that a broker writes to."""
        full = segment.size == self._store.segment_size and log_end is not None and segment.end < log_end
        return self._request.link and full and segment is not self._store.segments[-1]

    def _bring_log(self, log_end: int | None) -> None:
        names: set[str] = set()
        for segment in self._store.segments:
            name = log_name(segment)
            if name in names:
                raise Refused(f"{segment.name}: the log has two segments of base {segment.base}")
            names.add(name)
            self._bring(segment, name, link=self._links(segment, log_end))

    def _bring_others(self, *, in_rocksdb: bool) -> None:
        edited = set_back(self._store, self._beyond)
        for file, name in self._others():
            if name not in edited:
                self._bring(file, name)
        for name, raw in edited.items():
            self._new.write(name, raw)
            source = self._store.config_files.get(name.removeprefix("config/"))
            self._brought.append(document.Brought(name, len(raw), EDITED))
            self._paths.append("" if source is None else source.path)
        self._name_left_out_of(in_rocksdb=in_rocksdb)

    def _name_left_out_of(self, *, in_rocksdb: bool) -> None:
        """Note what of the source is neither brought nor written anew."""
        written = (*_WRITTEN_ANEW, *(folder for what in self._what for folder in DERIVED[what]))
        for file in self._store.files:
            first = (_name_of(file, self._store) or file.name).partition("/")[0]
            if isinstance(file, Segment) or file.path in self._paths or file.kind == "dledger_index":
                continue
            if first in written and (file.kind != "other" or first in _WRITTEN_ANEW):
                continue
            why = "no file of a store" if file.kind == "other" else "given by itself, not in its store"
            self._left_out.append(document.LeftOut(file.name, why))
        if QUEUES in self._what and not in_rocksdb:
            folders = {file.name.partition("/")[0] for file in self._store.of_kind("rocksdb")}
            for folder in sorted(folders & set(QUEUE_DATABASES)):
                why = "the queues are written into files: a broker with double write makes the database again"
                self._left_out.append(document.LeftOut(f"{folder}/*", why))
        for oddity in self._store.oddities:
            if oddity.is_unread:
                self._left_out.append(document.LeftOut(oddity.name, oddity.detail))

    @property
    def _what(self) -> tuple[str, ...]:
        return (QUEUES, INDEX) if self._request.only is None else (self._request.only,)

    def _others(self) -> Iterator[tuple[StoreFile, str]]:
        """Yield the files that are brought as they are beside the log, and their names in the new store."""
        kept = [*_KEPT, *(folder for what in (QUEUES, INDEX) if what not in self._what for folder in DERIVED[what])]
        for file in self._store.files:
            name = _name_of(file, self._store)
            if name is None or isinstance(file, Segment):
                continue
            first, _, rest = name.partition("/")
            is_ledger = file.kind == "dledger_state" and first.startswith("dledger-")
            if is_ledger or (rest and first in kept) or name in _KEPT_FILES or file.kind == "timer_wheel":
                yield file, name

    def _bring(self, file: StoreFile, name: str, *, link: bool = False) -> None:
        self._note_brought(file, name, self._new.bring(file, name, link=link, done=self._advance))

    def _note_brought(self, file: StoreFile, name: str, how: str) -> None:
        self._brought.append(document.Brought(name, file.size, how))
        self._paths.append(file.path)

    # --- the proof ------------------------------------------------------------------------------

    def _prove(self, release: str) -> VerifyResult:
        """Verify the new store, and walk its next start."""
        request = self._request
        store = open_store([self._new.folder], config=request.config, max_config=request.max_config, below_root=True)
        # Commands on the screen are run when the store has its own name.
        target, made_in = uri.shown(request.target), uri.shown(self._new.folder)
        words = tuple(target if word == made_in else word for word in store.words)
        store = replace(store, name=os.path.basename(self._new.target), words=words, remarks=())
        options = VerifyOptions("deep", jobs=request.jobs, broker_version=release)
        with unpacked(store) as whole:
            proof = verify_and_forecast(whole, options, progress=self._advance)
        if proof.interrupted_at is not None:
            raise KeyboardInterrupt
        return proof


def replace_sum(one: document.Brought, digest: str | None) -> document.Brought:
    """Return a row of the receipt with the digest of its source."""
    return document.Brought(one.file, one.size, one.how, digest)


def _holds(proof: VerifyResult) -> bool:
    """Whether a new store is whole, and its start loses nothing.

    What the source's config/ lacks the new store lacks as well: that is said, and no fault of what was written.
    """
    start = proof.next_start
    lacking = sum(one.count for one in proof.findings.rows if one.code == "ST-CONFIG-GONE" and one.severity == "error")
    if proof.damage > lacking or not proof.complete or start is None:
        return False
    serves = start.worst.verdict in SERVING and not start.worst.losses.messages
    return start.worst.keeps_all or (bool(lacking) and serves)


def log_name(segment: Segment) -> str:
    """Return the name of a segment in a new store."""
    folder = "commitlog" if segment.kind == "segment" else f"{ledger_folder(segment)}/data"
    return f"{folder}/{segment.base:020d}"


def _is_ledger_index(size: int) -> bool:
    return 0 < size <= _LARGEST_FILE and size % EntryIndexUnit.sizeof() == 0


def contradicts_itself(rebuilt: Rebuilt) -> bool:
    """Whether a sound log has queues with offsets that no record has, or that two have: no rebuilt queue is right."""
    return any(one.copies or (one.left_out and not one.restarts) for one in rebuilt.queues.values())


def derived(rebuilt: Rebuilt) -> document.Derived:
    odd = [
        document.RebuiltQueue(topic, queue_id, one.first, one.end, one.copies, one.left_out, one.restarts)
        for (topic, queue_id), one in sorted(rebuilt.queues.items())
        if one.copies or one.left_out or one.restarts
    ]
    return document.Derived(
        records=rebuilt.records,
        queues=len(rebuilt.queues),
        units=rebuilt.units,
        index_files=rebuilt.index_files,
        index_entries=rebuilt.entries,
        checkpoint=rebuilt.checkpoint,
        ledger_units=rebuilt.ledger_units,
        odd_queues=odd,
    )


def _name_of(file: StoreFile, store: Store) -> str | None:
    """Return the name of a file below its store's root; None of one that was given by itself.

    By its path, whose bytes are those of the name; by its listed name, where a link leads to it.
    """
    if store.given != "store":
        return None
    root = uri.realpath(uri.local_path(store.paths[0]))
    if not uri.is_remote(file.path) and uri.is_below(file.path, root) and file.path != root:
        relative = os.path.relpath(file.path, root)
        if relative.count("/") == file.name.count("/"):
            return relative
    return file.name


def ledger_folder(segment: Segment) -> str:
    """Return the folder of a DLedger log below the store's root."""
    parts: Sequence[str] = [*segment.name.split("/"), *segment.path.split("/")[::-1]]
    return next((part for part in parts if part.startswith("dledger-")), "dledger-n0")
