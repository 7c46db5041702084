"""Whole stores as Parquet: planned here, written part by part by any number of processes, committed here.

A part is what one process writes by itself: the records of a byte range of the log, or some rows of
another table. Which parts there are depends on the store and on the wish alone, so every engine writes
the same rows into files of the same names.
"""
