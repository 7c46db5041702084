"""The checkout and its sample stores."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
NAMES = tuple(sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))


def sample(name: str) -> Path:
    """Return the root folder of a sample store. It is part of the checkout: never write to it."""
    return SAMPLES / name / "store"
