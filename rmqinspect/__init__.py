"""Offline, read-only inspection of Apache RocketMQ broker stores."""
