"""Measure fleet over a real Debusine's database, beside Debusine's own code.

100 pools and 100,000 pending requests, see `bench.debusine_rows`. `ours_*` is our whole decision:
demand and workers read over SQL with the role of `fleet debusine grants`, then planned and
guarded. `create_new_workers_*` is what Debusine's provisioner runs each minute, in its own
process on the same rows, with nothing launched, in a transaction that is undone. Of each the
quickest of its rounds counts; ours are run before and after theirs.
`demand_100k_x_2000_workers_s` is reading alone, with 2,000 workers, 1,500 of them busy.

It runs the server of `tests/live` in a chroot, which takes minutes to build the first time. Or it
uses one that runs: FLEET_BENCH_DSN is a DSN of a superuser to a database of Debusine that may be
filled and is not cleaned up, FLEET_BENCH_ADMIN the command that runs debusine-admin there.
"""

import gc
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import psycopg

from bench import debusine_rows
from bench.report import Report
from fleet.__main__ import COLLECTION
from fleet.guard import guard
from fleet.model.facts import Demand, Ledger, Listing, QueueReading, World
from fleet.queues.debusine.checkup import write_grants
from fleet.queues.debusine.database import DebusineDatabase
from fleet.reconcile import reconcile
from fleet.schema.model import DebusineQueue, Fleet

POOLS = 100
REQUESTS = 100_000
WORKERS = 2_000
MOST = 5
"""Machines that a pool may have, in both."""
ROUNDS = 3
THEIR_ROUNDS = 2
ROLE = "fleet_bench"
PASSWORD = "made-up"  # noqa: S105 - of a role of a throw-away database
_THEIRS = """
import json, time
from django.db import connections, transaction
connections["default"].settings_dict["NAME"] = {database!r}
connections["default"].close()
from debusine.db.context import context
from debusine.db.models import WorkerPool
from debusine.server.provisioning import create_new_workers

def run():
    asked = []
    WorkerPool.launch_workers = lambda pool, count, **_: asked.append(count)
    took = []
    for _ in range({rounds}):
        with transaction.atomic(), context.local(), context.disable_permission_checks():
            began = time.perf_counter()
            create_new_workers()
            took.append(time.perf_counter() - began)
            transaction.set_rollback(True)
    return {{"seconds": min(took), "asked": sum(asked)}}

print("bench:" + json.dumps(run()))
"""


@dataclass(frozen=True)
class Place:
    """A Debusine whose database may be filled."""

    dsn: str
    """Of a superuser."""
    admin: list[str]


def measure() -> Report:
    """Return seconds of both, from the same rows in the same run."""
    gc.set_threshold(*COLLECTION)
    floors = {"vs_create_new_workers": 20.0}
    try:
        with _place() as place:
            figures = measure_at(place)
    except _Impossible as reason:
        print(f"bench: NOTHING IS MEASURED: {reason}", file=sys.stderr)
        raise SystemExit(1) from None
    ours, theirs = figures["ours_100_pools_x_100k_s"], "create_new_workers_100_pools_x_100k_s"
    ratios = {"vs_create_new_workers": figures[theirs] / ours}
    return Report("debusine", figures, ratios, floors=floors)


def measure_at(place: Place) -> dict[str, float]:
    """Fill a database and return what both take."""
    with psycopg.connect(place.dsn) as connection:
        debusine_rows.add_pools(connection, POOLS, most=MOST)
        debusine_rows.add_requests(connection, REQUESTS)
        connection.execute(write_grants(ROLE).encode())
        connection.execute(f"ALTER ROLE {ROLE} PASSWORD '{PASSWORD}'".encode())
        reader = psycopg.conninfo.make_conninfo(place.dsn, user=ROLE, password=PASSWORD)
        database = connection.info.dbname
    _analyze(place)
    before = min(_decide(reader) for _ in range(ROUNDS))
    theirs = _theirs(place, database)
    # After it too: what else the computer does comes and goes within a minute.
    decided = min(before, *(_decide(reader) for _ in range(ROUNDS)))
    with psycopg.connect(place.dsn) as connection:
        debusine_rows.add_workers(connection, WORKERS, "bench")
    _analyze(place)
    read = min(_read(reader) for _ in range(ROUNDS))
    return {
        "ours_100_pools_x_100k_s": decided,
        "create_new_workers_100_pools_x_100k_s": theirs,
        "demand_100k_x_2000_workers_s": read,
    }


def _analyze(place: Place) -> None:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _decide(dsn: str) -> float:
    """Return the seconds of one whole decision."""
    fleet, now = _fleet(), datetime.now(tz=UTC)
    began = perf_counter()
    reading = _database(fleet, dsn).read(now)
    world = World(
        fleet=fleet.fleet,
        time=now,
        # The server's own pools are there to be compared with; side by side nothing is bought.
        queues={"bench": reading.model_copy(update={"rivals": ()})},
        providers={"cloud": Listing(read_at=now)},
        ledger=Ledger(charged_until=now),
    )
    plan = guard(fleet, reconcile(fleet, world))
    took = perf_counter() - began
    made = sum(action.action == "create" for action in plan.actions)
    if _count(reading) != REQUESTS or made == 0:
        raise SystemExit(f"bench: {_count(reading)} requests read, {made} machines made")
    return took


def _read(dsn: str) -> float:
    """Return the seconds of reading demand and workers."""
    database = _database(_fleet(), dsn)
    began = perf_counter()
    reading = database.read(datetime.now(tz=UTC))
    took = perf_counter() - began
    known = len(reading.workers) if isinstance(reading.workers, tuple) else 0
    if not _count(reading) or known < WORKERS:
        raise SystemExit(f"bench: {_count(reading)} requests and {known} workers read")
    return took


def _database(fleet: Fleet, dsn: str) -> DebusineDatabase:
    queue = fleet.queues["bench"]
    if not isinstance(queue, DebusineQueue):
        raise TypeError(queue)
    return DebusineDatabase(fleet, queue, dsn)


def _count(reading: QueueReading) -> int:
    """Return how many requests were read; says why where they were not."""
    if not isinstance(reading.demand, Demand):
        raise SystemExit(f"bench: {reading.demand.unknown}")
    return sum(request.count for request in reading.demand.requests)


def _fleet() -> Fleet:
    """Return a fleet with the same pools as the server's own."""
    pools = {}
    for number in range(POOLS):
        provides, requires = debusine_rows.tags_of(number)
        pools[f"pool-{number:03}"] = {
            "provider": "cloud",
            "machine": f"m-{debusine_rows.architecture_of(number)}",
            "image": debusine_rows.architecture_of(number),
            "provides": provides,
            "requires": requires,
            "workers": {"max": MOST},
        }
    size = {"cores": 8, "memory": "16GiB", "disk": "160GiB", "price": "0.2 EUR/h"}
    types = {f"m-{name}": {**size, "architecture": name} for name in debusine_rows.ARCHITECTURES}
    everything = {"create": {"share": "100%", "free_below": 100_000, "count": 100_000}}
    return Fleet.model_validate(
        {
            "fleet": "bench",
            "providers": {"cloud": {"kind": "sim", "types": types}},
            "queues": {
                "bench": {
                    "kind": "debusine",
                    "url": "http://127.0.0.1",
                    "scopes": list(debusine_rows.SCOPES),
                    # Without a way to make workers known, nothing would be bought.
                    "admin": ["debusine-admin"],
                }
            },
            "images": {
                n: {"suite": "trixie", "architecture": n} for n in debusine_rows.ARCHITECTURES
            },
            "pools": pools,
            "guards": {"throttle": everything},
        }
    )


def _theirs(place: Place, database: str) -> float:
    """Return the seconds of Debusine's own decision, its process started before."""
    script = _THEIRS.format(database=database, rounds=THEIR_ROUNDS)
    done = subprocess.run(
        [*place.admin, "shell", "-v0"],
        input=f"exec({script!r})\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    _, found, told = done.stdout.rpartition("bench:")
    if not found:
        raise SystemExit(f"bench: debusine-admin shell: {done.stdout}{done.stderr}")
    answer = json.loads(told.splitlines()[0])
    if answer["asked"] == 0:
        raise SystemExit("bench: Debusine's own code asked for no worker")
    return float(answer["seconds"])


class _Impossible(Exception):
    """There is no server to measure; the text says why."""


@contextmanager
def _place() -> Iterator[Place]:
    """Yield the server that the environment names, else one of our own."""
    dsn = os.environ.get("FLEET_BENCH_DSN")
    if dsn is not None:
        yield Place(dsn, shlex.split(os.environ.get("FLEET_BENCH_ADMIN", "debusine-admin")))
        return
    from tests.live.chroot import Impossible, built, locked
    from tests.live.debusine import OWNER, Server

    try:
        root = built()
        with locked(root), tempfile.TemporaryDirectory() as visible:
            server = Server(root, Path(visible))
            try:
                server.start()
                # What schedules would look at the same rows at the same time.
                for name in ("beat", "scheduler", "celery"):
                    server.inside.stop(name)
                server.superuser_sql(f'ALTER ROLE "{OWNER}" SUPERUSER')
                yield Place(server.dsn, server.admin_command)
            finally:
                server.stop()
    except Impossible as error:
        raise _Impossible(str(error)) from error
