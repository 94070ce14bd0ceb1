"""`validate` and commands with `--world` start, connect to and open nothing of fleet.yaml."""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.errors import Confined
from fleet.state.confined import confined
from tests.rigs.process import ROOT, clean_environment, fleet_command, run_process
from tests.rigs.repeats import slow_but

HOSTILE = """\
fleet: hostile
include: [fleet.d/*.yaml]
state:
  backend: "postgres://{host}/stacks"
  store: "postgresql://{host}/store"
  images: /etc
  passphrase: {{command: {touch}}}
members: {{file: link}}
providers:
  desk: {{kind: sim, path: /etc/passwd}}
  cloud: {{kind: hcloud, location: fsn1, token: {{command: {touch}}}}}
  other: {{kind: hcloud, location: nbg1, token: {{file: /etc/passwd}}}}
  amazon: {{kind: aws, region: eu-central-1}}
  own: {{kind: hooks, new: {touch}, delete: {touch}, list: {touch}, livecheck: {touch}}}
  here: {{kind: local, run: {touch}, path: pipe}}
queues:
  trial: {{kind: world, path: /dev/zero}}
  piped: {{kind: world, path: pipe}}
  linked: {{kind: world, path: link}}
  debian:
    {{kind: debusine, url: "http://{host}", scopes: [debian], token: {{command: {touch}}},
     admin: {touch}}}
  sql:
    {{kind: debusine, url: "http://{host}", scopes: [debian], token: {{file: pipe}},
     read: {{command: {touch}}}, admin: {{dsn: {{command: {touch}}}}}}}
  copr: {{kind: copr, url: "http://{host}", rules: {{url: "http://{host}/rules"}}}}
  coprs: {{kind: copr, url: "http://{host}", rules: {{file: /dev/zero}}}}
  tickets: {{kind: tickets}}
images:
  trixie:
    existing: {{desk: trixie, cloud: "1", other: "2", amazon: ami-1, own: trixie, here: trixie}}
  baked:
    suite: trixie
    architecture: amd64
    publish: ["file:///etc", "s3://bucket/x?endpoint=http://{host}"]
pools:
  builders:
    {{provider: desk, machine: ccx33, image: trixie, workers: {{max: 2, min: 1}}, serves: [trial]}}
  clouds:
    {{provider: cloud, machine: ccx33, image: trixie, workers: {{max: 2, min: 1}},
     serves: [debian]}}
  own:
    {{provider: own, machine: {{cores: 4, memory: 8GiB, price: 1 EUR/h}}, image: trixie,
     workers: {{max: 2, min: 1}}, serves: [debian]}}
"""
COMMANDS = [
    ("validate",),
    ("validate", "--world", "world.json"),
    ("plan", "--world", "world.json"),
    ("plan", "--world", "world.json", "--base", "base/fleet.yaml", "--markdown"),
    ("status", "--world", "world.json", "--site", "site"),
    ("explain", "request", "--all", "--world", "world.json"),
    ("explain", "pool", "clouds", "--world", "world.json"),
    ("machine", "list", "--world", "world.json"),
    ("check", "--world", "world.json", "--base", "base/fleet.yaml", "--junit", "junit.xml"),
    ("tags", "explain", "ada/ping/fedora-43/chromium", "--world", "world.json"),
]


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture
def hostile(tmp_path: Path, server: socket.socket) -> Path:
    """Return a folder whose fleet.yaml names a program, a pipe, a device, a link and a server."""
    folder = tmp_path / "hostile"
    (folder / "fleet.d").mkdir(parents=True)
    (folder / "base" / "fleet.d").mkdir(parents=True)
    touch = json.dumps(["touch", str(tmp_path / "canary")])
    host = f"127.0.0.1:{server.getsockname()[1]}"
    text = HOSTILE.format(touch=touch, host=host)
    (folder / "fleet.yaml").write_text(text, encoding="utf-8")
    (folder / "base" / "fleet.yaml").write_text(text, encoding="utf-8")
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    world = {"format": "fleet-world-1", "fleet": "hostile", "time": "2026-11-21T08:00:00Z"}
    (folder / "world.json").write_text(json.dumps(world), encoding="utf-8")
    return folder


@pytest.mark.parametrize("arguments", slow_but(COMMANDS[1:2], COMMANDS), ids=" ".join)
def test_hostile_fleet_yaml_runs_no_program_and_no_request(
    hostile: Path, server: socket.socket, arguments: tuple[str, ...]
) -> None:
    for folder in (hostile, hostile / "base"):
        (folder / "fleet.d" / "more.yaml").write_text("pools: {}\n", encoding="utf-8")

    done = run_process(*fleet_command(), *arguments, cwd=hostile, env=clean_environment(hostile))

    # 1: what the recording lacks is unknown.
    assert done.returncode in (0, 1), done.stderr
    assert "compare" not in done.stderr
    assert not (hostile.parent / "canary").exists()
    with pytest.raises(BlockingIOError):
        server.accept()


TARGETS = ("/etc/passwd", "/dev/zero", "pipe")


@pytest.mark.parametrize("target", slow_but(TARGETS[:1], TARGETS))
def test_include_that_leaves_the_folder_is_refused(hostile: Path, target: str) -> None:
    (hostile / "fleet.d" / "more.yaml").symlink_to(hostile / target)

    done = run_process(*fleet_command(), "validate", cwd=hostile, env=clean_environment(hostile))

    assert done.returncode == 1
    assert re.search(r"^fleet.(yaml:2:11|d/more.yaml:1:1): error", done.stdout)
    assert "root:" not in done.stdout + done.stderr


def start(_: Path) -> None:
    subprocess.run(["/bin/true"], check=False)


def spawn(_: Path) -> None:
    os.posix_spawn("/bin/true", ["true"], {})


def shell(_: Path) -> None:
    os.system("true")  # noqa: S605 - refused


def connect(_: Path) -> None:
    socket.create_connection(("127.0.0.1", 9))


def resolve(_: Path) -> None:
    socket.getaddrinfo("debusine.example.org", 443)


def send(_: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"secret", ("127.0.0.1", 9))


def store(folder: Path) -> None:
    sqlite3.connect(folder / "store.db")


def read_elsewhere(_: Path) -> None:
    Path("/etc/passwd").read_bytes()


def read_a_link(folder: Path) -> None:
    (folder / "link").read_bytes()


def read_a_device(_: Path) -> None:
    Path("/dev/zero").open("rb").close()


def write_beside(folder: Path) -> None:
    (folder / "new").write_text("", encoding="utf-8")


ACTS = (
    *(start, spawn, shell, connect, resolve, send, store),
    *(read_elsewhere, read_a_link, read_a_device, write_beside),
)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_confined_process_is_refused_before_access(
    hostile: Path, act: Callable[[Path], None]
) -> None:
    with confined([str(hostile)], []), pytest.raises(Confined):
        act(hostile)


def test_confined_process_reads_its_folder_and_named_files(hostile: Path, tmp_path: Path) -> None:
    recorded, report = tmp_path / "recorded" / "world.json", tmp_path / "out" / "report.json"
    recorded.parent.mkdir()
    recorded.write_text("{}", encoding="utf-8")
    report.parent.mkdir()

    with confined([str(hostile)], [str(recorded), str(report)]):
        assert (hostile / "fleet.yaml").read_text(encoding="utf-8")
        assert recorded.read_text(encoding="utf-8") == "{}"
        report.write_text("{}", encoding="utf-8")

    assert report.read_text(encoding="utf-8") == "{}"


LINKED = """\
import sys
from fleet.state.confined import confined
sys.prefix, folder, path = sys.argv[1:]
with confined([folder], []):
    open(path).close()
"""


@pytest.mark.parametrize(
    ("folder", "path", "code"),
    [("project", "link", 0), ("project", "x/../link/../passwd", 1), ("home", "link", 1)],
)
def test_only_packages_that_no_change_could_bring_may_be_links(
    tmp_path: Path, folder: str, path: str, code: int
) -> None:
    home = tmp_path / "home"
    for each in (home / "x", tmp_path / "project", tmp_path / "elsewhere"):
        each.mkdir(parents=True)
    (tmp_path / "elsewhere" / "module").write_text("", encoding="utf-8")
    (home / "link").symlink_to(tmp_path / "elsewhere" / "module")
    environment = clean_environment(tmp_path) | {"PYTHONPATH": str(ROOT)}

    read = run_process(
        *(sys.executable, "-c", LINKED, home, tmp_path / folder, home / path),
        cwd=tmp_path / "project",
        env=environment,
    )

    assert read.returncode == code, read.stderr
    assert ("Confined" in read.stderr) is bool(code)


LOADING = """\
import sys
from fleet.state.confined import confined
sys.path.append(sys.argv[1])
with confined([sys.argv[1]], []):
    import fresh
"""


def test_confined_process_loads_uncompiled_modules(tmp_path: Path) -> None:
    (tmp_path / "fresh.py").write_text("", encoding="utf-8")
    environment = clean_environment(tmp_path) | {
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "",
    }

    loaded = run_process(*(sys.executable, "-c", LOADING, tmp_path), cwd=tmp_path, env=environment)

    assert loaded.returncode == 0, loaded.stderr
    assert not (tmp_path / "__pycache__").exists()
