"""The rules of consume queues."""
