"""What brokers do, by version."""
