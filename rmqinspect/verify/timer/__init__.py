"""The rules of the timer log and the timer wheel."""
