"""DLedger files: the entry that wraps each record, its blank, the index unit.

Source: DLedgerEntryCoder, DLedgerMmapFileStore (library dledger 0.2 to 0.4).
"""

from construct import Int32sb, Int64sb, Struct

ENTRY_MAGICS = (1, 2, 3)  # normal, no-op, configuration change
ENTRY_MAGIC_BLANK = -1

EntryHead = Struct(
    "magic" / Int32sb,      # 0
    "size" / Int32sb,       # 4   this head and the body
    "index" / Int64sb,      # 8   from 0, without gaps
    "term" / Int64sb,       # 16  never falling
    "position" / Int64sb,   # 24  physical offset of this entry
    "channel" / Int32sb,    # 32
    "chain_crc" / Int32sb,  # 36  0, not computed
    "body_crc" / Int32sb,   # 40  0, not computed
    "body_size" / Int32sb,  # 44
)                           # 48  DLedgerEntry.HEADER_SIZE; the body is a commit-log record

# The blank's two ints stand the other way round than in the commit log.
EntryBlank = Struct(
    "magic" / Int32sb,       # 0   ENTRY_MAGIC_BLANK
    "total_size" / Int32sb,  # 4   all bytes left, these 8 included
)                            # 8

EntryIndexUnit = Struct(
    "magic" / Int32sb,     # 0
    "position" / Int64sb,  # 4
    "size" / Int32sb,      # 12
    "index" / Int64sb,     # 16
    "term" / Int64sb,      # 24
)                          # 32  DLedgerMmapFileStore.INDEX_UNIT_SIZE
