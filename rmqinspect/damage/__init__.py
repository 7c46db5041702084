"""Why bytes are wrong: flips, overwrites, patterns."""
