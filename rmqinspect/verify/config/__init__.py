"""Checks of configuration files and consumer groups."""
