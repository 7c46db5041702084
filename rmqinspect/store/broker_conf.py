"""The settings in a broker.conf, a Java properties file.

Source: BrokerStartup#buildBrokerController, which loads it with Properties#load: ISO-8859-1, Unicode escapes,
continuation lines, `=`, `:` or a blank between name and value.
"""

from collections.abc import Mapping

from rmqinspect.errors import BadOption, Unreadable

# Settings that must be positive numbers; old versions spell "maped".
_NUMBERS = (
    "mappedFileSizeCommitLog",
    "mapedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapedFileSizeConsumeQueue",
    "mappedFileSizeTimerLog",
    "maxHashSlotNum",
    "maxIndexNum",
    "timerPrecisionMs",
)


def read_settings(path: str) -> dict[str, str]:
    """Return the settings of a broker.conf by name; of a repeated name, the last one counts.

    :raises Unreadable: the file cannot be read.
    :raises BadOption: it has a malformed `\\u` escape; a broker refuses to start with it.
    """
    import javaproperties  # needed with --config only

    try:
        with open(path, "rb") as file:
            settings = javaproperties.load(file)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    except javaproperties.InvalidUEscapeError as error:
        raise BadOption(f"{path}: not a Java properties file: malformed escape {error.escape}") from error
    # MixAll#properties2Object trims values too.
    return {name: value.strip() for name, value in settings.items()}


def odd_settings(path: str) -> list[tuple[str, str]]:
    """Return (name, value) of the settings that should be positive numbers and are not.

    A broker silently uses its default for them. Source: MixAll#properties2Object.

    :raises Unreadable: the file cannot be read.
    :raises BadOption: it is malformed.
    """
    settings = read_settings(path)
    return [(n, settings[n]) for n in _NUMBERS if n in settings and setting_size(settings, n) is None]


def setting_size(settings: Mapping[str, str], *names: str) -> int | None:
    """Return the first of the named settings that is a positive number, None without any."""
    for name in names:
        value = settings.get(name, "")
        if value.isdecimal() and len(value) < 20 and int(value) > 0:
            return int(value)
    return None
