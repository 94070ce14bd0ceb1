"""`fleet state export` and `import`: all that a fleet remembers, from one place to another."""

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from fleet.engines.pulumi_state import open_objects
from fleet.ports import StackRecord
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.builders.sentences import tells
from tests.ports.engines import skip_without_cli
from tests.rigs.backends import backend, backend_url, postgres_url
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

__all__ = ["backend", "postgres_url"]

STACK = "trial-builders"
KEY = f".pulumi/stacks/fleet-sim/{STACK}.json"
CHECKPOINT = {"version": 3, "checkpoint": {"stack": STACK, "latest": {"manifest": {}}}}


def write(trial: Trial, state: str = "{}", desk: str = "boot: 1s") -> None:
    """Write fleet.yaml with one pool, and `state` as given."""
    more = f"state: {state}"
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, desk=desk, more=more))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fleet that has made two machines; it is copied, not changed."""
    trial = Trial(tmp_path_factory.mktemp("template"))
    write(trial)
    trial.init()
    trial.wait_for("1", "2")
    trial.apply()
    assert trial.do("state", "export", "--out", "state.json")[0] == 0
    return trial.folder


@pytest.fixture
def exported(template: Path, project: Path) -> Trial:
    """Return such a fleet, with all that it remembers in state.json."""
    shutil.copytree(template, project, dirs_exist_ok=True)
    return Trial(project)


def content(trial: Trial, name: str = "state.json") -> dict[str, Any]:
    """Return what a file of exported state holds, but for when it was written."""
    value: dict[str, Any] = json.loads((trial.folder / name).read_text())
    del value["exported"]
    return value


def test_export_moves_store_from_sqlite_to_postgresql_and_back(
    exported: Trial, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    write(exported, f"{{store: '{postgres_url}'}}")

    moved, _ = exported.do("state", "import", "state.json")
    settled = exported.settles()
    exported.do("state", "export", "--out", "later.json")
    (exported.folder / ".fleet/store.db").unlink()
    write(exported)
    back, _ = exported.do("state", "import", "later.json")

    assert (moved, back) == (0, 0)
    assert settled
    assert exported.settles()
    assert len(content(exported, "later.json")["store"]["runs"]) == 2
    assert exported.do("state", "show")[1].count("\nrun ") == 3


def test_export_moves_pulumi_stacks_from_files_to_every_backend(
    project: Path, backend: str
) -> None:
    trial = Trial(project)
    write(trial)
    trial.init()
    record = StackRecord(
        name=STACK, pool="builders", provider="desk", project="sim", engine="pulumi", serial=1
    )
    Store(sqlite_url(project / ".fleet/store.db"), "trial").record_stack(record)
    for path, text in (
        (f".fleet/{KEY}", json.dumps(CHECKPOINT)),
        (f".fleet/pulumi/work/fleet-sim/Pulumi.{STACK}.yaml", "encryptionsalt: v1:abc\n"),
    ):
        (project / path).parent.mkdir(parents=True)
        (project / path).write_text(text)
    trial.do("state", "export", "--out", "state.json")
    shutil.rmtree(project / ".fleet")
    write(trial, f"{{backend: '{backend}', passphrase: {{env: PASSPHRASE}}}}")

    trial.told("state", "import", "state.json")

    # A path of fleet.yaml is taken as it stands, a URL of Pulumi's is quoted.
    objects = open_objects(quote(backend, safe=":/") if backend[:4] == "file" else backend)
    assert objects is not None
    assert objects.keys(".pulumi/") == (".pulumi/meta.yaml", KEY)
    assert objects.read(".pulumi/meta.yaml") == b"version: 1\n"
    assert json.loads(objects.read(KEY) or b"") == CHECKPOINT
    (settings,) = project.parent.rglob(f"Pulumi.{STACK}.yaml")
    assert settings.read_text() == "encryptionsalt: v1:abc\n"


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["s3", "postgres"])
def test_pulumi_continues_after_import_into_another_backend(
    project: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    skip_without_cli()
    monkeypatch.setenv("PASSPHRASE", "a passphrase for tests")
    trial = Trial(project)
    real = "boot: 1s, engine: pulumi"
    write(trial, "{passphrase: {env: PASSPHRASE}}", real)
    trial.init()
    trial.wait_for("1")
    trial.apply()
    trial.do("state", "export", "--out", "state.json")
    for path in (".pulumi", "pulumi", "store.db"):
        (project / ".fleet" / path).rename(project / f"old-{path}")
    url = backend_url(request, kind)
    write(trial, f"{{backend: '{url}', passphrase: {{env: PASSPHRASE}}}}", real)

    trial.told("state", "import", "state.json")
    trial.wait_for("1", "2")
    said = trial.apply()

    assert tells(said, "1 created", "0 drained", "0 deleted")
    assert trial.machines() == trial.recorded() == ["trial-builders-0001", "trial-builders-0002"]
