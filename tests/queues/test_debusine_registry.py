"""What only Debusine does with workers: rows that last, metadata, saves of whole rows, tokens."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contrib.debusine.statements import tasks_of
from fleet.errors import PlanRefused, SourceUnreachable, WorkerBusy
from fleet.queues.debusine import changes
from fleet.queues.debusine.changes import drained, undrained
from fleet.queues.debusine.registry import DebusineRegistry, SqlChannel
from fleet.tagrules.debusine import WorkerRow
from tests.ports.registries import WORKER, DebusinePlace, a_channel, an_enrolment, tables
from tests.ports.stores import postgres_url
from tests.rigs.debusine_tables import Tables

__all__ = ["postgres_url", "tables"]


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
        "UPDATE db_worker SET static_metadata = static_metadata || %s::jsonb WHERE name = %s",
        json.dumps(static),
        WORKER,
    )


def test_enrolled_row_has_fleet_pool_and_tags(place: DebusinePlace) -> None:
    place.registry.enrol(an_enrolment(requires=("task:scope:debian",)))

    assert place.static(WORKER) == {
        "fleet:fleet": "debian",
        "fleet:pool": "builders",
        "fleet:machine": WORKER,
        "provided_tags": ["worker:class:big"],
        "required_tags": ["task:scope:debian"],
    }


def test_store_has_only_digest_of_token(place: DebusinePlace) -> None:
    token = place.registry.enrol(an_enrolment())

    rows = place.ask("SELECT hash, t::text, w::text FROM db_token t, db_worker w")
    assert [row[0] for row in rows] == [hashlib.sha256(token.encode()).hexdigest()]
    assert token not in str(rows)


def test_token_has_requested_expiry(place: DebusinePlace) -> None:
    expires = datetime.now(UTC) + timedelta(hours=3)
    place.registry.enrol(an_enrolment(expires=expires))

    assert place.ask("SELECT expire_at, enabled FROM db_token") == [(expires, True)]


def test_token_that_expired_can_be_replaced(place: DebusinePlace) -> None:
    first = place.registry.enrol(an_enrolment())
    place.ask("UPDATE db_token SET expire_at = now() - interval '1 second'")

    second = place.registry.enrol(an_enrolment())

    assert not place.register(WORKER, first)
    assert place.register(WORKER, second)


def test_reused_row_keeps_its_history(at_work: DebusinePlace) -> None:
    at_work.assign(WORKER, 1)
    at_work.ask("UPDATE db_workrequest SET status = 'completed'")
    before = at_work.ask("SELECT id FROM db_worker")
    at_work.registry.disable(WORKER)

    at_work.registry.enrol(an_enrolment())

    assert at_work.ask("SELECT id FROM db_worker") == before
    assert at_work.holder_of(1) == WORKER


def test_reused_row_has_no_data_of_earlier_machine(
    at_work: DebusinePlace,
) -> None:
    at_work.ask(
        "UPDATE db_worker SET dynamic_metadata = %s::jsonb, dynamic_metadata_updated_at = now()",
        json.dumps({"provided_tags": ["worker:cap:sbuild"]}),
    )
    at_work.registry.disable(WORKER)

    at_work.registry.enrol(an_enrolment(provides=()))

    said = at_work.ask(
        "SELECT dynamic_metadata, dynamic_metadata_updated_at, connected_at, token_id"
        " FROM db_worker"
    )
    assert said == [({}, None, None, None)]
    assert "provided_tags" not in at_work.static(WORKER)


def test_row_left_by_a_killed_run_is_taken_over(place: DebusinePlace) -> None:
    place.registry.enrol(an_enrolment())
    place.ask("UPDATE db_worker SET static_metadata = '{}'")

    assert place.register(WORKER, place.registry.enrol(an_enrolment()))


@pytest.mark.parametrize(
    "statement",
    [
        'UPDATE db_worker SET static_metadata = \'{"fleet:fleet": "other"}\'',
        "UPDATE db_worker SET static_metadata = '{}'",
        "UPDATE db_worker SET worker_pool_id = 1",
        "UPDATE db_worker SET worker_type = 'signing'",
    ],
)
def test_row_of_another_owner_is_refused(at_work: DebusinePlace, statement: str) -> None:
    at_work.registry.disable(WORKER)
    at_work.ask(statement)

    with pytest.raises(PlanRefused, match="fleet debian"):
        at_work.registry.enrol(an_enrolment())


def test_administrator_metadata_is_kept(at_work: DebusinePlace) -> None:
    write(at_work, tasks_denylist=["autopkgtest"])
    at_work.registry.disable(WORKER)

    at_work.registry.enrol(an_enrolment())

    assert at_work.static(WORKER)["tasks_denylist"] == ["autopkgtest"]


def test_unknown_version_of_debusine_is_not_written(place: DebusinePlace) -> None:
    place.ask("ALTER TABLE db_worker ADD COLUMN mood text")

    with pytest.raises(PlanRefused, match=r"\b(?!539c41736018)[0-9a-f]{12}\b"):
        place.registry.enrol(an_enrolment())

    assert place.ask("SELECT id FROM db_worker") == []


def test_too_long_name_is_refused_before_writing(
    place: DebusinePlace,
) -> None:
    with pytest.raises(SourceUnreachable, match=r"x{51} .*51.* 50.*name-too-long"):
        place.registry.enrol(an_enrolment("x" * 51))

    assert place.ask("SELECT id FROM db_token") == []


def test_drained_worker_gets_no_task_with_workspace_tags(
    at_work: DebusinePlace,
) -> None:
    at_work.registry.drain(WORKER)

    row = WorkerRow("external", at_work.static(WORKER), {"tasks_allowlist": ["sbuild"]})
    assert not tasks_of(row).take("sbuild")
    assert row.requires == frozenset()


def test_drain_keeps_exclusive_tags(at_work: DebusinePlace) -> None:
    write(at_work, required_tags=["task:scope:kernel"], tasks_allowlist=["sbuild"])

    at_work.registry.drain(WORKER)

    assert at_work.static(WORKER)["required_tags"] == ["task:scope:kernel"]
    assert at_work.static(WORKER)[changes.BEFORE_DRAIN] == {"tasks_allowlist": ["sbuild"]}


def test_enrolment_restores_metadata_from_before_drain(at_work: DebusinePlace) -> None:
    write(at_work, tasks_allowlist=["sbuild"])
    at_work.registry.drain(WORKER)
    at_work.registry.drain(WORKER)
    at_work.registry.disable(WORKER)

    at_work.registry.enrol(an_enrolment())

    assert at_work.static(WORKER)["tasks_allowlist"] == ["sbuild"]
    assert changes.BEFORE_DRAIN not in at_work.static(WORKER)


@pytest.mark.parametrize("allowed", [["sbuild"], [], None])
def test_drain_and_resume_restore_the_row(allowed: object) -> None:
    static = {"tasks_allowlist": allowed, "required_tags": ["task:scope:kernel"]}

    assert undrained(drained(drained(static))) == static
    assert undrained(static) == static


def test_drain_undone_by_server_is_repeated(at_work: DebusinePlace) -> None:
    before = at_work.static(WORKER)
    at_work.registry.drain(WORKER)
    at_work.ask("UPDATE db_worker SET static_metadata = %s::jsonb", json.dumps(before))

    at_work.registry.confirm(print)

    assert at_work.waits == [15.0]
    assert not at_work.takes_work(WORKER)


def test_confirm_waits_once_per_change(at_work: DebusinePlace) -> None:
    at_work.registry.drain(WORKER)

    at_work.registry.confirm(print)
    at_work.registry.confirm(print)

    assert at_work.waits == [15.0]


def test_permanently_undone_drain_is_an_error(at_work: DebusinePlace) -> None:
    at_work.ask(
        "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " NEW.static_metadata = OLD.static_metadata; RETURN NEW; END $$;"
        " CREATE TRIGGER undo BEFORE UPDATE ON db_worker FOR EACH ROW EXECUTE FUNCTION undo()"
    )

    with pytest.raises(SourceUnreachable, match=f"{WORKER} .*drained"):
        at_work.registry.drain(WORKER)


def test_released_request_starts_again(at_work: DebusinePlace) -> None:
    at_work.assign(WORKER, 90)
    at_work.vanish(WORKER)

    at_work.registry.release(WORKER)

    rows = at_work.ask("SELECT status, worker_id, started_at FROM db_workrequest")
    assert rows == [("pending", None, None)]


def test_release_keeps_completed_requests(at_work: DebusinePlace) -> None:
    at_work.assign(WORKER, 1)
    at_work.ask("UPDATE db_workrequest SET status = 'completed'")
    at_work.vanish(WORKER)

    at_work.registry.release(WORKER)

    assert at_work.holder_of(1) == WORKER


def test_release_of_connected_busy_worker_is_refused(at_work: DebusinePlace) -> None:
    at_work.assign(WORKER, 90)

    with pytest.raises(WorkerBusy, match=f"{WORKER} .*connected"):
        at_work.registry.release(WORKER)

    assert at_work.holder_of(90) == WORKER
    assert at_work.may_talk(WORKER)


def test_manual_drain_ends_with_its_machine(at_work: DebusinePlace) -> None:
    at_work.ask(
        """UPDATE db_worker SET static_metadata = static_metadata || %s::jsonb""",
        '{"tasks_allowlist": []}',
    )
    at_work.registry.disable(WORKER)
    at_work.vanish(WORKER)

    at_work.register(WORKER, at_work.registry.enrol(an_enrolment()))

    assert at_work.takes_work(WORKER)


def test_row_enrolled_by_another_fleet_is_not_taken(place: DebusinePlace) -> None:
    place.registry.enrol(an_enrolment(fleet="debian-ci"))

    with pytest.raises(PlanRefused, match="fleet debian"):
        place.registry.enrol(an_enrolment())


def test_row_of_vanished_worker_is_reused(at_work: DebusinePlace) -> None:
    at_work.ask("UPDATE db_token SET enabled = false")

    assert at_work.register(WORKER, at_work.registry.enrol(an_enrolment()))


@pytest.mark.parametrize("act", ["drain", "disable", "release"])
def test_worker_without_row_is_named(place: DebusinePlace, act: str) -> None:
    with pytest.raises(PlanRefused, match=f"{WORKER}"):
        getattr(place.registry, act)(WORKER)


def test_unreachable_database_error_hides_password(tmp_path: Path) -> None:
    dsn = f"postgresql://fleet:hunter2@/debusine?host={tmp_path}"
    registry = DebusineRegistry("debian", "debian", SqlChannel(lambda: dsn))

    with pytest.raises(SourceUnreachable) as failed:
        registry.enrol(an_enrolment())

    assert "the database" in str(failed.value)
    assert "hunter2" not in str(failed.value)


def test_read_only_role_error_names_grants_command(
    place: DebusinePlace, postgres_url: str
) -> None:
    place.ask("DROP ROLE IF EXISTS fleet_reads")
    place.ask("CREATE ROLE fleet_reads LOGIN")
    place.ask("GRANT USAGE ON SCHEMA public TO fleet_reads")
    dsn = postgres_url.replace("fleet@", "fleet_reads@")

    with pytest.raises(SourceUnreachable, match="fleet debusine grants --admin"):
        DebusineRegistry("debian", "debian", SqlChannel(lambda: dsn)).enrol(an_enrolment())
