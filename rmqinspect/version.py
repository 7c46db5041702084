"""Name and version of this tool."""


def tool_version() -> str:
    """Return the installed version, `unknown` if the package is not installed."""
    from importlib import metadata  # takes long: only where the version is printed

    try:
        return metadata.version("rmqinspect")
    except metadata.PackageNotFoundError:
        return "unknown"


def tool_name() -> str:
    """Return name and version as written to documents: `rmqinspect 1.0.0`."""
    return f"rmqinspect {tool_version()}"
