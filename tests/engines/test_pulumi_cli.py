"""A CLI that fits is found where a person or the tool has put it; an unfit one is named."""

import json
from pathlib import Path

import pytest

from fleet.clock import SystemClock
from fleet.clouds.sim.machines import SimCloud
from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi_cli import CliStack, Home, find_cli
from fleet.errors import EngineAbsent
from fleet.ports import StackRef


def a_cli(path: Path, answer: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o700)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


def test_cli_is_found_by_name_then_on_path_then_in_the_cache(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    cached = environment | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(EngineAbsent, match=r"tools/pulumi_cli.py.*engine: embedded"):
        find_cli(cached)
    kept = a_cli(tmp_path / "cache/fleet/pulumi-3.255.0-abc/bin/pulumi", "v3.255.0")
    assert find_cli(cached) == kept
    on_path = a_cli(tmp_path / "bin" / "pulumi", "v3.255.0")
    assert find_cli(cached) == find_cli(environment) == on_path
    assert find_cli(environment | {"HOME": "~no-such-user"}) == on_path
    named = a_cli(tmp_path / "my-pulumi", "v3.300.1")
    assert find_cli(cached | {"FLEET_PULUMI": str(named)}) == named


def test_version_of_cli_is_read_without_secrets(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", "made up")
    cli = a_cli(tmp_path / "bin" / "pulumi", "")
    cli.write_text('#!/bin/sh\necho "v3.255.0${CLOUD_TOKEN:+ and a secret}"\n')

    assert find_cli(environment) == cli


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("v3.200.0", r"is v3\.200\.0"),
        ("v4.0.0", r"v4\.0\.0"),
        ("", "no version"),
        ("3.255", "no version"),
    ],
)
def test_unsuitable_cli_is_named_until_it_is_replaced(
    tmp_path: Path, environment: dict[str, str], answer: str, says: str
) -> None:
    cli = a_cli(tmp_path / "bin" / "pulumi", "")
    cli.write_text(f"#!/bin/sh\ncat {tmp_path}/release\n")
    (tmp_path / "release").write_text(f"{answer}\n")
    with pytest.raises(EngineAbsent, match=says):
        find_cli(environment)

    (tmp_path / "release").write_text("v3.255.0\n")

    assert find_cli(environment) == cli


def test_cached_plugins_are_last_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "fleet/pulumi-plugins-0123/bin"
    kept.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("FLEET_PULUMI_PLUGINS", "/named")

    places = Home(tmp_path).environment("file:///state", "made up")["PATH"].split(":")

    assert places == ["/named", str(tmp_path / "plugins"), "/usr/bin", str(kept)]


class RewrittenStack(CliStack):
    """A stack without a CLI, which notes the mode of an imported file in a file beside it."""

    def _call_stack(self, *words: str) -> str:
        if words[0] == "import":
            mode = Path(words[2]).stat().st_mode & 0o777
            (self.home.folder / "mode").write_text(f"{mode:o}")
        return json.dumps({"deployment": {"pending_operations": [{}]}})


def test_rewritten_state_is_private_when_it_is_imported(tmp_path: Path) -> None:
    ref = StackRef(project="sim", name="debian-builders", provider="desk", pool="builders")
    account = ProviderAccount(SimCloud(tmp_path / "sim.json", SystemClock()))
    stack = RewrittenStack(
        "s3://bucket", Home(tmp_path), lambda: "made up", ref, lambda _: account
    )

    stack.forget_pending()

    assert (tmp_path / "mode").read_text() == "600"
    assert not (tmp_path / "debian-builders.rewritten.json").exists()
