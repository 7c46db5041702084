"""The commit log as records: scan, resynchronisation, gaps, look-ups."""
