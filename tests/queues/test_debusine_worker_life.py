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
        queue = DebusineQueue(kind="debusine", url="https://x.example.org", scopes=["debian"])
        self.ask("INSERT INTO db_scope VALUES (1, 'debian') ON CONFLICT DO NOTHING")
        return DebusineDatabase(a_fleet(fleet="debian"), queue, self.url).read(NOW)

    def workers(self) -> dict[str, Worker]:
        """Return what the reader says of each worker."""
        read = self.read().workers
        assert isinstance(read, tuple), read
        return {worker.name: worker for worker in read}

    def come_up(self) -> None:
        """Have the worker register, and say what it can do."""
        assert self.register(WORKER, self.registry.enrol(an_enrolment()))
        self.ask(
            "UPDATE db_worker SET dynamic_metadata = %s::jsonb,"
            " dynamic_metadata_updated_at = now()",
            json.dumps({"provided_tags": ["worker:cap:sbuild"]}),
        )


@pytest.fixture
def life(tables: Tables, postgres_url: str) -> Life:
    return Life(tables, postgres_url)


def test_worker_is_read_as_written_from_enrolment_to_reuse(life: Life) -> None:
    token = life.registry.enrol(an_enrolment())
    enrolled = life.workers()[WORKER]
    life.register(WORKER, token)
    registered = life.workers()[WORKER]
    life.ask("UPDATE db_worker SET connected_at = NULL")
    life.come_up()
    running = life.workers()[WORKER]
    life.registry.drain(WORKER)
    drained = life.workers()[WORKER]
    life.registry.disable(WORKER)
    disabled = life.workers()[WORKER]
    life.registry.enrol(an_enrolment())
    reused = life.workers()[WORKER]
    life.registry.revoke(WORKER)
    revoked = life.workers()[WORKER]

    assert (enrolled.machine, enrolled.pool, enrolled.static) == (WORKER, "builders", False)
    assert enrolled.token_expires is not None
    assert {"worker:cap:sbuild", "worker:class:big"} <= set(running.provides)
    assert (drained.draining, reused.draining, reused.uses) == (True, False, 0)
    states = (each.state for each in (enrolled, registered, running, disabled, reused, revoked))
    assert [*states] == [
        *(WorkerState.ENROLLED, WorkerState.DEAF, WorkerState.IDLE),
        *(WorkerState.DISABLED, WorkerState.ENROLLED, WorkerState.DISABLED),
    ]


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


def test_request_of_late_scheduler_pass_is_released_by_later_run(life: Life) -> None:
    life.come_up()
    life.registry.disable(WORKER)
    life.ask("INSERT INTO db_workspace VALUES (1, 'System', 1)")
    life.assign(WORKER, 90)  # and the run is killed before it looks again

    worker = life.workers()[WORKER]
    DebusinePlace(life.tables, a_channel("sql", life.url)).registry.release(WORKER)

    assert (worker.state, worker.stranded) == (WorkerState.DISABLED, True)
    assert life.holder_of(90) is None
    assert life.workers()[WORKER].running is None
