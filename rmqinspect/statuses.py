"""Which values of a table's columns `status` and `severity` report no damage, and how a screen says them."""

# A row with another value is highlighted on the screen, and for `decode`, `export` and Spark's FAILFAST a bad status
# is damage.
SOUND: dict[str, tuple[str, ...]] = {
    # Of groups: a queue that nothing was written to has no files, and retention may overtake a group (ST-GROUP-LOST).
    "status": ("ok", "no_queue", "behind_min"),
    "severity": ("info", "warning"),
}

_IN_WORDS = {"carved": "carved (found behind a gap)"}


def status_words(status: str) -> str:
    """Return a status for a screen, with its meaning where the word does not say it."""
    return _IN_WORDS.get(status, status)
