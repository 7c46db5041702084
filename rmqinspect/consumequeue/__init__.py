"""Consume queues: their units and ends."""
