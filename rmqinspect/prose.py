"""Tables of prose: .toml files that lie beside the module that gives their rows a type."""

import pkgutil
import tomllib
from typing import Any


def load_prose(package: str, name: str) -> dict[str, Any]:
    """Return the file `name` of `package`, its lists as tuples, each wrapped text on one line.

    Also reads from a zip, the form in which `spark-submit --py-files` ships the package.

    :raises FileNotFoundError: the installation lacks the file.
    """
    raw = pkgutil.get_data(package, name)
    if raw is None:
        raise FileNotFoundError(f"{package}/{name}")
    return {key: _unwrapped(value) for key, value in tomllib.loads(raw.decode()).items()}


def _unwrapped(value: Any) -> Any:
    match value:
        case str() if value != value.strip() or "\n" in value:
            return " ".join(value.split())
        case list():
            return tuple(_unwrapped(item) for item in value)
        case dict():
            return {key: _unwrapped(item) for key, item in value.items()}
        case _:
            return value
