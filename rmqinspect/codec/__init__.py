"""Bytes to values: layouts as numpy dtypes, properties, hashes, compression; compiled loops. Opens no evidence."""
