"""Hooks and fixtures of every test run: parallel workers, signals, and a proof that no evidence changed."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from install import compile_loops
from rmqinspect.system import filesystem
from tests.support import oracle
from tests.support.hdfs_cluster import hdfs  # noqa: F401 (a fixture of all tests)
from tests.support.real_brokers import real_brokers  # noqa: F401 (a fixture of all tests)
from tests.support.sparks import spark  # noqa: F401 (a fixture of all tests)

MOST_WORKERS = 4

# No test fails because the machine is slow.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Tests of one group run in one worker: a Spark session, an S3 server and RocketMQ's stores start once, not once per
# worker, and the slow finder of the oracle reads each store once.
_GROUP_OF_FIXTURE = {"spark": "spark", "server": "s3", "real_brokers": "broker", "hdfs": "hdfs"}
_GROUP_OF_FOLDER = {"spark": "spark", "oracle": "oracle", "pages": "spark"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="Write tests/golden/ from what the commands print now; review it as a diff.",
    )
    parser.addoption("--all-cases", action="store_true", help="Run long lists of cases whole, not a sample of them.")
    parser.addoption("--every-bit", action="store_true", help="Flip every bit of a small store, not a sample.")
    parser.addoption("--mutations", type=int, default=10, help="How many damaged files of each kind to try.")


def pytest_configure(config: pytest.Config) -> None:
    """Restore SIGINT, which a shell ignores in background jobs, and SIGHUP, which nohup ignores.

    Tests of interrupted commands and their children need them. Refuse to test compiled loops of other sources.
    """
    if compile_loops.stale():
        raise pytest.UsageError("the compiled loops are of other sources; to build: python install/compile_loops.py")
    if config.getoption("numprocesses", None):
        oracle.share()
    os.environ["RMQINSPECT_PAGER"] = ""  # commands that a test runs may have the terminal of pytest -s
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run the whole suite in one worker more than there are cores: tests wait for servers, brokers and Spark.

    Named files and tests run in this process, where a debugger works.
    """
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return 0
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)) + 1)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all-cases"):
        left_out = [item for item in items if item.get_closest_marker("all_cases")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("all_cases")]
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        groups = {group for fixture, group in _GROUP_OF_FIXTURE.items() if fixture in fixtures}
        groups |= {group for folder, group in _GROUP_OF_FOLDER.items() if item.path.parent.name == folder}
        if groups:
            # One group only: a test of both runs where Spark is.
            item.add_marker(pytest.mark.xdist_group(max(groups)))
    if hasattr(config, "workerinput"):
        # First the groups, which take long: single tests fill the time of the other workers at the end.
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Forget after each test what it opened: where evidence lay nothing is written.

    A file in the folder for temporary ones would make evidence of all folders of later tests.
    """
    before = set(filesystem.evidence)
    try:
        return (yield)
    finally:
        filesystem.evidence.clear()
        filesystem.evidence.update(before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Refuse a pytest in which xdist has no groups: each worker would start a session and servers of its own.

    xdist 3.8 writes a group to the end of a test's id, which pytest 9.2 derives anew.
    """
    for name in ids if node.config.getoption("dist") == "loadgroup" else ():
        if Path(name.partition("::")[0]).parent.name in _GROUP_OF_FOLDER and "@" not in name:
            raise pytest.UsageError("this release of pytest-xdist gets no groups of tests from this one of pytest")


@pytest.fixture(scope="session")
def all_cases(pytestconfig: pytest.Config) -> bool:
    """Whether a test that walks over many stores itself is to take all of them (tests/support/sampling.py)."""
    return bool(pytestconfig.getoption("--all-cases"))


@pytest.fixture(scope="session", autouse=True)
def stores_left_alone() -> Iterator[None]:
    """Fail the run if a byte, a time or a name in an unpacked store changed; workers share the stores.

    Files are unpacked read-only, but root may write all the same.
    """
    yield
    changed = oracle.changed_stores()
    assert not changed, f"{len(changed)} names in shared stores changed: {changed[:10]}"
