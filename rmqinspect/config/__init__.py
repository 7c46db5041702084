"""Configuration files and the checkpoint."""
