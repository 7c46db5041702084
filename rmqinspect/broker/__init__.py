"""What brokers do, version by version."""
