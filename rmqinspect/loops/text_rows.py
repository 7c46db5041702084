"""Numbers that `loops.text` shares with its callers: columns of its tables, and what stands for no number."""

NOT_A_NUMBER = -1

# Columns of the table of keys.
KEY_HASH, KEY_TEXT, KEY_SIZE, KEY_INTEGER, KEY_COLUMNS = range(5)

NAME_HASHES = 1 << 10
"""Hashes that a name of a property may have."""

BLOCK = 32
"""Bytes that `loads.places_of` compares at once."""
