"""Bytes to values: layouts as numpy types, properties, hashes, compression. Opens nothing."""
