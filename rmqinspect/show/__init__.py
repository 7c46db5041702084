"""One record or one store, looked at closely."""
