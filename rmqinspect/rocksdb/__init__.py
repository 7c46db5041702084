"""RocksDB in stores: queues (5.2.0+) and configuration (5.1.4+), read from a private copy by another process."""
