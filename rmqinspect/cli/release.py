"""The option that names the broker version whose rules apply."""

from typing import Any

import click

from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.cli.parameters import option


def release_option() -> Any:
    """Return the field for it; without one, the content of the store shows the versions."""
    return option(
        "--broker-version",
        type=click.Choice(RELEASES),
        metavar="VERSION",
        help="Broker version whose rules apply. Default: estimated from the content of the store.",
    )
