"""tools/s3_server.py prints the path of an S3 server, builds it, or says why not."""

from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.tool import a_program, bare_environment, run_tool

pytestmark = pytest.mark.slow

TOOL = "s3_server.py"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return bare_environment(tmp_path)


def test_named_s3_server_is_used(tmp_path: Path, environment: dict[str, str]) -> None:
    a_program(tmp_path / "mine", "")

    done = run_tool(TOOL, environment | {"FLEET_S3_SERVER": str(tmp_path / "mine")})

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/mine\n", "")


def test_s3_server_is_built_and_kept(tmp_path: Path, environment: dict[str, str]) -> None:
    a_program(tmp_path / "bin" / "go", '/bin/cp /bin/true "$GOBIN/versitygw"')

    built = run_tool(TOOL, environment)
    (tmp_path / "bin" / "go").unlink()
    found = run_tool(TOOL, environment)

    assert built.returncode == 0
    assert built.stdout.startswith(f"{tmp_path}/.cache/fleet/versitygw-")
    assert (found.returncode, found.stdout, found.stderr) == (0, built.stdout, "")


def test_tool_reports_absence_when_go_is_missing(environment: dict[str, str]) -> None:
    done = run_tool(TOOL, environment)

    assert (done.returncode, done.stdout) == (3, "")
    assert tells(done.stderr, "ABSENT", "go", "PATH")
