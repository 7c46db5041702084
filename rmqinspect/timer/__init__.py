"""The timer log and the timer wheel."""
