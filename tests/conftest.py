"""What every test run does: prove at its end that it left the evidence alone."""

from collections.abc import Iterator

import pytest

from tests.support import oracle
from tests.support.sparks import spark  # noqa: F401 (a fixture of all tests)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="Write tests/golden/ from what the commands print now; review it as a diff.",
    )
    parser.addoption("--every-bit", action="store_true", help="Flip every bit of a small store, not a sample.")
    parser.addoption("--mutations", type=int, default=60, help="How many damaged files of each kind to try.")


@pytest.fixture(scope="session", autouse=True)
def stores_left_alone() -> Iterator[None]:
    """Fail the run if a byte, a time or a name in an unpacked store changed.

    Files are unpacked read-only, but root may write all the same.
    """
    yield
    changed = oracle.changed_stores()
    assert not changed, f"{len(changed)} names in shared stores changed: {changed[:10]}"
