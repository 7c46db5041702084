"""The map of a store: its model, a row of a terminal, a picture in a page."""
