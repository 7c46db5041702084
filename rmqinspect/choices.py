"""Values that options take and the code behind them shares: here, where a help page can read them for nothing."""

RELEASES = (
    "4.0.0",
    "4.1.0",
    "4.2.0",
    "4.3.0",
    "4.3.1",
    "4.3.2",
    "4.4.0",
    "4.5.0",
    "4.5.1",
    "4.5.2",
    "4.6.0",
    "4.6.1",
    "4.7.0",
    "4.7.1",
    "4.8.0",
    "4.9.0",
    "4.9.1",
    "4.9.2",
    "4.9.3",
    "4.9.4",
    "4.9.5",
    "4.9.6",
    "4.9.7",
    "4.9.8",
    "5.0.0",
    "5.1.0",
    "5.1.1",
    "5.1.2",
    "5.1.3",
    "5.1.4",
    "5.2.0",
    "5.3.0",
    "5.3.1",
    "5.3.2",
    "5.3.3",
    "5.4.0",
    "5.5.0",
)
"""All known releases in order, without previews."""

LEVELS = ("quick", "standard", "deep")
"""Of `verify --level`: each has the checks of those before it."""

# Who asks after a crash means everything.
DEFAULT_LEVEL = "deep"

ALGORITHM = "sha256"
"""The digest of files, of `--hash`."""

SCHEMAS = ("native", "kafka")
PARTITIONS = ("topic", "day", "queue_id", "store")
"""Of `export`: the columns of messages, and what their folders are named after."""

FILE_SIZE = 256 << 20
"""Default for the bytes of log in one exported file: some ten thousand to a million records."""

TRANSACTION_STATES = ("pending", "committed", "rolled_back", "given_up", "outcome_unknown")
DELAY_STATES = ("pending", "overdue", "stuck", "delivered", "cancelled", "rolled", "lost", "delete_mark", "unknown")
"""What became of a half message, and of a delayed one."""

OFFSET_STATUSES = ("ok", "behind_min", "beyond_max", "no_queue")
"""How the offset of a group lies to its queue."""
