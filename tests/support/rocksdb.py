"""Small RocksDB databases."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from rmqinspect.rocksdb.unpack import has_rocksdict

# In CI the tests run and fail: a skip there would look as if RocksDB was tested.
needs_rocksdict = pytest.mark.skipif(
    not has_rocksdict() and "CI" not in os.environ, reason="rocksdict is not installed"
)


def database(folder: Path, families: Mapping[str, Iterable[tuple[bytes, bytes]]]) -> None:
    """Make a database with these items, by column family."""
    from rocksdict import Options, Rdict

    folder.mkdir(parents=True, exist_ok=True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    with Rdict(str(folder), options=options) as made:
        for name, items in families.items():
            family = made if name == "default" else made.create_column_family(name, Options(raw_mode=True))
            for key, value in items:
                family[key] = value
            family.flush()
    (folder / "rocksdict-config.json").unlink()
