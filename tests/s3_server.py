"""A real S3 server on 127.0.0.1 (moto's), and ways between it and us that break."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

BUCKET = "evidence"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    # Nobody is asked who we are: without this the SDK looks for the metadata service of a cloud.
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


class Server:
    """Where the server listens, and how its objects are named."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def options(self) -> str:
        """What a URI says of this server, and of our patience with it."""
        return f"scheme=http&endpoint_override=127.0.0.1:{self.port}&request_timeout=1&max_attempts=1"

    def uri(self, key: str, bucket: str = BUCKET) -> str:
        """Return the URI of an object or a prefix."""
        return f"s3://{bucket}/{key}?{self.options}"

    def filesystem(self) -> Any:
        """Return the server's objects as Arrow sees them."""
        return fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{self.port}", scheme="http", region="us-east-1", access_key="testing",
            secret_key="testing", allow_bucket_creation=True,
        )  # fmt: skip

    def upload(self, folder: Path, key: str) -> str:
        """Copy a folder's files and return the URI of what they became."""
        filesystem = self.filesystem()
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                with filesystem.open_output_stream(f"{BUCKET}/{key}/{file.relative_to(folder).as_posix()}") as stream:
                    stream.write(file.read_bytes())
        return self.uri(key)


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server with an empty bucket until the block ends."""
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port = found.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(port, process)
        server = Server(port)
        server.filesystem().create_dir(BUCKET)
        yield server
    finally:
        process.terminate()
        process.wait()


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
