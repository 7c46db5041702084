"""Checks of consume queues, and of queues against the log."""
