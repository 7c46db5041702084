"""Consume queues: units in files and in RocksDB."""
