"""Fill the tables of a real Debusine with a large queue, pools and workers.

Pools: eight architectures, five tasks, a class of size in one of four; one in five requires its
scope of requests. Requests: two scopes, 5,000 source packages, five priorities, one in ten asks
for a class. Workers: three in four run something.
"""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    import psycopg

ARCHITECTURES = ("amd64", "arm64", "riscv64", "ppc64el", "s390x", "armhf", "i386", "loong64")
TASKS = ("sbuild", "autopkgtest", "lintian", "piuparts", "mmdebstrap")
CLASSES = ("small", "medium", "big", "huge")
SCOPES = ("bench-debian", "bench-kali")
PRIORITIES = (0, 0, 0, 0, 10, 10, 50, -10)
PACKAGES = 5_000
_REQUEST = (
    "workspace_id, created_by_id, created_at, pending_at, status, result, task_type, task_name,"
    " task_data, priority_base, priority_adjustment, unblock_strategy, workflow_data,"
    " workflows_need_update, event_reactions, version, scheduler_tags_required,"
    " scheduler_tags_provided"
)


def tasks_of(number: int) -> tuple[str, ...]:
    """Return the tasks that workers of a pool run."""
    return TASKS[: 2 + number % 4]


def architecture_of(number: int) -> str:
    """Return the architecture of a pool."""
    return ARCHITECTURES[number % len(ARCHITECTURES)]


def tags_of(number: int) -> tuple[list[str], list[str]]:
    """Return what workers of a pool provide, their type and architecture aside, and require."""
    provides = ["worker:executor:unshare"]
    for task in tasks_of(number):
        provides += [f"worker:task:worker:{task}:version:1", f"worker:cap:{task}"]
    if number % 4 == 0:
        provides.append(f"worker:class:{CLASSES[number // 4 % len(CLASSES)]}")
    requires = [f"task:scope:{SCOPES[0]}"] if number % 5 == 4 else []  # noqa: PLR2004 - one in five
    return provides, requires


def add_pools(connection: "psycopg.Connection[Any]", count: int, *, most: int) -> None:
    """Insert pools that Debusine's own provisioner would launch machines of."""
    account = connection.execute(
        "INSERT INTO db_asset (category, data, created_at) VALUES"
        " ('debusine:cloud-provider-account', %s, now()) RETURNING id",
        (Jsonb({"provider_type": "dummy", "name": "bench"}),),
    ).fetchall()[0][0]
    for number in range(count):
        provides, requires = tags_of(number)
        provides.append(f"worker:build-arch:{architecture_of(number)}")
        connection.execute(
            "INSERT INTO db_workerpool (name, enabled, architectures, specifications,"
            " instance_wide, ephemeral, limits, registered_at, provider_account_id,"
            " static_metadata, dynamic_metadata)"
            " VALUES (%s, true, %s, %s, true, false, %s, now(), %s, %s, '{}')",
            (
                f"bench-{number:03}",
                Jsonb([architecture_of(number)]),
                Jsonb({"provider_type": "dummy", "features": []}),
                Jsonb({"max_active_instances": most}),
                account,
                Jsonb({"provided_tags": provides, "required_tags": requires}),
            ),
        )


def add_requests(connection: "psycopg.Connection[Any]", count: int) -> None:
    """Insert requests that wait, in workspaces of scopes of their own."""
    places = [_workspace(connection, scope) for scope in SCOPES]
    person = connection.execute("SELECT min(id) FROM db_user").fetchall()[0][0]
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY db_workrequest ({_REQUEST}) FROM STDIN") as copy,
    ):
        for row in _requests(count, places, person):
            copy.write_row(row)


def add_workers(connection: "psycopg.Connection[Any]", count: int, fleet: str) -> None:
    """Insert connected workers of a fleet, three in four of which run one of the requests."""
    connection.execute(
        "INSERT INTO db_token (hash, comment, created_at, enabled, token_type,"
        " explicit_grants_only, external_username, last_seen_at)"
        " SELECT encode(sha256(('bench' || n)::bytea), 'hex'), 'bench', now(), true, 'worker',"
        " false, '', now() FROM generate_series(1, %s) n",
        (count,),
    )
    provides, _ = tags_of(0)
    connection.execute(
        "INSERT INTO db_worker (name, registered_at, connected_at, token_id, static_metadata,"
        " dynamic_metadata, dynamic_metadata_updated_at, worker_type, concurrency)"
        " SELECT 'bench-w-' || n, now() - interval '1 day', now(), id,"
        " jsonb_build_object('fleet:fleet', %s::text, 'fleet:machine', 'bench-w-' || n),"
        " %s, now(), 'external', 1"
        " FROM (SELECT id, row_number() OVER () AS n FROM db_token WHERE comment = 'bench') t",
        (fleet, Jsonb({"provided_tags": [*provides, "worker:build-arch:amd64"]})),
    )
    connection.execute(
        "UPDATE db_workrequest r SET worker_id = w.id, status = 'running', started_at = now()"
        " FROM (SELECT id, row_number() OVER (ORDER BY id) n FROM db_worker"
        " WHERE name LIKE 'bench-w-%') w,"
        " (SELECT id, row_number() OVER (ORDER BY id) n FROM db_workrequest"
        " WHERE status = 'pending') q WHERE q.id = r.id AND q.n = w.n AND w.n % 4 <> 0"
    )


def _workspace(connection: "psycopg.Connection[Any]", scope: str) -> int:
    number = connection.execute(
        "INSERT INTO db_scope (name, label, icon, public) VALUES (%s, %s, '', true) RETURNING id",
        (scope, scope),
    ).fetchall()[0][0]
    found: int = connection.execute(
        "INSERT INTO db_workspace (name, public, default_expiration_delay, scope_id, created_at,"
        " description) VALUES ('builds', true, '30 days', %s, now(), '') RETURNING id",
        (number,),
    ).fetchall()[0][0]
    return found


def _requests(count: int, places: list[int], person: int) -> Iterator[tuple[object, ...]]:
    chance = random.Random(4)  # noqa: S311 - the same queue in every run
    for number in range(count):
        task, architecture = chance.choice(TASKS), chance.choice(ARCHITECTURES)
        required = [
            *("worker:type:external", "worker:executor:unshare", f"worker:cap:{task}"),
            *(f"worker:task:worker:{task}:version:1", f"worker:build-arch:{architecture}"),
            *([f"worker:class:{chance.choice(CLASSES)}"] if chance.random() < 0.1 else []),  # noqa: PLR2004 - one in ten
        ]
        package = f"package-{chance.randrange(PACKAGES)}"
        scope = number % len(SCOPES)
        provided = [
            *(f"task:scope:{SCOPES[scope]}", f"task:workspace:{SCOPES[scope]}:builds"),
            *(f"task:source-package:{package}", f"task:group:{SCOPES[scope]}::Members"),
        ]
        created = f"2026-11-{1 + number * 20 // count:02} {number % 24:02}:00:00+00"
        yield (
            *(places[scope], person, created, created, "pending", "", "Worker", task),
            *(Jsonb({"build_architecture": architecture, "package": package}),),
            *(chance.choice(PRIORITIES), 0, "deps", Jsonb({}), False, Jsonb({}), 0),
            *(sorted(required), sorted(provided)),
        )
