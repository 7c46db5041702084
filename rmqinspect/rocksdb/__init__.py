"""Consume queues that live in RocksDB, unpacked into queue files."""
