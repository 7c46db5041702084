"""An S3 server on 127.0.0.1 (moto), and connections to it that fail."""

import atexit
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, Literal
from urllib.parse import quote
from urllib.request import urlopen

from pyarrow import fs

BUCKET = "evidence"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    # Without this the SDK looks for the metadata service of a cloud.
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


class Server:
    """Where the server listens, and how its objects are named."""

    def __init__(self, port: int, patience: int = 20, attempts: int = 1) -> None:
        self.port = port
        self.patience = patience  # seconds
        self.attempts = attempts  # of a request

    @property
    def options(self) -> str:
        """Return the query of a URI: endpoint and timeout."""
        limits = f"request_timeout={self.patience}&max_attempts={self.attempts}"
        return f"scheme=http&endpoint_override=127.0.0.1:{self.port}&{limits}"

    def uri(self, key: str, bucket: str = BUCKET) -> str:
        """Return the URI of an object or a prefix."""
        return f"s3://{bucket}/{key}?{self.options}"

    def filesystem(self) -> Any:
        """Return the server's objects as Arrow sees them."""
        return fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            access_key="testing",
            secret_key="testing",
            allow_bucket_creation=True,
        )

    def upload(self, folder: Path, key: str) -> str:
        """Copy a folder's files and return the URI of what they became."""
        with closing(HTTPConnection("127.0.0.1", self.port)) as connection:
            for file in (file for file in folder.rglob("*") if file.is_file()):
                # One request for a file, where Arrow makes three.
                connection.request("PUT", f"/{BUCKET}/{quote(f'{key}/{file.relative_to(folder)}')}", file.read_bytes())
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, file
        return self.uri(key)


@contextmanager
def serving() -> Iterator[Server]:
    """Yield a server with an empty bucket; one process serves all blocks of this process, one after the other."""
    port = _start()
    urlopen(f"http://127.0.0.1:{port}/moto-api/reset", b"").close()
    server = Server(port)
    server.filesystem().create_dir(BUCKET)
    yield server


@cache
def _start() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(process.wait)
    atexit.register(process.terminate)
    _wait_for(port, process)
    return port


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert process.poll() is None, "the S3 server ended"
            assert time.monotonic() < until, "the S3 server does not start"
            time.sleep(0.05)


# What the proxy does with a request: pass it on, deny access, cut the answer in half, never answer, ask for patience,
# close the connection.
Way = Literal["pass", "refuse", "cut", "stall", "busy", "drop"]

_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_EXPECT = re.compile(rb"(?i)\r\nexpect: *100-continue\r\n")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked\r\n")


class _Gate(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, judge: Callable[[str], Way]) -> None:
        self.port, self.judge = port, judge
        super().__init__(("127.0.0.1", 0), _Passage)


class _Passage(StreamRequestHandler):
    """One request and the answer to it."""

    def handle(self) -> None:
        assert isinstance(self.server, _Gate)
        head = b"".join(iter(self.rfile.readline, b"\r\n")) + b"\r\n"
        first, _, rest = head.partition(b"\r\n")
        if not first:  # nobody asked anything
            return
        way = self.server.judge(first.decode())
        with suppress(OSError):  # who asked has gone
            if _EXPECT.search(head):
                self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.answer(first, _EXPECT.sub(b"\r\n", rest) + self.read_body(head), way)

    def read_body(self, head: bytes) -> bytes:
        if length := _LENGTH.search(head):
            return self.rfile.read(int(length[1]))
        body = b""
        while _CHUNKED.search(head) and not body.endswith(b"\r\n0\r\n\r\n"):
            size = self.rfile.readline()
            body += size + self.rfile.read(int(size, 16) + 2)
        return body

    def answer(self, first: bytes, rest: bytes, way: Way) -> None:
        assert isinstance(self.server, _Gate)
        if way == "stall":
            self.request.recv(1)
        elif way == "drop":
            return
        elif way == "busy":
            self.request.sendall(_BUSY)
        elif way == "refuse":
            body = b"" if first.startswith(b"HEAD") else _DENIED
            self.request.sendall(_REFUSAL % len(_DENIED) + body)
        else:
            answer = _ask(self.server.port, first + b"\r\nConnection: close\r\n" + rest)
            body_at = answer.index(b"\r\n\r\n") + 4
            self.request.sendall(answer if way == "pass" else answer[: (body_at + len(answer)) // 2])


def _ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@contextmanager
def gate(server: Server, judge: Callable[[str], Way], patience: int = 20, attempts: int = 1) -> Iterator[Server]:
    """Yield a proxy of the server; `judge` decides by the first line of a request what happens to it."""
    with _Gate(server.port, judge) as passage:
        Thread(target=passage.serve_forever, args=(0.01,), daemon=True).start()
        yield Server(passage.server_address[1], patience, attempts)
        passage.shutdown()
