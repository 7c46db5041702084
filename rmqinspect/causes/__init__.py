"""Likely causes of damage, each proved by the bytes: flipped bits, lost pages, torn writes, shifted copies."""
