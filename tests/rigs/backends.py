"""Run the backends that stacks may live in, on the loopback: S3 and PostgreSQL.

The fixture `backend` is the URL of an empty one, of each kind in turn.
"""

from pathlib import Path

import psycopg
import pytest

from tests.fakes.aws import CREDENTIALS
from tests.ports.stores import postgres_url
from tests.rigs.s3 import moto_bucket, real_bucket

__all__ = ["backend", "backend_url", "postgres_url"]

KINDS = ("file", "moto", pytest.param("s3", marks=pytest.mark.engine), "postgres")


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
        case "moto" | "s3":
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            return (moto_bucket if kind == "moto" else real_bucket)()
        case _:
            url: str = request.getfixturevalue("postgres_url")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            return f"{url.replace('postgresql:', 'postgres:')}&sslmode=disable"
