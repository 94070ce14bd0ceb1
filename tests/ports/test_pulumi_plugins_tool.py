"""tools/pulumi_plugins.py prints the folder of Hetzner's plugin, builds it, or says why not."""

from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.tool import a_program, bare_environment, run_tool

pytestmark = pytest.mark.slow

TOOL = "pulumi_plugins.py"
NAME = "pulumi-resource-hcloud"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return bare_environment(tmp_path)


def test_named_plugin_folder_is_used(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "mine").mkdir()
    a_program(tmp_path / "mine" / NAME, "")

    done = run_tool(TOOL, environment | {"FLEET_PULUMI_PLUGINS": str(tmp_path / "mine")})

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/mine\n", "")


def test_official_release_precedes_build(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = '"$PULUMI_HOME/plugins/resource-hcloud-v1"'
    a_program(
        tmp_path / "bin" / "pulumi",
        'if [ "$1" = version ]; then echo v3.255.0; exit; fi\n'
        f"/bin/mkdir -p {folder}; /bin/cp /bin/true {folder}/{NAME}",
    )

    done = run_tool(TOOL, environment)

    assert done.returncode == 0
    assert done.stdout.startswith(f"{tmp_path}/.cache/fleet/pulumi-plugins-")
    assert (Path(done.stdout.strip()) / NAME).exists()


def test_program_is_built_and_kept_when_download_fails(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    a_program(tmp_path / "bin" / "go", f'/bin/cp /bin/true "$GOBIN/{NAME}"')

    built = run_tool(TOOL, environment)
    (tmp_path / "bin" / "go").unlink()
    found = run_tool(TOOL, environment)

    assert built.returncode == 0
    assert tells(built.stderr, "download", "Pulumi CLI")
    assert (found.returncode, found.stdout, found.stderr) == (0, built.stdout, "")


def test_tool_reports_absence_when_plugin_is_unavailable(environment: dict[str, str]) -> None:
    done = run_tool(TOOL, environment)

    assert (done.returncode, done.stdout) == (3, "")
    assert tells(done.stderr, NAME, "ABSENT")
    assert tells(done.stderr, "go", "PATH")


def test_build_that_does_not_start_is_discarded(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    a_program(tmp_path / "bin" / "go", f'/bin/cp /bin/false "$GOBIN/{NAME}"')

    done = run_tool(TOOL, environment)

    assert done.returncode == 3
    assert not (tmp_path / ".cache").exists()
