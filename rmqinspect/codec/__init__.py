"""Bytes to values: layouts as numpy dtypes, properties, hashes, compression. Opens no files."""
