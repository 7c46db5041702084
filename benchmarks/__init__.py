"""Benchmarks against a plain read of the files and the broker's own check. See README.md."""
