"""Which values of a table's columns `status` and `severity` report no damage."""

# A row with another value is highlighted on the screen, and for `decode`, `export` and Spark's FAILFAST a bad status
# is damage.
SOUND: dict[str, tuple[str, ...]] = {
    # Of groups: a queue that nothing was written to has no files, and retention may overtake a group (ST-GROUP-LOST).
    "status": ("ok", "no_queue", "behind_min"),
    "severity": ("info", "warning"),
}
