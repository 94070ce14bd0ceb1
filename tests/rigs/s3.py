"""Run S3 servers on the loopback: a real one, and moto, which plays one."""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from tests.fakes.aws import CREDENTIALS, moto_address
from tests.rigs.loopback import free_ports

_SECONDS = 30
_NUMBERS = count(1)


def moto_bucket() -> str:
    """Return the URL of an empty bucket of moto's."""
    name, address = f"states-{next(_NUMBERS)}", moto_address()
    made = urllib.request.Request(f"http://{address}/{name}", method="PUT")
    with urllib.request.urlopen(made):  # noqa: S310 - the loopback
        return _url(name, address)


def real_bucket() -> str:
    """Return the URL of an empty bucket of a real server, or skip where there is none."""
    if not os.environ.get("FLEET_S3_SERVER"):
        pytest.skip("FLEET_S3_SERVER is not set; `nox -s engine` sets it where it can be built")
    name, (buckets, address) = f"states-{next(_NUMBERS)}", _served()
    # Its buckets are folders.
    (buckets / name).mkdir()
    return _url(name, address)


@cache
def _served() -> tuple[Path, str]:
    """Start the server once in this process, with which it ends; return its folder and address."""
    folder = Path(tempfile.mkdtemp(prefix="fleet-s3-"))
    atexit.register(shutil.rmtree, folder)
    for each in ("buckets", "notes"):
        (folder / each).mkdir()
    (port,) = free_ports(1)
    server = subprocess.Popen(
        # Not every file system has extended attributes: its notes lie beside the objects.
        [
            *(os.environ["FLEET_S3_SERVER"], "--quiet", "--port", f"127.0.0.1:{port}"),
            *("posix", "--sidecar", str(folder / "notes"), str(folder / "buckets")),
        ],
        env={
            "ROOT_ACCESS_KEY_ID": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_ACCESS_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        },
        stdout=subprocess.DEVNULL,
    )
    atexit.register(server.wait)
    # Asked to end it would wait ten seconds for connections that are still open.
    atexit.register(server.kill)
    _wait_for(port, server)
    return folder / "buckets", f"127.0.0.1:{port}"


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        try:
            raise AssertionError(f"the S3 server ended with {server.wait(timeout=0.05)}")
        except subprocess.TimeoutExpired:
            assert time.monotonic() < deadline, "the S3 server does not listen"


def _url(name: str, address: str) -> str:
    return f"s3://{name}?endpoint=http://{address}&s3ForcePathStyle=true&region=us-east-1"
