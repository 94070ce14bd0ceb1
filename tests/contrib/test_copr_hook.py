"""The hook for Copr's backend: tickets name their builds, and the allow-list acts on them live."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from contrib.copr import copr_backend_process_build as hook
from fleet.model.tickets import Ticket, TicketState, to_request
from fleet.schema.model import Fleet
from fleet.tagrules.derive import NOTHING
from fleet.tagrules.requests import Judge
from fleet.tickets.reasons import judge
from tests.builders import NOW
from tests.builders.ticketing import a_ticket_fleet
from tests.fakes.copr_backend import a_worker_class
from tests.rigs.ticket_service import TicketService

BUILD: dict[str, Any] = {
    "task_id": "7-fedora-43-x86_64",
    "build_id": 7,
    "project_owner": "praiskup",
    "project_dirname": "ping",
    "chroot": "fedora-43-x86_64",
    "package_name": "chromium",
    "sandbox": "praiskup/ping--ada",
}
SOURCE = BUILD | {"task_id": "7", "chroot": None}
RULE = {"match": "praiskup/ping/.*/chromium", "ask": ["big"], "dirs": True}


def ruled(*rules: dict[str, object], named_by: tuple[str, ...] = ("anybody",)) -> Fleet:
    queue = {"kind": "tickets", "builds_named_by": list(named_by)}
    return a_ticket_fleet(queues={"tickets": queue}, powerful=list(rules or (RULE,)))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TicketService]:
    with TicketService(tmp_path, ruled()) as service:
        yield service


def take(service: TicketService, record: dict[str, Any], *, failures: int = 0) -> Ticket:
    """Return the last ticket that a worker with the hook takes for a build."""
    worker_class: Any = a_worker_class(service.client, failures=failures)
    hook.name_builds(worker_class)
    worker = worker_class(record)
    worker.process()
    assert len(worker.tickets) == failures + 1
    ticket = service.book.find(worker.tickets[-1])
    assert ticket is not None
    return ticket


def given(fleet: Fleet, ticket: Ticket) -> set[str]:
    """Return the tags that rules give a ticket today."""
    return {each.tag for each in judge(fleet, ticket, {}, NOW.date()).given}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "praiskup/ping/fedora-43-x86_64/chromium"),
        ({"project_dirname": "ping:pr:7"}, "praiskup/ping:pr:7/fedora-43-x86_64/chromium"),
        ({"project_owner": "@copr"}, "@copr/ping/fedora-43-x86_64/chromium"),
        ({"sandbox": None}, "praiskup/ping/fedora-43-x86_64/chromium"),
        ({"sandbox": "praiskup/ping--" + "a" * 300}, "praiskup/ping/fedora-43-x86_64/chromium"),
        ({"package_name": "x" * 200}, "praiskup/ping/fedora-43-x86_64/" + "x" * 200),
        (SOURCE, "praiskup/ping/srpm-builds/chromium"),
        (SOURCE | {"package_name": None}, "praiskup/ping/srpm-builds/"),
    ],
)
def test_ticket_of_a_build_has_its_name(
    service: TicketService, changes: dict[str, Any], name: str
) -> None:
    ticket = take(service, BUILD | changes)

    assert (ticket.build, ticket.state) == (name, TicketState.WAITING)
    assert changes.get("chroot", "x") is None or ticket.tags == ("arch_x86_64", "copr_builder")


def test_changed_rules_apply_to_waiting_tickets(service: TicketService) -> None:
    build, source = take(service, BUILD, failures=2), take(service, SOURCE)

    assert (build.owner, build.submitter, build.sandbox) == (
        *("praiskup", "ada", "praiskup/ping--ada"),
    )
    # Each ticket of a build has its name once.
    assert [each.tags for each in service.book.tickets()][:3] == [build.tags] * 3
    assert (given(service.fleet, build), given(service.fleet, source)) == ({"big"}, {"big"})
    only = ruled(RULE | {"task": "build"})
    assert (given(only, build), given(only, source)) == ({"big"}, set())
    assert given(ruled(RULE | {"match": "praiskup/ping/.*/llvm"}), build) == set()
    asking = Judge(service.fleet, {}, NOW.date()).ask_of(to_request(build), NOTHING)
    assert "big" in asking.ask.required


def test_client_that_may_not_name_builds_gets_no_rule(tmp_path: Path) -> None:
    with TicketService(tmp_path, ruled(named_by=("copr",)), named=True) as service:
        tag = "build:praiskup/ping/fedora-43-x86_64/chromium"
        ours = service.book.find(service.of("copr").take("arch_x86_64", tag))
        other = service.book.find(service.of("packit").take("arch_x86_64", tag))

    assert ours is not None
    assert other is not None
    assert (ours.build != "", given(service.fleet, ours)) == (True, {"big"})
    assert (other.build, given(service.fleet, other)) == ("", set())
    assert tag in other.tags


@pytest.mark.parametrize(
    "tags",
    [
        ["build:a/b/c"],
        ["build:a/b/c/d/e"],
        ["build:a//c/d"],
        ["build:/b/c/d"],
        ["build:"],
        ["build:a/b/c/d", "build:a/b/c/e"],
    ],
)
def test_tag_that_names_no_build_is_an_ordinary_tag(
    service: TicketService, tags: list[str]
) -> None:
    ticket = service.book.find(service.client.take("arch_x86_64", *tags))

    assert ticket is not None
    assert ticket.build == ""
    assert set(tags) <= set(ticket.tags)
    assert ticket.state is TicketState.WAITING


def test_wrapper_runs_copr_s_own_program_with_the_hook(
    service: TicketService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "copr-backend-process-build"
    program.write_text(
        "from copr_backend.background_worker_build import BuildBackgroundWorker\n"
        "if __name__ == '__main__':\n"
        "    BuildBackgroundWorker(RECORD).process()\n".replace("RECORD", repr(BUILD)),
        encoding="utf-8",
    )
    package, module = ModuleType("copr_backend"), ModuleType("background_worker_build")
    vars(module)["BuildBackgroundWorker"] = a_worker_class(service.client)
    monkeypatch.setitem(sys.modules, "copr_backend", package)
    monkeypatch.setitem(sys.modules, "copr_backend.background_worker_build", module)
    wrapper = Path(hook.__file__).read_text(encoding="utf-8")
    script = tmp_path / "wrapper.py"
    script.write_text(wrapper.replace(hook.PROGRAM, str(program)), encoding="utf-8")

    runpy.run_path(str(script), run_name="__main__")

    (ticket,) = service.book.tickets()
    assert ticket.build == "praiskup/ping/fedora-43-x86_64/chromium"


def test_hook_needs_no_package_name() -> None:
    taken: list[list[str]] = []
    worker: Any = type("W", (), {"_alloc_host": lambda self: taken.append(self.job.tags)})
    hook.name_builds(worker)
    one = worker()
    one.job = SimpleNamespace(project_owner="a", project_dirname="b", chroot="c", tags=["x"])

    one._alloc_host()  # noqa: SLF001 - what Copr calls

    assert taken == [["x", "build:a/b/c/"]]
