"""The rules of index files."""
