"""What `verify` looks for: one module per kind of file, the codes and their words in one table."""
