"""Spark sessions: checked before any work starts, quiet, and shut down at the end."""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rmqinspect.errors import BadOption, NotInstalled
from rmqinspect.spark.jvm_errors import first_line
from rmqinspect.system.no_pandas import show_pandas

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from rmqinspect.export.job import Engine

OLDEST_PYSPARK = "4.1"  # filters of Python data sources begin there
OLDEST_JAVA = 17  # what Spark 4 runs on

WITHOUT = "--engine local needs neither Spark nor Java"
"""The end of every message about a Spark that is not there."""

_JRE = f"a Java runtime {OLDEST_JAVA} or later (Debian: apt-get install default-jre-headless)"

# Known to org.apache.spark.deploy.SparkSubmit, whose error about any other is buried in a stack trace.
_MASTERS = re.compile(r"local(\[.+\])?|yarn|(spark|k8s|sc)://.+")

_CONNECT_PORT = 15002  # org.apache.spark.sql.connect.common.config.ConnectCommon

ANSWER_TIMEOUT = 20  # seconds for `java -version`, or for a server to accept a connection
_EXIT_TIMEOUT = 15  # seconds for the JVM to exit by itself

# Settings of local sessions: no port is open to other machines.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# --- availability ---------------------------------------------------------------------------------


def check_spark(master: str | None = None) -> None:
    """Check that a job can start, before any work.

    Java is needed unless a JVM exists: that of `spark-submit`, of a running context, or of a Spark Connect server.

    :raises NotInstalled: pyspark or Java is missing or too old; the message says what to install.
    :raises BadOption: the master is not a Spark master.
    """
    chosen = chosen_master(master)
    if chosen is not None and not _MASTERS.fullmatch(chosen):
        raise BadOption(
            f"{chosen!r} is not a Spark master: local[N], spark://HOST:PORT, k8s://…, yarn, or sc://HOST:PORT"
        )
    _check_pyspark()
    if not is_connect(master) and "PYSPARK_GATEWAY_PORT" not in os.environ and running_context() is None:
        check_java()


def chosen_master(master: str | None) -> str | None:
    """Return the master from the option, else from the environment, else None."""
    return master or os.environ.get("SPARK_REMOTE") or os.environ.get("SPARK_MASTER") or None


def is_connect(master: str | None) -> bool:
    """Whether a master is a Spark Connect server."""
    return (chosen_master(master) or "").startswith("sc://")


def _check_pyspark() -> None:
    try:
        import pyspark
    except ImportError as error:
        raise NotInstalled(f"pyspark is not installed: pip install 'pyspark>={OLDEST_PYSPARK}'; {WITHOUT}") from error
    if _minor(pyspark.__version__) < _minor(OLDEST_PYSPARK):
        raise NotInstalled(
            f"pyspark {pyspark.__version__} is too old: pip install 'pyspark>={OLDEST_PYSPARK}'; {WITHOUT}"
        )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def check_java() -> None:
    """Check the version of the Java that Spark's `bin/spark-class` would run."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise NotInstalled(f"Spark needs Java; none found in JAVA_HOME or on PATH: install {_JRE}; {WITHOUT}")
    try:
        process = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_TIMEOUT, check=True
        )
        answer = (process.stderr + process.stdout).decode(errors="replace")
    except (OSError, subprocess.SubprocessError) as error:
        where = f"JAVA_HOME={home} has no working java" if home else f"{java} does not run"
        raise NotInstalled(f"Spark needs Java; {where}: install {_JRE}; {WITHOUT}") from error
    version = _java_version(answer)
    if version is not None and version < OLDEST_JAVA:
        raise NotInstalled(f"Java {version} ({java}) is too old for Spark: install {_JRE}; {WITHOUT}")


def _java_version(answer: str) -> int | None:
    """Return the major version from the output of `java -version`; `1.8.0_392` is 8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


# --- engines -------------------------------------------------------------------------------------


@contextmanager
def spark_engine(master: str | None = None, *, verbose: bool = False) -> "Iterator[Engine]":
    """Open a session and yield the export engine that runs in it.

    `master` None: SPARK_REMOTE, SPARK_MASTER, or `local[*]`. A session of `spark-submit` is used as it is. At the end
    of the block running tasks are cancelled, and a session opened here is shut down.

    :raises NotInstalled: pyspark, Java, or a package of Spark Connect is missing or too old.
    :raises BadOption: Spark rejects the master, or cannot reach it.
    """
    check_spark(master)
    show_pandas()
    from rmqinspect.spark.engine import connect_engine, context_engine

    with ExitStack() as stack:
        if not verbose:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", FutureWarning)  # pyspark warns about pandas, which is not used
        if is_connect(master):
            yield connect_engine(stack.enter_context(_connected(str(chosen_master(master)))))
        else:
            yield context_engine(stack.enter_context(spark_context(master, verbose=verbose)))


# --- sessions -------------------------------------------------------------------------------------


@contextmanager
def local_session(
    master: str | None = None, *, verbose: bool = False, settings: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Open a session for SQL and data frames; arguments and errors as for `spark_context`."""
    with spark_context(master, verbose=verbose, settings=settings) as context:
        from pyspark.sql import SparkSession

        yield SparkSession(context)


@contextmanager
def spark_context(
    master: str | None = None, *, verbose: bool = False, settings: Mapping[str, str] | None = None
) -> "Iterator[SparkContext]":
    """Open a context; at the end of the block it is stopped and its JVM has exited.

    `master` None: SPARK_MASTER, or `local[*]`. A running context is used as it is and stays; so does the JVM of
    `spark-submit`. Spark's log is shown with `verbose` only.

    :raises NotInstalled: pyspark or Java is missing or too old, or the JVM does not start.
    :raises BadOption: Spark rejects the master, or cannot reach it.
    """
    check_spark(master)
    running = running_context()
    if running is not None:
        yield running
        return
    with ExitStack() as stack:
        yield _start(stack, chosen_master(master), verbose=verbose, settings=settings or {})


@contextmanager
def _connected(url: str) -> "Iterator[SparkSession]":
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _reach(url)
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        needs = "pip install 'pyspark[connect]'"
        raise NotInstalled(f"Spark Connect: {first_line(error)}: {needs}; {WITHOUT}") from error
    except PySparkException as error:
        raise BadOption(f"Spark Connect: {first_line(error)}") from error
    try:
        yield session
    finally:
        session.stop()


def _reach(url: str) -> None:
    """Check that the server accepts connections: the client would retry for ten minutes."""
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port or _CONNECT_PORT), ANSWER_TIMEOUT).close()
    except (OSError, ValueError) as error:
        raise BadOption(f"Spark Connect: {address.netloc}: {error}") from error


def running_context() -> "SparkContext | None":
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def _start(stack: ExitStack, master: str | None, *, verbose: bool, settings: Mapping[str, str]) -> "SparkContext":
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which sets its own master
    master = master or (None if submitted else "local[*]")
    conf = SparkConf(loadDefaults=False)
    conf.setAll([("spark.app.name", "rmqinspect"), ("spark.sql.session.timeZone", "UTC")])
    if master is not None:
        conf.setMaster(master)
    if not verbose:
        conf.setAll([("spark.log.level", "ERROR"), ("spark.ui.showConsoleProgress", "false")])
    local = (master or "").startswith("local")
    conf.setAll([*(_LOCAL if local else {}).items(), *settings.items()])

    log = stack.enter_context(_log_file()) if not verbose and not submitted else None
    if not verbose:
        stack.enter_context(_silent_py4j())
    try:
        with _environment(_of_local_workers() if local else {}), _interrupts_kept():
            gateway = _launch(conf, log)
            stack.callback(_end_gateway, gateway)
            context = SparkContext(conf=conf, gateway=gateway)
    except PySparkException as error:  # JAVA_GATEWAY_EXITED
        raise NotInstalled(f"the JVM of Spark does not start: {_last_line(log) or error}; {WITHOUT}") from error
    except Py4JError as error:
        raise BadOption(f"Spark does not start with master {master}: {first_line(error)}") from error
    stack.callback(_stop, context)
    return context


def _of_local_workers() -> dict[str, str]:
    """Return the environment of local workers: this Python, its packages, and no host name lookup."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes started in the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_kept(*, ignored: bool = False) -> Iterator[None]:
    """Restore the handler of SIGINT, which a new context replaces; `ignored`: Ctrl-C has no effect in the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _launch(conf: Any, log: IO[bytes] | None) -> Any:
    """Start the JVM. Ctrl-C waits until the JVM is up and can be ended; otherwise it would be orphaned."""
    from pyspark.java_gateway import launch_gateway

    with ThreadPoolExecutor(1) as thread:
        launched = thread.submit(launch_gateway, conf, {} if log is None else {"stdout": log, "stderr": log})
        try:
            return launched.result()
        except KeyboardInterrupt:
            _end_gateway(launched.result())
            raise


def _stop(context: "SparkContext") -> None:
    """Stop a context and the processes of its tasks; errors of a dead JVM are ignored."""
    from py4j.protocol import Py4JError

    with _interrupts_kept(ignored=True), suppress(Py4JError, OSError):
        context.cancelAllJobs()
        context.stop()


def _end_gateway(gateway: Any) -> None:
    """End the JVM, if this process started it, and wait for its exit."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return
    with _interrupts_kept(ignored=True):
        with suppress(Py4JError, OSError):  # it may exit before it answers
            gateway.shutdown()
        if process.stdin is not None:
            process.stdin.close()  # org.apache.spark.api.python.PythonGatewayServer exits at end of input
        try:
            process.wait(_EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if SparkContext._gateway is gateway:
            SparkContext._gateway = SparkContext._jvm = None


# --- the output of Spark ----------------------------------------------------------------------------


@contextmanager
def _log_file() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(prefix="rmqinspect-spark-") as log:
        yield log


@contextmanager
def _silent_py4j() -> Iterator[None]:
    """Drop py4j's log messages about interrupted calls, unless logging is configured."""
    root, nobody = logging.getLogger(), logging.NullHandler()
    if root.handlers:
        yield
        return
    root.addHandler(nobody)
    try:
        yield
    finally:
        root.removeHandler(nobody)


def _last_line(log: IO[bytes] | None) -> str:
    if log is None:
        return ""
    log.seek(0)
    lines = [line.strip() for line in log.read(1 << 16).decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line and not line.startswith("at ")), "")
    return last.removeprefix('Exception in thread "main" ')
