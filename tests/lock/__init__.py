"""The lock: every command of two builds on all stores, compared by what they print."""
