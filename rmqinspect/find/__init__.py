"""Look-ups: which few bytes of a log hold the records that a filter asks for."""
