"""Checks of the commit log."""
