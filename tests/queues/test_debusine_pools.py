"""A Debusine server's own worker pools: by its admin command, and from its database."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fleet.errors import SourceUnreachable
from fleet.migrate.from_debusine import import_debusine
from fleet.migrate.reading import LIMIT
from fleet.queues.debusine.database import list_by_command, list_by_sql
from fleet.schema.model import DebusineQueue, Pool
from fleet.tagrules.debusine import WorkerRow
from tests.builders.sentences import tells
from tests.migrate.reading import fleet_of, said
from tests.rigs import postgres
from tests.rigs.debusine_tables import Tables
from tests.rigs.process import ROOT

LISTING = ROOT / "tests/fixtures/debusine-0.16.2/worker_pool-list.yaml"
HETZNER = {"provider_type": "hetzner", "server_type": "cax21", "image_name": "debian-13"}
REPORTED = ["worker:build-arch:arm64", "worker:cap:sbuild", "worker:class:big"]


def admin(tmp_path: Path, *lines: str) -> list[str]:
    """Return a debusine-admin that does this, and knows no other arguments than ours."""
    script = tmp_path / "debusine-admin.py"
    asked = 'assert sys.argv[1:] == ["worker_pool", "list", "--yaml"]'
    script.write_text("\n".join(["import sys, time", asked, *lines]), encoding="utf-8")
    return [sys.executable, str(script)]


@pytest.mark.parametrize(
    ("lines", "said_"),
    [
        (["sys.exit(3)"], "ended with status 3"),
        (["print('- name: x', flush=True)", "sys.exit(1)"], "ended with status 1"),
        ([], "printed nothing; expected a list"),
        (
            ["while True: print('y' * 9999)"],
            "printed more than 1000000 bytes and was stopped",
        ),
    ],
)
def test_command_without_list_is_an_error(tmp_path: Path, lines: list[str], said_: str) -> None:
    with pytest.raises(SourceUnreachable) as failed:
        list_by_command(admin(tmp_path, *lines), limit=LIMIT)

    assert str(failed.value).endswith(f"debusine-admin.py worker_pool list --yaml {said_}")


def test_admin_command_lists_server_pools_unless_missing_or_hanging(tmp_path: Path) -> None:
    command = admin(tmp_path, f"sys.stdout.write(open({str(LISTING)!r}).read())")
    assert list_by_command(command, limit=LIMIT) == LISTING.read_bytes()
    began = time.monotonic()

    with pytest.raises(SourceUnreachable, match="PATH"):
        list_by_command(["no-such-program"], limit=LIMIT)
    with pytest.raises(SourceUnreachable, match=r"0\.5s"):
        list_by_command(admin(tmp_path, "time.sleep(600)"), limit=LIMIT, seconds=0.5)

    assert time.monotonic() - began < 30


@pytest.fixture(scope="module")
def server(postgres_server: str) -> Iterator[tuple[str, Tables]]:
    """Return the address of a database, and Debusine's tables in it; or skip loudly."""
    with (
        postgres.database(postgres_server) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        tables = Tables(connection)
        tables.create()
        connection.execute("GRANT USAGE ON SCHEMA public TO public")
        for number, scope in enumerate(("debian", "kali"), start=1):
            connection.execute("INSERT INTO db_scope VALUES (%s, %s)", (number, scope))
        tables.add_pool(
            1,
            "arm",
            {
                "architectures": ["arm64"],
                "specifications": HETZNER,
                "limits": {"max_active_instances": 4},
                "static_metadata": {
                    "provided_tags": ["worker:class:big", "team:kernel"],
                    "required_tags": ["task:scope:debian"],
                },
            },
        )
        tables.add_pool(
            2,
            "shared",
            {
                "architectures": ["riscv64"],
                "specifications": {"provider_type": "dummy"},
                "instance_wide": True,
                "enabled": False,
            },
        )
        connection.execute("INSERT INTO db_scopeworkerpool VALUES (1, 1, 1)")
        tables.add_workers(
            {1: WorkerRow("external", {}, {"provided_tags": REPORTED})}, {1: "arm-001"}
        )
        connection.execute("UPDATE db_worker SET worker_pool_id = 1")
        yield url, tables


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresqlx//me:s3cret@host/debusine",
        "postgresql://me:x@s3cret@host/debusine",
        "postgresql://me:s3cret@127.0.0.1:s3cret/debusine",
        "postgresql://me:s3cret@/debusine?host=/nowhere",
        "",
    ],
)
def test_unreachable_dsn_error_hides_password(dsn: str) -> None:
    with pytest.raises(SourceUnreachable) as failed:
        list_by_sql(dsn or "host=/nowhere", limit=LIMIT)

    assert "s3cret" not in str(failed.value)


def test_pools_are_imported_with_changes_and_to_dos(
    server: tuple[str, Tables],
) -> None:
    imported = import_debusine("db_workerpool", list_by_sql(server[0], limit=LIMIT), "demo")

    fleet = fleet_of(imported)
    pool, shared, queue = fleet.pools["arm"], fleet.pools["shared"], fleet.queues["debusine"]
    assert isinstance(pool, Pool)
    assert isinstance(shared, Pool)
    assert isinstance(queue, DebusineQueue)
    assert (pool.provides, pool.requires) == (["team:kernel"], ["task:scope:debian"])
    assert (pool.provider, pool.workers.max) == ("hetzner-7", 4)
    image = fleet.images[pool.image]
    assert image.provides == ["worker:build-arch:arm64", "worker:cap:sbuild"]
    architectures = (image.architecture, fleet.images[shared.image].architecture)
    assert (architectures, queue.scopes) == (("arm64", "riscv64"), ["debian", "kali"])
    (changed,) = said(imported, "changed")
    assert tells(changed, "1", "pool arm", "worker:class:big")
    assert any(tells(each, "1", "scopes debian") for each in said(imported, "no-equivalent"))
    assert any(tells(each, "image dummy", "`provides`") for each in said(imported, "to-do"))


def test_import_needs_only_rights_to_read_pool_tables(server: tuple[str, Tables]) -> None:
    url, tables = server
    tables.connection.execute(
        "CREATE ROLE stranger LOGIN; CREATE ROLE lists_pools LOGIN; GRANT SELECT ON "
        "db_workerpool, db_worker, db_scope, db_scopeworkerpool TO lists_pools"
    )

    listing = list_by_sql(url.replace("//fleet@", "//lists_pools@"), limit=LIMIT)
    with pytest.raises(SourceUnreachable) as refused:
        list_by_sql(url.replace("//fleet@", "//stranger@"), limit=LIMIT)

    assert b'"name": "arm"' in listing
    assert tells(str(refused.value), "denied", "db_workerpool", "fleet debusine grants", "--check")


def test_import_refuses_other_database_and_too_long_listing(
    server: tuple[str, Tables], postgres_server: str
) -> None:
    with pytest.raises(SourceUnreachable, match=r'Debusine \(0\.16\).*relation "db_workerpool"'):
        list_by_sql(postgres_server, limit=LIMIT)
    with pytest.raises(SourceUnreachable, match="100 bytes"):
        list_by_sql(server[0], limit=100)
