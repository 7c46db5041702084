"""Keeps Arrow from importing pandas."""

import sys


class _WithoutPandas:
    """Says that pandas is not installed, nor dateutil.

    Arrow asks whether the first array it gets is one of pandas, and imports pandas for that if it can. It is not used,
    and takes as long as a look-up. The same holds for dateutil, whose differences of months Arrow looks for.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in ("pandas", "dateutil"):
            raise ModuleNotFoundError(f"{fullname} is not used", name=fullname)


_finder = _WithoutPandas()


def hide_pandas() -> None:
    """Make imports of pandas fail."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def show_pandas() -> None:
    """Let pandas be imported: Spark Connect does."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
