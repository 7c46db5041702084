"""Checks of a store: every code, one verdict."""
