"""This module runs the backends that stacks may live in, on the loopback: S3 and PostgreSQL.

A `Kind` names one; the fixture `backend` is the URL of an empty one.
"""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.ports.stores import postgres_url

__all__ = ["backend", "backend_url", "moto", "postgres_url"]

KINDS = ("file", "s3", "postgres")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAMADEUPFORTESTS00",
    "AWS_SECRET_ACCESS_KEY": "made-up-secret-access-key",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """Return the address of an S3 that moto plays in this process."""
    os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty backend of each kind."""
    return backend_url(request, request.param)


def backend_url(request: pytest.FixtureRequest, kind: str) -> str:
    """Return the URL of an empty backend for one test, its credentials in the environment."""
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    return open_backend(request, kind, request.getfixturevalue("tmp_path"), patch)


def open_backend(
    request: pytest.FixtureRequest, kind: str, folder: Path, patch: pytest.MonkeyPatch
) -> str:
    """Return the URL of an empty backend of a kind."""
    match kind:
        case "file":
            return f"file://{folder / 'state'}"
        case "s3":
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            return _empty_bucket(request.getfixturevalue("moto"), folder)
        case _:
            url: str = request.getfixturevalue("postgres_url")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            return f"{url.replace('postgresql:', 'postgres:')}&sslmode=disable"


def _empty_bucket(address: str, folder: Path) -> str:
    name = f"states-{quote(folder.name.lower(), safe='')[:40].strip('_').replace('_', '-')}"
    bucket = urllib.request.Request(f"http://{address}/{name}", method="PUT")
    with urllib.request.urlopen(bucket):  # noqa: S310 - the same
        pass
    return f"s3://{name}?endpoint=http://{address}&s3ForcePathStyle=true&region=us-east-1"
