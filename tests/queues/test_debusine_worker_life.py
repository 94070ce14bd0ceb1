"""What fleet writes about a worker is what it reads of it, from its enrolment to its end."""

import json

import pytest

from fleet.model.facts import QueueReading, Worker, WorkerState
from fleet.queues.debusine.database import DebusineDatabase
from fleet.schema.model import DebusineQueue
from tests.builders import NOW, a_fleet
from tests.ports.registries import WORKER, DebusinePlace, a_channel, an_enrolment, tables
from tests.ports.stores import postgres_url
from tests.rigs.debusine_tables import Tables

__all__ = ["postgres_url", "tables"]


class Life(DebusinePlace):
    """A place whose workers can be read as well."""

    def __init__(self, tables: Tables, url: str) -> None:
        super().__init__(tables, a_channel("sql", url))
        self.url = url

    def read(self) -> QueueReading:
        """Return what is read of the server."""
        queue = DebusineQueue(
            kind="debusine", url="https://debusine.example.org", scopes=["debian"]
        )
        self.ask("INSERT INTO db_scope VALUES (1, 'debian') ON CONFLICT DO NOTHING")
        return DebusineDatabase(a_fleet(fleet="debian"), queue, self.url).read(NOW)

    def workers(self) -> dict[str, Worker]:
        """Return what the reader says of each worker."""
        read = self.read().workers
        assert isinstance(read, tuple), read
        return {worker.name: worker for worker in read}

    def enrol(self) -> str:
        """Enrol the worker with its pool's tag."""
        return self.registry.enrol(an_enrolment())

    def come_up(self) -> None:
        """Have the worker register, and say what it can do."""
        assert self.register(WORKER, self.enrol())
        self.ask(
            "UPDATE db_worker SET dynamic_metadata = %s::jsonb,"
            " dynamic_metadata_updated_at = now()",
            json.dumps({"provided_tags": ["worker:cap:sbuild"]}),
        )


@pytest.fixture
def life(tables: Tables, postgres_url: str) -> Life:
    return Life(tables, postgres_url)


def test_enrolled_worker_is_awaited(life: Life) -> None:
    life.enrol()

    worker = life.workers()[WORKER]
    assert (worker.machine, worker.pool, worker.static) == (WORKER, "builders", False)
    assert worker.state is WorkerState.ENROLLED
    assert worker.token_expires is not None


def test_registered_worker_without_metadata_is_deaf(life: Life) -> None:
    life.register(WORKER, life.enrol())

    assert life.workers()[WORKER].state is WorkerState.DEAF


def test_running_worker_provides_reported_tags_and_pool_class(life: Life) -> None:
    life.come_up()

    worker = life.workers()[WORKER]
    assert worker.state is WorkerState.IDLE
    assert {"worker:cap:sbuild", "worker:class:big"} <= set(worker.provides)


def test_drained_worker_is_reported_as_draining(life: Life) -> None:
    life.come_up()

    life.registry.drain(WORKER)

    assert life.workers()[WORKER].draining


def test_disabled_worker_is_disabled_while_connected(life: Life) -> None:
    life.come_up()

    life.registry.disable(WORKER)

    assert life.workers()[WORKER].state is WorkerState.DISABLED


def test_revoked_worker_is_disabled(life: Life) -> None:
    life.enrol()

    life.registry.revoke(WORKER)

    assert life.workers()[WORKER].state is WorkerState.DISABLED


def test_reused_row_is_a_new_worker(life: Life) -> None:
    life.come_up()
    life.registry.drain(WORKER)
    life.registry.disable(WORKER)

    life.enrol()

    worker = life.workers()[WORKER]
    assert (worker.state, worker.draining, worker.uses) == (WorkerState.ENROLLED, False, 0)


def test_machine_registered_twice_has_one_worker(life: Life) -> None:
    life.come_up()
    life.ask(
        "INSERT INTO db_worker (name, static_metadata, dynamic_metadata, worker_type, concurrency)"
        " VALUES (%s, '{}', '{}', 'external', 1)",
        f"{WORKER}-2",
    )

    workers = life.workers()
    assert (workers[WORKER].machine, workers[f"{WORKER}-2"].machine) == (WORKER, None)
    assert workers[f"{WORKER}-2"].static


def test_enabled_linked_or_open_server_pools_are_rivals(life: Life) -> None:
    for number, name, own in (
        (1, "open", {"instance_wide": True}),
        (2, "linked", {}),
        (3, "closed", {}),
        (4, "off", {"instance_wide": True, "enabled": False}),
    ):
        life.tables.add_pool(number, name, own)
    life.ask("INSERT INTO db_scopeworkerpool VALUES (1, 1, 2)")

    assert life.read().rivals == ("linked", "open")


def test_request_of_late_scheduler_pass_is_released_by_later_run(
    life: Life,
) -> None:
    life.come_up()
    life.registry.disable(WORKER)
    life.ask("INSERT INTO db_workspace VALUES (1, 'System', 1)")
    life.assign(WORKER, 90)  # and the run is killed before it looks again

    worker = life.workers()[WORKER]
    DebusinePlace(life.tables, a_channel("sql", life.url)).registry.release(WORKER)

    assert (worker.state, worker.stranded) == (WorkerState.DISABLED, True)
    assert life.holder_of(90) is None
    assert life.workers()[WORKER].running is None
