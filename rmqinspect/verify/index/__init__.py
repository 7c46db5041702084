"""Checks of index files, and of the index against the log."""
