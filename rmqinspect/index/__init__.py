"""Index files: geometry and entries."""
