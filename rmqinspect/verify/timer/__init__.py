"""Checks of the timer log and wheel."""
