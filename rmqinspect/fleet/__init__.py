"""One answer about many stores: read side by side, each failure an answer of its own."""
