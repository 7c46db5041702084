"""Whole stores as Parquet: planned here, written part by part in any number of threads or Spark tasks, committed here.

A part is the unit of work of one of them: the records of a range of the log, or some rows of another table. The
parts depend on the store and the request alone, so every engine writes the same rows to files of the same names.

    survey -> plan -> parts -> (engine: write each part) -> collect -> manifest -> commit
"""
