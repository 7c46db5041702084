"""Index files: header, hash slots, entries.

The numbers of slots and entries are settings and not in the file.
Source: IndexHeader, IndexFile; RocketMQ 4.0.0 to 5.5.0.
"""

from construct import Int32sb, Int64sb, Struct

IndexHeader = Struct(
    "begin_timestamp" / Int64sb,        # 0   ms, store time of the first entry
    "end_timestamp" / Int64sb,          # 8
    "begin_physical_offset" / Int64sb,  # 16
    "end_physical_offset" / Int64sb,    # 24
    "hash_slot_count" / Int32sb,        # 32  used slots; up to 4.7.0 it counts entries
    "index_count" / Int32sb,            # 36  next free entry number, the first is 1
)                                       # 40  IndexHeader.INDEX_HEADER_SIZE

# Number of the newest entry of this slot, 0 for none.
IndexSlot = Struct("entry" / Int32sb)  # 4   IndexFile.hashSlotSize

IndexEntry = Struct(
    "key_hash" / Int32sb,         # 0   not negative
    "physical_offset" / Int64sb,  # 4
    "time_diff" / Int32sb,        # 12  seconds after begin_timestamp
    "previous" / Int32sb,         # 16  next older entry of the same slot, 0 ends the chain
)                                 # 20  IndexFile.indexSize

DEFAULT_SLOTS = 5_000_000  # MessageStoreConfig#maxHashSlotNum
DEFAULT_ENTRIES = 20_000_000  # MessageStoreConfig#maxIndexNum
