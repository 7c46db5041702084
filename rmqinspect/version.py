"""Which version of the tool speaks."""

from importlib import metadata


def tool_version() -> str:
    """Return the installed version; `unknown` where the package runs without having been installed."""
    try:
        return metadata.version("rmqinspect")
    except metadata.PackageNotFoundError:
        return "unknown"


def tool_name() -> str:
    """Return name and version as they stand in documents: `rmqinspect 1.0.0`."""
    return f"rmqinspect {tool_version()}"
