"""The PostgreSQL of the tests runs wherever pytest has its folders."""

import os
import tempfile

import pytest

from tests.rigs import postgres

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or bool(postgres.why_not()), reason="needs root and PostgreSQL"
)


@pytest.mark.slow
def test_postgres_runs_when_test_folders_are_readable_only_by_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", folder)

        with postgres.running() as url, postgres.database(url) as made:
            assert made.startswith("postgresql://")
