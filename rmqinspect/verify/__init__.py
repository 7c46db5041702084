"""Checks of a store: findings by code, byte account, one verdict."""
