"""A merge request's job without `--world` runs nothing, reads no secret, connects nowhere."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fleet.apply.config import refuse_untrusted
from fleet.errors import Confined, PlanRefused
from fleet.schema.model import Fleet, commands_in
from fleet.state.confined import announce_connection, unconnected
from tests.rigs.process import RunFleet, git

PLAIN = """\
fleet: team
providers:
  desk: {kind: sim}
queues:
  debian: {kind: debusine, url: "https://debusine.example.org", token: {env: TOKEN}, scopes: [a]}
images:
  trixie: {existing: {desk: trixie}}
pools:
  builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 2, min: 1}}
"""
MERGE_REQUEST = {"CI_MERGE_REQUEST_IID": "7"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a fleet.yaml, and that of the target branch."""
    for name in ("head", "base"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fleet.yaml").write_text(PLAIN, encoding="utf-8")
    return tmp_path / "head"


def change(folder: Path, old: str, new: str) -> None:
    path = folder / "fleet.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


COMMANDS = [
    ("plan",),
    ("plan", "--base", "../base/fleet.yaml"),
    ("apply",),
    ("status",),
    ("observe",),
    ("doctor",),
    ("explain", "pool", "builders"),
    ("machine", "delete", "--expired"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_program_named_by_merge_request_is_not_run(
    run_fleet: RunFleet, folder: Path, arguments: tuple[str, ...]
) -> None:
    canary = folder / "canary"
    change(folder, "{env: TOKEN}", json.dumps({"command": ["touch", str(canary)]}))

    done = run_fleet(*arguments, cwd=folder, env=MERGE_REQUEST)

    assert done.returncode == 4, done.stderr
    assert "queues.debian.token.command" in done.stderr
    assert not canary.exists()


EDITS = {
    "url": ("https://debusine.example.org", "https://evil.example.org", "queues.debian.token"),
    "variable": ("{env: TOKEN}", "{env: OTHER}", "queues.debian.token"),
    "file": ("{env: TOKEN}", "{file: /etc/passwd}", "queues.debian.token"),
    "notify": (
        "fleet: team\n",
        "fleet: team\nnotify: {webhook: {url: 'https://evil.example.org'}}\n",
        "notify.webhook",
    ),
    "store": ("fleet: team\n", "fleet: team\nstate: {store: 'postgresql://evil/x'}\n", "state"),
    "new": (
        "desk: {kind: sim}",
        "desk: {kind: sim}\n  more: {kind: hcloud, location: fsn1, token: {env: TOKEN}}",
        "providers.more.token",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_merge_request_sends_no_secret_to_new_address(
    run_fleet: RunFleet, folder: Path, edit: str
) -> None:
    old, new, path = EDITS[edit]
    change(folder, old, new)

    done = run_fleet("plan", "--base", "../base/fleet.yaml", cwd=folder, env=MERGE_REQUEST)

    assert done.returncode == 4, done.stderr
    assert any(line.split()[0] == path for line in done.stderr.splitlines()[1:])


def test_target_branch_permits_no_connection(run_fleet: RunFleet, folder: Path) -> None:
    done = run_fleet("plan", "--base", "../base/fleet.yaml", cwd=folder, env=MERGE_REQUEST)

    assert done.returncode == 4, done.stderr
    assert "queues.debian.url" in done.stderr


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


CONNECTING = {
    "copr": ("queues", "{{kind: copr, url: 'http://{host}'}}", "queues.new.url"),
    "copr rules": (
        "queues",
        "{{kind: copr, url: 'http://{host}', rules: {{url: 'http://{host}/any/path?x=1'}}}}",
        "queues.new.rules.url",
    ),
    "debusine": (
        "queues",
        "{{kind: debusine, url: 'http://{host}', scopes: [a]}}",
        "queues.new.url",
    ),
    "aws": ("providers", "{{kind: aws, region: eu-central-1}}", "providers.new"),
    "webhook": ("notify", "{{url: 'http://{host}/'}}", "notify.webhook"),
    "store": ("state", "'postgresql://{host}/store'", "state"),
}
SIM = """\
fleet: team
providers: {desk: {kind: sim}}
queues: {trial: {kind: world, path: w.json}}
images: {trixie: {existing: {desk: trixie}}}
pools: {builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 2}}}
"""


def with_connection(folder: Path, kind: str, server: socket.socket) -> str:
    """Write a fleet.yaml that names this server and no secret; return the key of its address."""
    section, value, key = CONNECTING[kind]
    host = f"127.0.0.1:{server.getsockname()[1]}"
    new = value.format(host=host)
    text = SIM
    if section in ("queues", "providers"):
        text = text.replace(f"{section}: {{", f"{section}: {{new: {new}, ")
    else:
        name = {"notify": "webhook", "state": "store"}[section]
        text += f"{section}: {{{name}: {new}}}\n"
    (folder / "fleet.yaml").write_text(text, encoding="utf-8")
    return key


@pytest.mark.parametrize("kind", CONNECTING)
def test_merge_request_opens_no_connection_without_a_world(
    run_fleet: RunFleet, folder: Path, server: socket.socket, kind: str
) -> None:
    key = with_connection(folder, kind, server)

    done = run_fleet("plan", cwd=folder, env=MERGE_REQUEST)

    assert done.returncode == 4, done.stderr
    assert any(line.split()[0] == key for line in done.stderr.splitlines()[1:])
    with pytest.raises(BlockingIOError):
        server.accept()


CONNECTS = [
    *COMMANDS,
    ("check",),
    ("simulate",),
    ("tags", "explain", "ada/ping/fedora-43/chromium"),
    ("machine", "list"),
    ("state", "orphans"),
    ("freeze", "--pool", "builders", "--for", "1h", "--reason", "x"),
    ("prices", "check"),
    ("debusine", "grants", "--check"),
    ("import", "debusine", "--dsn-env", "DSN"),
    ("import", "debusine", "--admin", "touch", "canary"),
    ("ticket", "list"),
    ("ticket", "close", "1", "--server", "http://HOST"),
    ("image", "list"),
    ("serve", "--listen", "127.0.0.1:0"),
    ("log",),
    ("report", "--month", "2026-10"),
]


@pytest.mark.parametrize(
    "variable",
    [
        "CI_MERGE_REQUEST_IID",
        "CI_EXTERNAL_PULL_REQUEST_IID",
        "GITHUB_HEAD_REF",
        "FLEET_UNTRUSTED",
    ],
)
def test_plan_opens_no_connection_when_variable_names_a_request(
    run_fleet: RunFleet, folder: Path, server: socket.socket, variable: str
) -> None:
    with_connection(folder, "copr rules", server)

    done = run_fleet("plan", cwd=folder, env={variable: "7"})

    assert done.returncode == 4, done.stderr
    with pytest.raises(BlockingIOError):
        server.accept()


@pytest.mark.parametrize("arguments", CONNECTS, ids=" ".join)
def test_commands_of_merge_request_open_no_connection(
    run_fleet: RunFleet, folder: Path, server: socket.socket, arguments: tuple[str, ...]
) -> None:
    with_connection(folder, "copr rules", server)
    host = f"127.0.0.1:{server.getsockname()[1]}"
    given = [each.replace("HOST", host) for each in arguments]

    done = run_fleet(
        *given, cwd=folder, env=MERGE_REQUEST | {"DSN": f"postgresql://{host}/debusine"}
    )

    assert done.returncode == 4, done.stderr
    assert not (folder / "canary").exists()
    with pytest.raises(BlockingIOError):
        server.accept()


def test_unconnected_reports_a_swallowed_attempt(server: socket.socket) -> None:
    with (
        pytest.raises(Confined, match=r"socket\.connect"),
        unconnected(),
        socket.socket() as client,
        suppress(Confined),
    ):
        client.connect(server.getsockname())


WAYS: dict[str, Callable[[], object]] = {
    "libpq": lambda: announce_connection("postgresql://db.example.org/store"),
    "program": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "name": lambda: socket.getaddrinfo("localhost", 80),
}


@pytest.mark.parametrize("way", WAYS)
def test_unconnected_process_cannot_reach_a_server(way: str) -> None:
    with pytest.raises(Confined), unconnected():
        WAYS[way]()


@pytest.mark.parametrize("trick", ["none", "a file of its name", "a repository in it"])
@pytest.mark.parametrize("command", [("plan", "--base"), ("simulate", "--against")], ids=" ".join)
def test_revision_permits_no_program_and_no_connection(
    run_fleet: RunFleet, folder: Path, command: tuple[str, ...], trick: str
) -> None:
    """What git takes a name for is up to the files of a merge request."""
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "fleet.yaml")
    git(folder, "commit", "--quiet", "-m", "before")
    if trick == "a file of its name":
        (folder / "main").write_bytes((folder / "fleet.yaml").read_bytes())
    elif trick == "a repository in it":
        git(folder, "clone", "--quiet", "--bare", ".", "bare")
        for each in (folder / "bare").iterdir():
            each.rename(folder / each.name)
    change(folder, "debusine.example.org", "elsewhere.example.org")

    done = run_fleet(*command, "main", cwd=folder, env=MERGE_REQUEST)

    assert (done.returncode, "queues.debian.token" in done.stderr) == (4, True), done.stderr


def test_fleet_yaml_is_trusted_outside_of_merge_requests(
    run_fleet: RunFleet, folder: Path
) -> None:
    done = run_fleet("plan", cwd=folder)

    assert done.returncode == 1, done.stderr


def test_every_command_that_fleet_yaml_may_name_is_found() -> None:
    run = ["touch", "canary"]
    value = {
        "fleet": "team",
        "state": {"passphrase": {"command": run}},
        "providers": {
            "own": {"kind": "hooks", "new": run, "delete": run, "list": run, "release": run},
            "here": {"kind": "local", "run": run},
        },
        "queues": {
            "debian": {
                "kind": "debusine",
                "url": "https://debusine.example.org",
                "scopes": ["a"],
                "admin": run,
                "read": {"command": run},
            }
        },
    }

    fleet = Fleet.model_validate(value)

    assert sorted(commands_in(fleet)) == [
        "providers.here.run",
        "providers.own.delete",
        "providers.own.list",
        "providers.own.new",
        "providers.own.release",
        "queues.debian.admin",
        "queues.debian.read.command",
        "state.passphrase.command",
    ]


def test_program_is_refused_when_target_branch_has_it(tmp_path: Path) -> None:
    """The program itself may be a file of the merge request."""
    value = {"fleet": "team", "providers": {"here": {"kind": "local", "run": ["./worker"]}}}
    fleet = Fleet.model_validate(value)

    with pytest.raises(PlanRefused, match=r"providers\.here\.run "):
        refuse_untrusted(fleet, fleet, tmp_path)
