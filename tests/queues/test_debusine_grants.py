"""The rights of fleet's roles: what is granted is what is needed, and a check says so."""

import psycopg
import pytest

from fleet.queues.debusine.checkup import GrantDifference, compare, write_grants
from fleet.queues.debusine.connection import reading
from fleet.queues.debusine.database import launching_pools, list_by_sql
from tests.builders import a_fleet
from tests.queues.conftest import READER, Debusine
from tests.rigs.debusine_tables import RequestRow

EVERYTHING = {
    "powerful": [{"match": "debian/.*", "ask": ["big"]}],
    "tags": {"memory_gib": {"kind": "number"}, "big": {"limits": {"per": {"submitter": 1}}}},
    "derive": [
        {"history": {"of": "memory"}, "ask": "memory_gib>={value}"},
        {"from": "environment_id", "lookup": "environments", "ask": "a:{value.architecture}"},
    ],
}


def standing(debusine: Debusine, *, admin: bool = False) -> GrantDifference:
    with reading(debusine.reader) as connection:
        return compare(connection, admin=admin)


def test_granted_role_has_exactly_the_required_rights(debusine: Debusine) -> None:
    assert standing(debusine) == GrantDifference(role=READER, missing=(), excess=())
    missing = standing(debusine, admin=True).missing
    assert "UPDATE on db_workrequest (started_at, status, worker_id)" in missing
    assert {line.split()[0] for line in missing} == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    execute = debusine.tables.connection.execute
    execute(f"DROP OWNED BY {READER}; DROP ROLE {READER}".encode())

    execute(write_grants(READER, admin=True).encode())

    assert standing(debusine, admin=True) == GrantDifference(role=READER, missing=(), excess=())
    assert write_grants('a"b').startswith('CREATE ROLE "a""b" LOGIN;\n')


def test_granted_rights_suffice_for_all_reads(debusine: Debusine) -> None:
    package = ("task:source-package:linux",)
    debusine.tables.add_requests([RequestRow(1, provided=package)])
    debusine.add_worker("w-1")

    assert len(debusine.demand(a_fleet(**EVERYTHING)).requests) == 1
    assert list(debusine.workers(a_fleet(**EVERYTHING))) == ["w-1"]
    assert list_by_sql(debusine.reader, limit=1000) == b"[]\n"


@pytest.mark.parametrize(
    ("statement", "missing", "excess"),
    [
        (
            "REVOKE SELECT (result) ON db_workrequest FROM {}",
            "SELECT on db_workrequest (result)",
            "",
        ),
        ("REVOKE USAGE ON SCHEMA public FROM {}", "USAGE on the schema", ""),
        ("GRANT SELECT (hash) ON db_token TO {}", "", "SELECT on db_token (hash)"),
        ("GRANT DELETE ON db_worker TO {}", "", "DELETE on db_worker"),
        ("GRANT UPDATE (status) ON db_workrequest TO {}", "", "UPDATE on db_workrequest (status)"),
        ("ALTER ROLE {} CREATEDB", "", "CREATEDB"),
        ("ALTER ROLE {} SUPERUSER", "", "SUPERUSER"),
        ("GRANT CREATE ON SCHEMA public TO {}", "", "CREATE on the schema"),
    ],
)
def test_difference_of_rights_is_named(
    debusine: Debusine, statement: str, missing: str, excess: str
) -> None:
    debusine.tables.connection.execute(statement.format(READER).encode())

    found = standing(debusine)

    assert missing in (found.missing or ("",))
    assert excess in (found.excess or ("",))
    assert bool(found.missing) == bool(missing)
    assert bool(found.excess) == bool(excess)


def test_read_connection_cannot_write_with_any_role(debusine: Debusine) -> None:
    with (
        reading(debusine.url) as connection,
        pytest.raises(psycopg.errors.ReadOnlySqlTransaction),
        connection.transaction(),
    ):
        connection.execute("DELETE FROM db_worker")


@pytest.mark.parametrize(
    ("pool", "linked", "launching"),
    [
        ({"instance_wide": True}, False, ("p",)),
        ({"instance_wide": False}, True, ("p",)),
        ({"instance_wide": False}, False, ()),
        ({"instance_wide": True, "enabled": False}, True, ()),
    ],
)
def test_server_pools_launch_when_a_scope_enables_them(
    debusine: Debusine, pool: dict[str, object], *, linked: bool, launching: tuple[str, ...]
) -> None:
    debusine.tables.add_pool(1, "p", pool)
    debusine.tables.connection.execute(
        "INSERT INTO db_scopeworkerpool (id, scope_id, worker_pool_id) SELECT 1, 1, 1 WHERE %s",
        (linked,),
    )

    with reading(debusine.reader) as connection:
        assert launching_pools(connection) == launching
