"""From damaged or incomplete evidence to a store that a stock broker serves; always in a new place."""
