"""Known secrets are planted wherever fleet is given one, and looked for in all that it leaves."""

import base64
import gzip
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
import zstandard

from fleet.engines.pulumi_cli import find_cli
from fleet.model.user_data import read_user_data
from simulators.hetzner.server import SimulatedHetzner
from tests.builders.sentences import tells
from tests.ports.engines import skip_without_cli
from tests.ports.hcloud_rig import skip_without_plugin
from tests.ports.registries import tables
from tests.ports.stores import postgres_url
from tests.rigs.canary import Place, find_leaks, in_files, in_processes
from tests.rigs.debusine_tables import RequestRow, Tables
from tests.rigs.local_machines import end_machines
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import clean_environment, fleet_command
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

__all__ = ["postgres_url", "tables"]

PASSWORD = "canary/in a+DSN&%é"
PLANTED = {
    "CLOUD_TOKEN": "canaryCloudToken" * 4,
    "QUEUE_TOKEN": "canary-queue-token/+=9f2c",
    "PASSPHRASE": "canary pass/phrase + 7 & ü?",
    "PGPASSWORD": "canary-libpq-password",
}
"""Environment variable to its secret; the DSN holds PASSWORD."""

TOKEN = re.compile(r"[0-9a-f]{64}")
HERE = "{provider: here, machine: process, image: sid, workers: {max: 2}}"
FAR = "{provider: far, machine: ccx33, image: debian, workers: {max: 2}}"
FLEET = """\
fleet: trial
state: {{store: "{store}", passphrase: {{env: PASSPHRASE}}}}
providers:
  here:
    kind: local
    path: machines
    run: [sleep, infinity]
    types: {{process: {{cores: 1, memory: 1GiB}}}}
  far: {{kind: hcloud, location: fsn1, token: {{env: CLOUD_TOKEN}}}}
queues:
  debian:
    kind: debusine
    url: {url}
    scopes: [debian]
    token: {{env: QUEUE_TOKEN}}
    read: {{env: DSN}}
    admin: {{dsn: {{env: DSN}}}}
images:
  sid: {{suite: sid, architecture: amd64, provides: ["worker:task:worker:noop:version:1"]}}
  debian:
    architecture: amd64
    existing: {{far: debian-13}}
    provides: ["worker:task:worker:noop:version:1"]
pools:
  builders: {{provider: here, machine: process, image: sid, workers: {{max: 2}}}}
"""


@pytest.fixture
def cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of all that is left behind; the environment holds every secret."""
    for name, secret in PLANTED.items():
        monkeypatch.setenv(name, secret)
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    for name in ("HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "TMPDIR"))
    return tmp_path


@pytest.fixture
def planted(
    project: Path,
    cleared: Path,
    tables: Tables,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Trial]:
    """Return a fleet that is given every secret there is."""
    del cleared
    secret = quote(PASSWORD, safe="")
    monkeypatch.setenv("DSN", postgres_url.replace("//fleet@", f"//fleet:{secret}@"))
    with Loopback(_repeat_secrets) as server:
        monkeypatch.setenv("HCLOUD_ENDPOINT", f"{server.url}/v1")
        trial = Trial(project)
        trial.write(FLEET.format(store=postgres_url, url=server.url))
        tables.add_requests([RequestRow(id=1), RequestRow(id=2)])
        yield trial
    end_machines(project)


def _repeat_secrets(received: Received) -> Answer:
    """Refuse, and say with which secret it was asked."""
    return Answer(401, json.dumps({"error": dict(received.headers)}).encode())


def _in_tables(tables: Tables) -> Iterator[Place]:
    """Yield every row of the database, the server's and the store's."""
    names = tables.connection.execute(
        "SELECT format('%I', table_name) FROM information_schema.tables"
        " WHERE table_schema = 'public'"
    ).fetchall()
    for (name,) in names:
        rows = tables.connection.execute(f"SELECT t::text FROM {name} t".encode()).fetchall()  # noqa: S608 - the test's own
        yield f"table {name}", "\n".join(row for (row,) in rows).encode()


# the canary itself


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(str.encode, id="as it is"),
        pytest.param(lambda text: base64.b64encode(text.encode()), id="base64"),
        pytest.param(lambda text: base64.b64encode(f"a{text}b".encode()), id="base64 after 1"),
        pytest.param(lambda text: base64.b64encode(f"ab{text}".encode()), id="base64 after 2"),
        pytest.param(
            lambda text: base64.urlsafe_b64encode(f"?>{text}".encode()), id="base64 for URLs"
        ),
        pytest.param(lambda text: quote(text, safe="").encode(), id="URL"),
        pytest.param(lambda text: quote(text).encode(), id="path of a URL"),
        pytest.param(lambda text: quote_plus(text).encode(), id="form"),
        pytest.param(lambda text: json.dumps(text).encode(), id="JSON"),
        pytest.param(lambda text: text.encode().hex().encode(), id="hex"),
        pytest.param(lambda text: gzip.compress(text.encode()), id="gzip"),
        pytest.param(lambda text: zstandard.compress(text.encode()), id="zstd"),
    ],
)
@pytest.mark.parametrize("secret", [PASSWORD, *PLANTED.values()])
def test_planted_secret_is_found_in_every_encoding(
    secret: str, write: Callable[[str], bytes], tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(write(secret))

    assert any(
        leak.startswith(f"SECRET in {tmp_path / 'file'}")
        for leak in find_leaks({"SECRET": secret}, in_files(tmp_path))
    )


def test_find_leaks_searches_databases_names_and_arguments(
    tmp_path: Path,
) -> None:
    secret = PLANTED["QUEUE_TOKEN"].replace("/", "_")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("CREATE TABLE t AS SELECT ? AS long", ["x" * 9000 + secret])
    (tmp_path / secret).touch()

    # Until a process runs, /proc may not know its arguments yet.
    runs = [sys.executable, "-c", "print(flush=True); input()", secret]
    with subprocess.Popen(runs, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        places = [*in_files(tmp_path), *in_processes(tmp_path)]
        process.kill()

    assert {
        f"SECRET in {tmp_path}/store.db (unpacked)",
        f"SECRET in the name of {tmp_path}/{secret}",
        f"SECRET in cmdline of process {process.pid}",
    } <= set(find_leaks({"SECRET": secret}, places))


# fleet


def test_files_rows_processes_and_messages_contain_no_secret(
    planted: Trial, tmp_path: Path, tables: Tables
) -> None:
    said = [
        planted.do(*command)[1]
        for command in (
            ("state", "init"),
            ("plan", "--json", "--out", "plan.json", "--gitlab-terraform-report", "gitlab.json"),
            ("apply", "--json"),
            ("plan", "--markdown"),
            ("status", "--json", "--site", "site"),
            ("doctor", "--json"),
            ("explain", "worker", "trial-builders-0001", "--json"),
            ("observe", "--out", "world.json"),
            ("observe", "--append", "history.jsonl.zst"),
            ("state", "show", "--json"),
            ("state", "export", "--out", "state.json"),
            ("machine", "delete", "--expired", "--json"),
        )
    ]

    given = sorted(planted.folder.glob("machines/*/home/.config/debusine/worker/activation-token"))
    tokens = {f"activation token {number}": path.read_text() for number, path in enumerate(given)}
    assert len(tokens) == 2
    leaks = find_leaks(
        PLANTED | {"PASSWORD": PASSWORD} | tokens,
        [
            ("what was said", "".join(said).encode()),
            *in_files(tmp_path, besides=given),
            *_in_tables(tables),
            *in_processes(tmp_path),
        ],
    )
    assert leaks == []


def test_failing_commands_print_no_secret(
    planted: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.do("state", "init")
    nowhere = f"postgresql://fleet:{quote(PASSWORD, safe='')}@127.0.0.1:1/debusine"
    monkeypatch.setenv("DSN", nowhere)
    said = [planted.do(command)[1] for command in ("plan", "apply", "doctor")]
    text = (planted.folder / "fleet.yaml").read_text()
    planted.write(text.replace("    read: {env: DSN}\n", ""))
    said += [planted.do(command)[1] for command in ("plan", "apply", "doctor")]

    assert tells(said[0], "port 1 failed", "Connection refused")
    assert " 401" in said[3]
    leaks = find_leaks(
        PLANTED | {"PASSWORD": PASSWORD},
        [("what was said", "".join(said).encode()), *in_files(tmp_path)],
    )
    assert leaks == []


# the memory of a process that crashes


def test_crash_leaves_no_core_dump(project: Path) -> None:
    trial = Trial(project)
    # Whoever is asked for the token ends fleet, as a defect in a library would.
    ask = "{command: [sh, -c, 'kill -ABRT $PPID']}"
    text = FLEET.format(store="postgresql://fleet@/postgres?host=/", url="http://127.0.0.1:1")
    trial.write(text.replace("{env: CLOUD_TOKEN}", ask))

    control = _end_of("sh", "-c", "kill -ABRT $$", folder=project)
    crashed = _end_of(*fleet_command(), "plan", folder=project)

    assert os.WTERMSIG(control) == os.WTERMSIG(crashed) == signal.SIGABRT
    assert not os.WCOREDUMP(crashed)
    if not os.WCOREDUMP(control):
        pytest.skip("NOT TESTED: this system makes no core dump of any process")


def _end_of(*command: str, folder: Path) -> int:
    """Run a program that may leave as large a core as it likes, and return how it ended."""
    unlimited = f"ulimit -c unlimited; exec {shlex.join(command)}"
    process = subprocess.Popen(
        ["sh", "-c", unlimited],
        cwd=folder,
        env=clean_environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    return status


# the real engine


@pytest.fixture
def watched(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleared: Path
) -> Iterator[Path]:
    """Return a folder that gets what every run of the CLI leaves behind for a moment.

    That is its temporary files, and the arguments of all processes when it began and ended.
    """
    del cleared
    skip_without_cli()
    kept = tmp_path / "kept"
    kept.mkdir()
    note = f'cat /proc/[0-9]*/cmdline >> {kept}/arguments 2>/dev/null; echo "$@" >> {kept}/cli'
    path = tmp_path / "bin" / "pulumi"
    path.parent.mkdir()
    path.write_text(
        f"""#!/bin/sh
{note}
[ "$1" = version ] || printenv DSN >> {kept}/of-others
{find_cli()} "$@"
code=$?
{note}
cp -r "$TMPDIR/." {kept}/temporary-$$
exit $code
"""
    )
    path.chmod(0o755)
    monkeypatch.setenv("FLEET_PULUMI", str(path))
    yield kept
    end_machines(project)


@pytest.mark.engine
def test_pulumi_engine_leaves_no_secret(project: Path, tmp_path: Path, watched: Path) -> None:
    trial = Trial(project)
    trial.write(
        fleet_yaml(
            pools={"builders": BUILDERS},
            desk="boot: 1s, engine: pulumi",
            more="state: {passphrase: {env: PASSPHRASE}}",
        )
    )
    trial.init()
    trial.wait_for("1", "2")
    said = [trial.apply()]
    trial.wait_for("1", "2", "3")
    said += [trial.apply(), trial.do("state", "export", "--out", "state.json")[1]]

    assert "1 created" in said[1]
    assert "up --yes" in (watched / "cli").read_text()
    leaks = find_leaks(PLANTED, [("what was said", "".join(said).encode()), *in_files(tmp_path)])
    assert leaks == []


@pytest.mark.engine
def test_token_of_server_is_only_in_its_user_data(
    planted: Trial, tmp_path: Path, tables: Tables, watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_plugin()
    with SimulatedHetzner() as api:
        for name, value in (("HCLOUD_ENDPOINT", api.endpoint), ("CLOUD_TOKEN", api.token)):
            monkeypatch.setenv(name, value)
        planted.write((planted.folder / "fleet.yaml").read_text().replace(HERE, FAR))
        said = [
            planted.do(*command)[1]
            for command in (("state", "init"), ("apply",), ("state", "export", "--out", "s.json"))
        ]
        given = [
            str(each.body["user_data"])
            for each in api.requests
            if (each.method, each.path) == ("POST", "/servers")
        ]

    tokens = [file.content for text in given for file in read_user_data(text).files]
    tokens = [text for text in tokens if TOKEN.fullmatch(text)]
    secrets = PLANTED | {"CLOUD_TOKEN": api.token, "PASSWORD": PASSWORD}
    secrets |= {f"token {number}": text for number, text in enumerate(tokens)}
    secrets |= {f"user data {number}": text for number, text in enumerate(given)}
    assert "Applied: 2 created" in said[1]
    assert len(tokens) == len(set(tokens)) == 2
    assert "up --yes" in (watched / "cli").read_text()
    leaks = find_leaks(
        secrets,
        [("what was said", "".join(said).encode()), *in_files(tmp_path), *_in_tables(tables)],
    )
    assert leaks == []
