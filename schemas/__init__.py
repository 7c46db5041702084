"""What the bytes of a RocketMQ store are: construct layouts, their magic numbers and flag bits.

One module per file format; nothing here reads a file or knows numpy. All integers on
disk are big-endian and signed, as Java's ByteBuffer writes them.
"""

ROOT_FOLDERS = ("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_rocksdb")
"""Folders that only the root of a store has."""
