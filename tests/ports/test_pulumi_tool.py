"""tools/pulumi_cli.py prints a CLI's path, builds one where it can, or says there is none."""

import errno
import os
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.tool import a_program, bare_environment, run_tool

TOOL = "pulumi_cli.py"
A_CLI = "echo v3.255.0"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    # Nothing listens there, so that the download fails at once, wherever the test runs.
    return bare_environment(tmp_path) | {"https_proxy": "http://127.0.0.1:9"}


def test_tool_prints_cli_on_path(tmp_path: Path, environment: dict[str, str]) -> None:
    a_program(tmp_path / "bin" / "pulumi", A_CLI)

    done = run_tool(TOOL, environment)

    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/bin/pulumi\n")
    assert done.stderr == ""


@pytest.mark.slow
def test_program_is_built_and_kept_when_download_fails(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    go = 'printf "#!/bin/sh\\necho v3.255.0\\n" > "$GOBIN/pulumi"\n'
    a_program(tmp_path / "bin" / "go", go + '/bin/chmod 700 "$GOBIN/pulumi"\n')

    built = run_tool(TOOL, environment)
    (tmp_path / "bin" / "go").unlink()
    found = run_tool(TOOL, environment)

    assert built.returncode == 0
    assert "download: " in built.stderr
    assert built.stdout.startswith(f"{tmp_path}/.cache/fleet/pulumi-3.255.0-")
    assert (found.returncode, found.stdout) == (0, built.stdout)


@pytest.mark.slow
def test_tool_reports_absence_when_cli_is_unavailable(environment: dict[str, str]) -> None:
    done = run_tool(TOOL, environment)

    assert (done.returncode, done.stdout) == (3, "")
    assert tells(done.stderr, "3.255.0", "ABSENT")
    assert tells(done.stderr, "go", "PATH")


@pytest.mark.slow
def test_unusable_build_is_discarded(tmp_path: Path, environment: dict[str, str]) -> None:
    a_program(tmp_path / "bin" / "go", "")

    done = run_tool(TOOL, environment)

    assert done.returncode == 3
    assert tells(done.stderr, "/pulumi", os.strerror(errno.ENOENT))
    assert not (tmp_path / ".cache").exists()
