"""HDFS as Arrow opens it: through Hadoop's own client, libhdfs.so, which runs Java inside this process.

Java that does not find Hadoop's classes ends the process; libhdfs prints the trace of an exception, and tells Arrow
nothing but "error 255". Therefore:

- all that is needed is looked for first, and what is missing is named;
- what libhdfs and Java print goes to a file in memory: the terminal stays ours, and `reason` finds the cause there;
- Java leaves signals to Python (Ctrl-C), and writes no file: this is a machine under examination.
"""

import fcntl
import glob
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import lru_cache

SCHEMES = ("hdfs", "viewfs")

# --- what is needed ---------------------------------------------------------------------------------

# Where Arrow looks. Source: Arrow's io/hdfs_internal.cc, get_potential_libjvm_paths, get_potential_libhdfs_paths.
_JAVAS = (
    *(f"/usr/lib/jvm/{name}" for name in ("default-java", "java", "", "default", "java-8-openjdk-amd64")),
    *(f"/usr/local/lib/jvm/{name}" for name in ("default-java", "java", "")),
    *("/usr/lib64/jvm", "/usr/local/lib64/jvm", "/usr/java/latest"),
)
_IN_JAVA = ("", "jre/lib/amd64/server", "lib/amd64/server", "jre/lib/server", "lib/server")
_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
# Where the system looks for a library.
_LOADER = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", *glob.glob("/usr/lib/*-linux-gnu"))
# Classes without which Java ends the process: Hadoop's own, and what libhdfs words an exception with, whose package
# depends on the release. Jars whose names have the word are looked at first.
_CLASSES = {
    "Hadoop jars": ("hadoop", ("org/apache/hadoop/fs/FileSystem.class",)),
    "commons-lang jar": (
        "commons-lang",
        tuple(f"org/apache/commons/{name}/exception/ExceptionUtils.class" for name in ("lang3", "lang")),
    ),
}


def missing() -> str:
    """Return what Hadoop's client lacks here, and which variable leads to it; "" if all was found."""
    if os.path.lexists(f"libhdfs.{_SUFFIX}"):
        # Arrow would take it before any other: this may be the folder under examination.
        return f"a libhdfs.{_SUFFIX} in the current folder would be loaded: start from another folder"
    return "; ".join(filter(None, (_java(), _libhdfs(), _classes())))


def _java() -> str:
    home, name = os.environ.get("JAVA_HOME"), f"libjvm.{_SUFFIX}"
    folders = (*([home] if home else ()), *_JAVAS)
    if any(os.path.exists(os.path.join(java, part, name)) for java in folders for part in _IN_JAVA):
        return ""
    return f"no {name} in JAVA_HOME={home}" if home else f"no {name}, and JAVA_HOME is not set"


def _libhdfs() -> str:
    home, own, name = os.environ.get("HADOOP_HOME"), os.environ.get("ARROW_LIBHDFS_DIR"), f"libhdfs.{_SUFFIX}"
    folders = [*([os.path.join(home, "lib/native")] if home else ()), *([own] if own else ())]
    loader = [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *_LOADER]
    if any(os.path.exists(os.path.join(folder, name)) for folder in folders + loader):
        return ""
    return f"no {name} in {' or '.join(folders)}" if folders else f"no {name}, and HADOOP_HOME is not set"


def _classes() -> str:
    path = os.environ.get("CLASSPATH", "")
    if not path:
        return "CLASSPATH is not set: `hadoop classpath --glob` prints it"
    entries = [*_entries(path)]
    lack = []
    for what, (hint, names) in _CLASSES.items():
        likely_first = sorted(entries, key=lambda entry: hint not in os.path.basename(entry))
        if not any(_holds(entry, names) for entry in likely_first):
            lack.append(what)
    return f"no {' and no '.join(lack)} in CLASSPATH: `hadoop classpath --glob` prints it" if lack else ""


def _entries(path: str) -> Iterator[str]:
    for entry in filter(None, path.split(os.pathsep)):
        # Java itself knows a star at the end only, which libhdfs writes out since 3.3.
        yield from glob.glob(glob.escape(entry[:-1]) + "*.jar") if entry.endswith("/*") else (entry,)


def _holds(entry: str, names: tuple[str, ...]) -> bool:
    if os.path.isdir(entry):
        return any(os.path.exists(os.path.join(entry, name)) for name in names)
    try:
        with zipfile.ZipFile(entry) as jar:
            return any(name in jar.NameToInfo for name in names)
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        return False


def has_default() -> bool:
    """Whether a configuration that Hadoop's client finds may name the file system of a URI without a host.

    Without one its default are the files of this machine.
    """
    for entry in _entries(os.environ.get("CLASSPATH", "")):
        try:
            with open(os.path.join(entry, "core-site.xml"), encoding="utf-8", errors="replace") as file:
                text = file.read(_MOST_KEPT)
        except OSError:
            continue
        if "fs.default" in text or "include" in text:  # fs.default.name is its old name
            return True
    return False


# --- what it prints ---------------------------------------------------------------------------------

# Signals stay with Python; no hsperfdata in /tmp, no hs_err_pid.log in the current folder.
_JAVA_OPTIONS = "-Xrs -XX:-UsePerfData -XX:ErrorFile=/dev/null -XX:+UseSerialGC"
_MOST_KEPT = 1 << 20


@lru_cache
def prepare() -> int:
    """Take over what is printed on descriptor 2, once and for good; return the descriptor of where it goes.

    Python's stderr becomes a copy of the descriptor, so who prints there sees no difference.
    """
    os.environ["LIBHDFS_OPTS"] = f"{_JAVA_OPTIONS} {os.environ.get('LIBHDFS_OPTS', '')}".strip()
    if hasattr(os, "memfd_create"):
        heard = os.memfd_create("libhdfs")
    else:
        with tempfile.TemporaryFile() as file:
            heard = os.dup(file.fileno())
    fcntl.fcntl(heard, fcntl.F_SETFL, os.O_APPEND)
    try:
        is_ours = sys.stderr.fileno() == 2
    except (OSError, ValueError, AttributeError):
        is_ours = False  # a test's, or none
    if is_ours:
        sys.stderr.flush()
        old = sys.stderr
        sys.stderr = open(os.dup(2), "w", buffering=1, encoding=old.encoding, errors=old.errors)  # noqa: SIM115 for good
    os.dup2(heard, 2)
    return heard


# The first line about an exception: its cause, and the trace from the outermost one on, without a line end between.
_EXCEPTION = re.compile(
    r"^(?:[a-z]\w*\.)*(\w+(?:Exception|Error)): (.*?)(?=(?:java|javax|org|com|sun)\.[\w.$]*(?:Exception|Error)|$)",
    re.MULTILINE,
)
# Java's words for what the name of an exception says already, or that come with an address of an explanation.
_ENDS = re.compile(r"[\s:;.]*(?:For more details see\b.*)?$")


def reason() -> str:
    """Return the last exception that was printed since the last call, as `Name: cause`; "" if none was."""
    heard = prepare()
    size = os.fstat(heard).st_size
    printed = os.pread(heard, _MOST_KEPT, max(0, size - _MOST_KEPT)).decode("utf-8", "replace")
    os.ftruncate(heard, 0)
    return last_exception(printed)


def last_exception(printed: str) -> str:
    """Return the last exception that libhdfs printed, as `Name: cause`; "" if there is none."""
    found = _EXCEPTION.findall(printed)
    return _ENDS.sub("", ": ".join(found[-1])) if found else ""
