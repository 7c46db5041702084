"""Find a store, name its files, and open them for reading: nothing else opens evidence."""
