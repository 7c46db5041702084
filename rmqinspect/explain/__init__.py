"""What a code, field, flag or broker log line means."""
