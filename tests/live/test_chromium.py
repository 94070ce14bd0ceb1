"""Chromium at a real Debusine: a rule of ours, its scheduler, a worker, and back to zero."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.docs.test_documents import Shell, changed, replayed, steady
from tests.live.debusine import Server
from tests.live.journal import Journal
from tests.live.project import Access, Project
from tests.live.test_image_requests import make_artifact
from tests.live.test_rules import make_collection, tags_of
from tests.live.workspace import Workspace, make_workspace
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT, fleet_command

PAGE = ROOT / "docs" / "walks" / "chromium-at-debusine.md"
RUN = "debusine-worker, --log-stderr"
SBUILD = """#!/bin/sh
sleep 3
echo 'Status: attempted' >chromium_146.0-1_amd64.build
exit 1
"""


class Trial(NamedTuple):
    """A folder for the page, the workspace that it is about, and what its words are here."""

    shell: Shell
    workspace: Workspace
    real: dict[str, str]


@pytest.fixture
def trial(server: Server, access: Access, tmp_path: Path) -> Trial:
    """Return a folder with the client and a build to ask for, in a scope with no other work."""
    browsers = make_workspace(server, "desktop", "browsers")
    make_collection(browsers)
    (tmp_path / "walk").mkdir()
    shell = Shell(tmp_path / "walk", fleet_command())
    shell.environment |= {
        "DEBUSINE_VIEWER": browsers.viewer,
        "DEBUSINE_OWNER": browsers.builder,
        "READ_DSN": access.reader,
        "ADMIN_DSN": access.admin,
    }
    give_client(shell, browsers)
    write_request(shell.project, browsers)
    run = a_machine(shell, browsers)
    return Trial(shell, browsers, {"https://debusine.example.org": browsers.server.url, RUN: run})


def test_chromium_is_built_by_a_real_debusine(
    project: Project, trial: Trial, journal: Journal, golden: Golden
) -> None:
    text = PAGE.read_text(encoding="utf-8")

    now = replayed(changed(text, trial.real), trial.shell)

    now = changed(now, {there: here for here, there in trial.real.items()})
    number = int((trial.shell.project / "request").read_text())
    assert journal.given_to([number]) == {"big-powerful-0001"}, now
    assert journal.retried([number]) == {}
    assert "worker:class:powerful" in tags_of(trial.workspace.server, number)
    assert journal.live_tokens("big") == []
    assert project.worker_processes() == []
    golden.compare(PAGE, now, settled)


def settled(text: str) -> str:
    """Return a page without the numbers of requests."""
    return steady(re.sub(r"(?m)^\d+$|(?<=debian/)\d+", "N", text))


def a_machine(shell: Shell, workspace: Workspace) -> str:
    """Return how a machine runs Debusine's worker, with an sbuild that gives up."""
    programs = write_programs(shell.folder / "programs", SBUILD)
    path = f"PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin"
    machine = ("env", "-i", path, "LC_ALL=C.UTF-8", "HOME={home}")
    return json.dumps(
        [*workspace.server.inside.entrance(), *machine, "debusine-worker", "--log-stderr"]
    )[1:-1]


def write_programs(folder: Path, sbuild: str) -> Path:
    """Write what a machine runs in place of a build, and return the folder."""
    folder.mkdir()
    for name, text in (("sbuild", sbuild), ("ip", "#!/bin/sh\n")):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def give_client(shell: Shell, workspace: Workspace) -> None:
    """Put Debusine's client on PATH, set up for the workspace's owner."""
    home = shell.folder / "owner"
    config = home / ".config/debusine/client/config.ini"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"[General]\ndefault-server = live\n[server:live]\n"
        f"api-url = {workspace.server.url}/api\nscope = {workspace.scope}\n"
        f"token = {workspace.builder}\n",
        encoding="utf-8",
    )
    inside = " ".join(workspace.server.inside.command("root", "env", f"HOME={home}", "debusine"))
    client = shell.folder / "bin" / "debusine"
    client.write_text(f'#!/bin/sh\nexec {inside} "$@"\n', encoding="utf-8")
    client.chmod(0o755)


def write_request(folder: Path, workspace: Workspace) -> None:
    """Upload a source package of that name and an environment, and write what names them."""
    data = make_build(workspace, "chromium", "146.0-1")
    (folder / "chromium.yaml").write_text(json.dumps(data), encoding="utf-8")


def make_build(workspace: Workspace, name: str, version: str) -> dict[str, Any]:
    """Upload a source package and an environment, and return the data of an sbuild of them."""
    named: dict[str, object] = {
        "name": name,
        "version": version,
        "type": "dpkg",
        "dsc_fields": {},
    }
    text = f"Format: 3.0 (native)\nSource: {name}\nArchitecture: any\nVersion: {version}\n"
    dsc = f"{name}_{version}.dsc"
    source = make_artifact(workspace, "debian:source-package", named, {dsc: text.encode()})
    system: dict[str, object] = {
        "filename": "system.tar.xz",
        "vendor": "debian",
        "codename": "sid",
        "mirror": "http://deb.example.org/debian",
        "components": ["main"],
        "pkglist": {},
        "architecture": "amd64",
        "with_dev": True,
        "with_init": False,
    }
    environment = make_artifact(
        workspace, "debian:system-tarball", system, {"system.tar.xz": b"an environment"}
    )
    return {
        "input": {"source_artifact": source},
        "environment": environment,
        "build_architecture": "amd64",
        "backend": "unshare",
    }
