"""The settings of a broker.conf."""

from collections.abc import Mapping

from rmqinspect.errors import Unreadable


def read_settings(path: str) -> dict[str, str]:
    """Return the settings of a broker.conf (a Java properties file), the last of a name.

    :raises Unreadable: it cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            pairs = [line.partition("=") for line in lines if not line.lstrip().startswith(("#", "!"))]
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


# The settings that are numbers of bytes or of units; old versions spell "maped".
_SIZE_SETTINGS = (
    "mappedFileSizeCommitLog",
    "mapedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
)


def odd_settings(path: str) -> list[tuple[str, str]]:
    """Return (name, value) of the sizes in a broker.conf that are none, and so are not used.

    :raises Unreadable: it cannot be read.
    """
    settings = read_settings(path)
    return [(n, settings[n]) for n in _SIZE_SETTINGS if n in settings and setting_size(settings, n) is None]


def setting_size(settings: Mapping[str, str], *names: str) -> int | None:
    """Return the first of the settings that is a positive number."""
    for name in names:
        value = settings.get(name, "")
        if value.isdecimal() and len(value) < 20 and int(value) > 0:
            return int(value)
    return None
