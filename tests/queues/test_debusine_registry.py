"""What only Debusine does with workers: rows that last, metadata, saves of whole rows, tokens.

What a worker has while it is switched off is neither lost nor left with it.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contrib.debusine.statements import tasks_of
from fleet.errors import PlanRefused, SourceUnreachable, WorkerBusy
from fleet.queues.debusine import changes
from fleet.queues.debusine.changes import drained, undrained
from fleet.queues.debusine.registry import Call, Channel, DebusineRegistry, SqlChannel
from fleet.tagrules.debusine import WorkerRow
from tests.builders.sentences import tells
from tests.ports.registries import WORKER, DebusinePlace, a_channel, an_enrolment, tables
from tests.ports.stores import postgres_url
from tests.rigs.debusine_tables import Tables

__all__ = ["postgres_url", "tables"]

ALL_ROWS = "SELECT w::text, t::text FROM db_worker w, db_token t"


@pytest.fixture
def place(tables: Tables, postgres_url: str) -> DebusinePlace:
    return DebusinePlace(tables, a_channel("sql", postgres_url))


@pytest.fixture
def at_work(place: DebusinePlace) -> DebusinePlace:
    """Return a place whose worker is registered and connected."""
    assert place.register(WORKER, place.registry.enrol(an_enrolment()))
    return place


def write(place: DebusinePlace, **static: object) -> None:
    """Add to what administrators wrote of the worker."""
    place.ask(
        "UPDATE db_worker SET static_metadata = static_metadata || %s::jsonb", json.dumps(static)
    )


# enrolment


def test_enrolled_row_has_tags_and_only_a_digest_of_its_token(place: DebusinePlace) -> None:
    expires = datetime.now(UTC) + timedelta(hours=3)

    token = place.registry.enrol(an_enrolment(requires=("task:scope:debian",), expires=expires))

    assert place.static(WORKER) == {
        "fleet:fleet": "debian",
        "fleet:pool": "builders",
        "fleet:machine": WORKER,
        "provided_tags": ["worker:class:big"],
        "required_tags": ["task:scope:debian"],
    }
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert place.ask("SELECT hash, expire_at, enabled FROM db_token") == [(digest, expires, True)]
    assert token not in str(place.ask(ALL_ROWS))


def test_reused_row_has_its_history_and_no_data_of_its_machine(at_work: DebusinePlace) -> None:
    at_work.assign(WORKER, 1)
    at_work.ask("UPDATE db_workrequest SET status = 'completed'")
    at_work.ask(
        "UPDATE db_worker SET dynamic_metadata = %s::jsonb, dynamic_metadata_updated_at = now()",
        json.dumps({"provided_tags": ["worker:cap:sbuild"]}),
    )
    write(at_work, tasks_denylist=["autopkgtest"])
    before = at_work.ask("SELECT id FROM db_worker")
    at_work.registry.disable(WORKER)

    at_work.registry.enrol(an_enrolment(provides=()))

    assert at_work.ask("SELECT id FROM db_worker") == before
    assert at_work.holder_of(1) == WORKER
    columns = "dynamic_metadata, dynamic_metadata_updated_at, connected_at, token_id"
    assert at_work.ask(f"SELECT {columns} FROM db_worker") == [({}, None, None, None)]  # noqa: S608 - constants
    assert "provided_tags" not in at_work.static(WORKER)
    assert at_work.static(WORKER)["tasks_denylist"] == ["autopkgtest"]


@pytest.mark.parametrize(
    ("registers", "left"),
    [
        (False, "UPDATE db_worker SET static_metadata = '{}'"),
        (True, "UPDATE db_token SET enabled = false"),
        (False, "UPDATE db_token SET expire_at = now() - interval '1 second'"),
    ],
    ids=["a killed run", "a vanished worker", "a token that expired"],
)
def test_row_left_behind_is_taken_over(
    place: DebusinePlace, left: str, *, registers: bool
) -> None:
    first = place.registry.enrol(an_enrolment())
    assert not registers or place.register(WORKER, first)
    place.ask(left)

    second = place.registry.enrol(an_enrolment())

    assert not place.register(WORKER, first)
    assert place.register(WORKER, second)


@pytest.mark.parametrize(
    "change",
    [
        'static_metadata = \'{"fleet:fleet": "other"}\'',
        "static_metadata = '{}'",
        "worker_pool_id = 1",
        "worker_type = 'signing'",
    ],
)
def test_row_of_another_owner_is_refused(at_work: DebusinePlace, change: str) -> None:
    at_work.registry.enrol(an_enrolment("debian-other", fleet="debian-ci"))
    at_work.registry.disable(WORKER)
    at_work.ask(f"UPDATE db_worker SET {change} WHERE name = %s", WORKER)  # noqa: S608 - of this test

    for worker in (WORKER, "debian-other"):
        with pytest.raises(PlanRefused, match="fleet debian"):
            at_work.registry.enrol(an_enrolment(worker))


@pytest.mark.parametrize(
    ("name", "before", "error", "words"),
    [
        (
            WORKER,
            "ALTER TABLE db_worker ADD COLUMN mood text",
            PlanRefused,
            r"\b(?!539c41736018)[0-9a-f]{12}\b",
        ),
        ("x" * 51, "SELECT 1", SourceUnreachable, r"x{51} .*51.* 50.*name-too-long"),
    ],
    ids=["version", "name"],
)
def test_enrolment_is_refused_before_writing(
    place: DebusinePlace, name: str, before: str, error: type[Exception], words: str
) -> None:
    place.ask(before)

    with pytest.raises(error, match=words):
        place.registry.enrol(an_enrolment(name))

    assert place.ask("SELECT id FROM db_worker") == place.ask("SELECT id FROM db_token") == []


def test_read_only_role_error_names_grants_command(
    place: DebusinePlace, postgres_url: str
) -> None:
    place.ask("DROP ROLE IF EXISTS fleet_reads")
    place.ask("CREATE ROLE fleet_reads LOGIN")
    place.ask("GRANT USAGE ON SCHEMA public TO fleet_reads")
    dsn = postgres_url.replace("fleet@", "fleet_reads@")

    with pytest.raises(SourceUnreachable, match="fleet debusine grants --admin"):
        DebusineRegistry("debian", "debian", SqlChannel(lambda: dsn)).enrol(an_enrolment())


def test_unreachable_database_error_hides_password(tmp_path: Path) -> None:
    dsn = f"postgresql://fleet:hunter2@/debusine?host={tmp_path}"
    registry = DebusineRegistry("debian", "debian", SqlChannel(lambda: dsn))

    with pytest.raises(SourceUnreachable, match="the database") as failed:
        registry.enrol(an_enrolment())

    assert "hunter2" not in str(failed.value)


# drains


def test_drained_worker_keeps_its_exclusive_tags_and_gets_no_task(at_work: DebusinePlace) -> None:
    write(at_work, required_tags=["task:scope:kernel"], tasks_allowlist=["sbuild"])

    at_work.registry.drain(WORKER)

    static = at_work.static(WORKER)
    row = WorkerRow("external", static, {"tasks_allowlist": ["sbuild"]})
    assert not tasks_of(row).take("sbuild")
    assert static["required_tags"] == ["task:scope:kernel"]
    assert static[changes.BEFORE_DRAIN] == {"tasks_allowlist": ["sbuild"]}


@pytest.mark.parametrize(
    ("allowed", "drains", "kept"), [(["sbuild"], 2, ["sbuild"]), ([], 0, None)]
)
def test_enrolment_restores_metadata_from_before_drain(
    at_work: DebusinePlace, allowed: list[str], drains: int, kept: object
) -> None:
    """A drain by hand ends with its machine."""
    write(at_work, tasks_allowlist=allowed)
    for _ in range(drains):
        at_work.registry.drain(WORKER)
    at_work.registry.disable(WORKER)
    at_work.vanish(WORKER)

    at_work.register(WORKER, at_work.registry.enrol(an_enrolment()))

    assert at_work.static(WORKER).get("tasks_allowlist") == kept
    assert changes.BEFORE_DRAIN not in at_work.static(WORKER)
    assert at_work.takes_work(WORKER)


@pytest.mark.parametrize("allowed", [["sbuild"], [], None])
def test_drain_and_resume_restore_the_row(allowed: object) -> None:
    static = {"tasks_allowlist": allowed, "required_tags": ["task:scope:kernel"]}

    assert undrained(drained(drained(static))) == static
    assert undrained(static) == static


def test_drain_undone_by_server_is_repeated_after_one_wait(at_work: DebusinePlace) -> None:
    before, said = at_work.static(WORKER), list[str]()
    at_work.registry.confirm(said.append)
    at_work.registry.drain(WORKER)
    at_work.ask("UPDATE db_worker SET static_metadata = %s::jsonb", json.dumps(before))

    at_work.registry.confirm(said.append)
    at_work.registry.confirm(said.append)

    assert not at_work.takes_work(WORKER)
    assert at_work.waits == [15.0]
    assert [tells(each, "15 s") for each in said] == [True]


def test_permanently_undone_drain_is_an_error(at_work: DebusinePlace) -> None:
    at_work.ask(
        "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " NEW.static_metadata = OLD.static_metadata; RETURN NEW; END $$;"
        " CREATE TRIGGER undo BEFORE UPDATE ON db_worker FOR EACH ROW EXECUTE FUNCTION undo()"
    )

    with pytest.raises(SourceUnreachable, match=f"{WORKER} .*drained"):
        at_work.registry.drain(WORKER)


# requests of workers that end


def test_release_resets_only_running_requests(at_work: DebusinePlace) -> None:
    at_work.assign(WORKER, 1)
    at_work.ask("UPDATE db_workrequest SET status = 'completed'")
    at_work.assign(WORKER, 90)
    with pytest.raises(WorkerBusy, match=f"{WORKER} .*connected"):
        at_work.registry.release(WORKER)
    assert (at_work.holder_of(90), at_work.may_talk(WORKER)) == (WORKER, True)
    at_work.vanish(WORKER)

    at_work.registry.release(WORKER)

    rows = at_work.ask("SELECT id, status, worker_id, started_at FROM db_workrequest ORDER BY id")
    assert rows[1] == (90, "pending", None, None)
    assert at_work.holder_of(1) == WORKER


def test_refused_disable_keeps_request_and_drain(at_work: DebusinePlace) -> None:
    at_work.registry.drain(WORKER)
    at_work.assign(WORKER, 90)
    with pytest.raises(WorkerBusy, match="request 90"):
        at_work.registry.disable(WORKER)
    assert (at_work.holder_of(90), at_work.may_talk(WORKER)) == (WORKER, True)
    at_work.ask("UPDATE db_worker SET static_metadata = static_metadata - 'tasks_allowlist'")

    at_work.registry.confirm(print)

    assert not at_work.takes_work(WORKER)


def test_request_assigned_after_disable_returns_to_queue(at_work: DebusinePlace) -> None:
    at_work.registry.disable(WORKER)
    at_work.assign(WORKER, 90)
    at_work.ask("UPDATE db_workrequest SET status = 'pending', started_at = NULL")

    at_work.registry.confirm(print)

    assert at_work.ask("SELECT status, worker_id FROM db_workrequest") == [("pending", None)]
    assert not at_work.may_talk(WORKER)


class Faulty:
    """A channel whose first answer is lost, before what was asked for is done, or after."""

    def __init__(self, channel: Channel, *, does: bool) -> None:
        self._channel = channel
        self._does = does
        self._is_lost = True

    def run(self, calls: Sequence[Call]) -> Sequence[object]:
        lost, self._is_lost = self._is_lost, False
        answer = self._channel.run(calls) if self._does or not lost else ()
        if lost:
            raise SourceUnreachable("the answer was lost")
        return answer


@pytest.mark.parametrize("does", [True, False], ids=["done", "not done"])
def test_unanswered_disable_is_confirmed_as_it_ended(
    at_work: DebusinePlace, postgres_url: str, *, does: bool
) -> None:
    channel = a_channel("sql", postgres_url)
    place = DebusinePlace(at_work.tables, Faulty(channel, does=does))
    with pytest.raises(SourceUnreachable, match="lost"):
        place.registry.disable(WORKER)
    at_work.assign(WORKER, 90)
    if not does:
        at_work.vanish(WORKER)

    place.registry.confirm(print)

    assert (at_work.holder_of(90), at_work.may_talk(WORKER)) == (
        (None, False) if does else (WORKER, True)
    )


# workers that are not ours


@pytest.mark.parametrize("act", ["drain", "disable", "release"])
def test_worker_without_row_is_named(place: DebusinePlace, act: str) -> None:
    with pytest.raises(PlanRefused, match=f"{WORKER}"):
        getattr(place.registry, act)(WORKER)


@pytest.mark.parametrize("act", ["drain", "disable", "release", "revoke"])
@pytest.mark.parametrize("mark", ["debian-ci", None])
def test_foreign_worker_of_equal_name_is_not_changed(
    at_work: DebusinePlace, act: str, mark: object
) -> None:
    write(at_work, **{"fleet:fleet": mark})
    before = at_work.ask(ALL_ROWS)

    with pytest.raises(PlanRefused, match=rf"{WORKER}.*debian"):
        getattr(at_work.registry, act)(WORKER)

    assert at_work.ask(ALL_ROWS) == before
