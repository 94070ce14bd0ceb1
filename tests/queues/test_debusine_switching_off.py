"""What a worker has while it is switched off is neither lost nor left with it."""

import json
from collections.abc import Sequence

import pytest

from fleet.errors import PlanRefused, SourceUnreachable, WorkerBusy
from fleet.queues.debusine.registry import Call, Channel
from tests.builders.sentences import tells
from tests.ports.registries import WORKER, DebusinePlace, a_channel, an_enrolment, tables
from tests.ports.stores import postgres_url
from tests.rigs.debusine_tables import Tables

__all__ = ["postgres_url", "tables"]


@pytest.fixture
def at_work(tables: Tables, postgres_url: str) -> DebusinePlace:
    """Return a place whose worker is registered and connected."""
    place = DebusinePlace(tables, a_channel("sql", postgres_url))
    assert place.register(WORKER, place.registry.enrol(an_enrolment()))
    return place


def test_request_assigned_between_drain_and_disable_is_kept(at_work: DebusinePlace) -> None:
    at_work.registry.drain(WORKER)
    at_work.assign(WORKER, 90)

    with pytest.raises(WorkerBusy, match="request 90"):
        at_work.registry.disable(WORKER)

    assert at_work.may_talk(WORKER)
    assert at_work.holder_of(90) == WORKER


def test_request_assigned_after_disable_returns_to_queue(
    at_work: DebusinePlace,
) -> None:
    at_work.registry.disable(WORKER)
    at_work.assign(WORKER, 90)
    at_work.ask("UPDATE db_workrequest SET status = 'pending', started_at = NULL")

    at_work.registry.confirm(print)

    assert at_work.ask("SELECT status, worker_id FROM db_workrequest") == [("pending", None)]
    assert not at_work.may_talk(WORKER)


def test_confirm_waits_only_after_changes(at_work: DebusinePlace) -> None:
    said: list[str] = []

    at_work.registry.confirm(said.append)
    at_work.registry.drain(WORKER)
    at_work.registry.confirm(said.append)
    at_work.registry.confirm(said.append)

    assert [tells(each, "15 s") for each in said] == [True]
    assert at_work.waits == [15]


class Deaf:
    """A channel whose answers are lost once what was asked for is done."""

    def __init__(self, channel: Channel, *, lost: int = 1) -> None:
        self.channel = channel
        self.lost = lost

    def run(self, calls: Sequence[Call]) -> Sequence[object]:
        answer = self.channel.run(calls)
        self.lost -= 1
        if self.lost >= 0:
            raise SourceUnreachable("the answer was lost")
        return answer


def test_unanswered_disable_is_confirmed(at_work: DebusinePlace, postgres_url: str) -> None:
    deaf = DebusinePlace(at_work.tables, Deaf(a_channel("sql", postgres_url)))
    with pytest.raises(SourceUnreachable, match="lost"):
        deaf.registry.disable(WORKER)
    at_work.assign(WORKER, 90)

    deaf.registry.confirm(print)

    assert at_work.holder_of(90) is None


def test_worker_keeps_its_request_when_disable_failed(
    at_work: DebusinePlace, postgres_url: str
) -> None:
    class Away:
        def __init__(self) -> None:
            self.is_back = False

        def run(self, calls: Sequence[Call]) -> Sequence[object]:
            if not self.is_back:
                raise SourceUnreachable("nobody answers")
            return a_channel("sql", postgres_url).run(calls)

    away = Away()
    place = DebusinePlace(at_work.tables, away)
    with pytest.raises(SourceUnreachable, match="nobody answers"):
        place.registry.disable(WORKER)
    away.is_back = True
    at_work.assign(WORKER, 90)
    at_work.vanish(WORKER)

    place.registry.confirm(print)

    assert at_work.holder_of(90) == WORKER
    assert at_work.may_talk(WORKER)


def test_refused_disable_keeps_the_drain(at_work: DebusinePlace) -> None:
    at_work.registry.drain(WORKER)
    at_work.assign(WORKER, 90)
    with pytest.raises(WorkerBusy):
        at_work.registry.disable(WORKER)
    at_work.ask("UPDATE db_worker SET static_metadata = static_metadata - 'tasks_allowlist'")

    at_work.registry.confirm(print)

    assert not at_work.takes_work(WORKER)


@pytest.mark.parametrize("act", ["drain", "disable", "release", "revoke"])
@pytest.mark.parametrize("mark", [{"fleet:fleet": "debian-ci"}, {"fleet:fleet": None}])
def test_foreign_worker_of_equal_name_is_not_changed(
    at_work: DebusinePlace, act: str, mark: dict[str, object]
) -> None:
    at_work.ask(
        "UPDATE db_worker SET static_metadata = static_metadata || %s::jsonb", json.dumps(mark)
    )
    before = at_work.ask("SELECT w::text, t::text FROM db_worker w, db_token t")

    with pytest.raises(PlanRefused, match=rf"{WORKER}.*debian"):
        getattr(at_work.registry, act)(WORKER)

    assert at_work.ask("SELECT w::text, t::text FROM db_worker w, db_token t") == before
