"""What a path is, which of its files is what, and the only opener of evidence."""
