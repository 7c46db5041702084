"""What a remote file system says when it fails, in one sentence: the libraries' own words without what helps nobody."""

import errno
import os
import re

from rmqinspect.system import hdfs

GOOGLE = ("gs://", "gcs://")
NO_FILE = "no such file or directory"
_NO_BUCKET = "no such bucket"
_DENIED = "permission denied"

# Services' errors about one file, by errno. All others are about the connection.
_OF_ONE_FILE: tuple[tuple[re.Pattern[str], int, str], ...] = (
    (re.compile(r"NO_SUCH_BUCKET|The specified bucket does not exist"), errno.ENOENT, _NO_BUCKET),
    (re.compile(r"NO_SUCH_KEY|RESOURCE_NOT_FOUND|does not exist|HTTP status 404"), errno.ENOENT, NO_FILE),
    (
        re.compile(
            r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN"
            r"|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|NOT_INITIALIZED|HTTP status 40[13]"
            r"|[Pp]ermission denied|PERMISSION_DENIED|UNAUTHENTICATED|AuthorizationFailure|AuthenticationFailed"
        ),
        errno.EACCES,
        _DENIED,
    ),
    (re.compile(r"INVALID_OBJECT_STATE|INVALID_RANGE|HTTP status 416"), errno.EIO, ""),
)
# Details of no use to a user; the message names the file itself.
_CLUTTER = re.compile(
    r" *\(Request ID: [^)]*\)|\. Detail: \[errno .*"
    r"|^When [^:]*: (?=AWS Error)|(?<=AWS Error )NETWORK_CONNECTION (?=during)|curlCode: \d+, "
    r"|^([\w ]+: )?google::cloud::Status\([A-Z_]+: |(Retry policy exhausted|Permanent error), with a last message of "
    r"|\. The request was not sent.*? The underlying error message was(?=: )|PerformWork\(\) - CURL error \[\d+\]="
    r"| error_info=.*"
)
# What Arrow cannot load though it is there: of another processor, or without a library of its own.
_NOT_LOADED = {
    "load libjvm": "Java's libjvm.so cannot be loaded: JAVA_HOME leads to it",
    "load libhdfs": "Hadoop's libhdfs.so cannot be loaded: HADOOP_HOME or ARROW_LIBHDFS_DIR leads to it",
}
# What is left of an exception in Java that libhdfs has no number for.
_UNTOLD = re.compile(r"HDFS connection failed|\[Errno 255\]")
_MANY_WORDS = 400


def of_one_file(error: BaseException) -> OSError | None:
    """Return the error of a local file that it is like; None for an error of the connection."""
    own = getattr(error, "errno", None)
    for kind, number, reason in _OF_ONE_FILE:
        if kind.search(str(error)) or (own == number and reason != _NO_BUCKET):
            return OSError(number, reason or one_line(error))
    return None


def one_line(error: BaseException) -> str:
    """Return a library's error in one line."""
    for part, words in _NOT_LOADED.items():
        if part in str(error):
            return words
    if _UNTOLD.search(str(error)) and (words := hdfs.reason()):
        return words
    lines = str(error).splitlines() or [type(error).__name__]
    words = _CLUTTER.sub("", lines[0]).strip()
    return words if len(words) <= _MANY_WORDS else f"{words[:_MANY_WORDS]}…"


def no_answer(patience: float | None) -> str:
    """Return what is told of a call that was waited for so many seconds."""
    return f"no answer in {patience:.3g} seconds"


def without_credentials(uri: str) -> str:
    """Return what to do where Google's client asks this machine for credentials: only those of its cloud answer."""
    is_theirs = uri.startswith(GOOGLE) and not uri.partition("://")[2].startswith("anonymous@")
    login = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    if not is_theirs or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return ""
    if os.path.exists(os.path.join(login, "application_default_credentials.json")):
        return ""
    return "; no credentials were found: GOOGLE_APPLICATION_CREDENTIALS leads to them, gs://anonymous@BUCKET needs none"
