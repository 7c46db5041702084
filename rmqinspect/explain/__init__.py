"""The meaning of codes, fields, flags and broker log lines."""
