"""A store as tables: each a fixed Arrow schema and a stream of record batches."""

from rmqinspect.tables.checkpoint import CHECKPOINT
from rmqinspect.tables.config import DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from rmqinspect.tables.delays import DELAYS
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.index import INDEX_ENTRIES, INDEX_FILES
from rmqinspect.tables.log import GAPS_TABLE, MESSAGES_TABLE, SEGMENTS_TABLE
from rmqinspect.tables.queues import QUEUE_UNITS, QUEUES
from rmqinspect.tables.rocksdb_entries import ROCKSDB_ENTRIES
from rmqinspect.tables.table import Table
from rmqinspect.tables.timer_units import TIMER_UNITS
from rmqinspect.tables.transactions import TRANSACTIONS
from rmqinspect.tables.usage import USAGE

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        MESSAGES_TABLE,
        SEGMENTS_TABLE,
        GAPS_TABLE,
        QUEUES,
        QUEUE_UNITS,
        INDEX_FILES,
        INDEX_ENTRIES,
        GROUPS,
        TOPICS,
        SUBSCRIPTION_GROUPS,
        CHECKPOINT,
        DELAY_OFFSETS,
        DELAYS,
        ROCKSDB_ENTRIES,
        TIMER_UNITS,
        USAGE,
        TRANSACTIONS,
    )
}
