"""Tools that print where a program is: found, built, or absent and why."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.builders.sentences import tells
from tests.rigs.tool import a_program, bare_environment, run_tool

pytestmark = pytest.mark.slow

PLUGIN = "pulumi-resource-hcloud"
A_CLI = "echo v3.255.0"


class Tool(NamedTuple):
    """A tool: how its program is named to it, what `go` makes, and where that is kept."""

    script: str
    variable: str
    go: str
    kept: str
    absent: tuple[str, ...]
    in_folder: str = ""
    """The program's name, where a folder is printed."""


TOOLS = {
    "cli": Tool(
        "pulumi_cli.py",
        "",
        f'printf "#!/bin/sh\\n{A_CLI}\\n" > "$GOBIN/pulumi"; /bin/chmod 700 "$GOBIN/pulumi"',
        "pulumi-3.255.0-",
        ("3.255.0", "ABSENT"),
    ),
    "plugins": Tool(
        "pulumi_plugins.py",
        "FLEET_PULUMI_PLUGINS",
        f'/bin/cp /bin/true "$GOBIN/{PLUGIN}"',
        "pulumi-plugins-",
        (PLUGIN, "ABSENT"),
        PLUGIN,
    ),
    "s3": Tool(
        "s3_server.py",
        "FLEET_S3_SERVER",
        '/bin/cp /bin/true "$GOBIN/versitygw"',
        "versitygw-",
        ("ABSENT",),
    ),
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    # Nothing listens there, so that a download fails at once, wherever the test runs.
    return bare_environment(tmp_path) | {"https_proxy": "http://127.0.0.1:9"}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_program_on_this_computer_is_used(
    tool: Tool, tmp_path: Path, environment: dict[str, str]
) -> None:
    place = tmp_path / "bin" / "pulumi"
    if tool.variable:
        place = tmp_path / "mine"
        environment[tool.variable] = str(place)
    if tool.in_folder:
        place.mkdir()
    a_program(place / tool.in_folder if tool.in_folder else place, A_CLI)

    done = run_tool(tool.script, environment)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{place}\n", "")


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_program_is_built_and_kept_when_download_fails(
    tool: Tool, tmp_path: Path, environment: dict[str, str]
) -> None:
    a_program(tmp_path / "bin" / "go", tool.go)

    built = run_tool(tool.script, environment)
    (tmp_path / "bin" / "go").unlink()
    found = run_tool(tool.script, environment)

    assert (built.returncode, found.returncode) == (0, 0)
    assert "download" in built.stderr or tool.variable == "FLEET_S3_SERVER"
    assert built.stdout.startswith(f"{tmp_path}/.cache/fleet/{tool.kept}")
    assert (found.stdout, found.stderr) == (built.stdout, "")


def test_program_is_built_once_when_two_processes_want_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    tool = TOOLS["cli"]
    a_program(tmp_path / "bin" / "go", f'echo built >> "$HOME/builds"; {tool.go}')

    with ThreadPoolExecutor() as both:
        done = list(both.map(lambda _: run_tool(tool.script, environment), range(2)))

    assert [each.returncode for each in done] == [0, 0]
    assert done[0].stdout == done[1].stdout
    assert (tmp_path / "builds").read_text() == "built\n"


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_tool_reports_absence_when_program_is_unavailable(
    tool: Tool, environment: dict[str, str]
) -> None:
    done = run_tool(tool.script, environment)

    assert (done.returncode, done.stdout) == (3, "")
    assert tells(done.stderr, *tool.absent)
    assert tells(done.stderr, "go", "PATH")


@pytest.mark.parametrize(
    ("tool", "go", "words"),
    [
        ("cli", "", ("/pulumi", os.strerror(errno.ENOENT))),
        ("plugins", f'/bin/cp /bin/false "$GOBIN/{PLUGIN}"', ()),
    ],
)
def test_unusable_build_is_discarded(
    tool: str, go: str, words: tuple[str, ...], tmp_path: Path, environment: dict[str, str]
) -> None:
    a_program(tmp_path / "bin" / "go", go)

    done = run_tool(TOOLS[tool].script, environment)

    assert done.returncode == 3
    assert tells(done.stderr, *words)
    assert [*tmp_path.glob(".cache/fleet/*")] == []


def test_official_release_of_plugin_precedes_build(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = '"$PULUMI_HOME/plugins/resource-hcloud-v1"'
    a_program(
        tmp_path / "bin" / "pulumi",
        f'if [ "$1" = version ]; then {A_CLI}; exit; fi\n'
        f"/bin/mkdir -p {folder}; /bin/cp /bin/true {folder}/{PLUGIN}",
    )

    done = run_tool("pulumi_plugins.py", environment)

    assert done.returncode == 0
    assert done.stdout.startswith(f"{tmp_path}/.cache/fleet/pulumi-plugins-")
    assert (Path(done.stdout.strip()) / PLUGIN).exists()
