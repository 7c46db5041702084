"""The `checkpoint` file: one page of which the first 48 bytes are used.

Source: StoreCheckpoint; RocketMQ 4.0.0 to 5.5.0.
"""

from construct import Int64sb, Struct

Checkpoint = Struct(
    "physic_msg_timestamp" / Int64sb,     # 0   ms
    "logics_msg_timestamp" / Int64sb,     # 8   ms
    "index_msg_timestamp" / Int64sb,      # 16  ms
    "master_flushed_offset" / Int64sb,    # 24  5.0.0
    "confirm_phy_offset" / Int64sb,       # 32  5.1.1
    "logics_physical_offset" / Int64sb,   # 40  5.5.0
)                                         # 48

CHECKPOINT_SIZE = 4096  # MappedFile.OS_PAGE_SIZE; the rest is zero

TIMESTAMP_FIELDS = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
