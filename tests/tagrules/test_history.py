"""What a request needs by what earlier runs for its package used, and what comes before that."""

import pytest

from fleet.model.facts import Demand, Request, TaskHistory
from fleet.schema.model import Fleet
from fleet.tagrules.derive import QueueContext, derive, queue_context
from tests.builders import NOW, a_fleet, a_request

NUMBERS = {"memory_gib": {"kind": "number"}, "disk_gib": {"kind": "number"}}
RUNS = tuple(gib * 1024 for gib in range(1, 11))
CHROMIUM = a_request(task="sbuild", package="chromium")


def told(*histories: TaskHistory) -> QueueContext:
    return queue_context(Demand(read_at=NOW, history=histories))


def history(**overrides: object) -> TaskHistory:
    return TaskHistory.model_validate(
        {"task": "sbuild", "package": "chromium", "memory_mib": RUNS} | overrides
    )


def by_history(*rules: object, **options: object) -> Fleet:
    rule = {"history": {"of": "memory"} | options, "ask": "memory_gib>={value}"}
    return a_fleet(tags=NUMBERS, derive=[rule, *rules])


def needed(
    fleet: Fleet, request: Request = CHROMIUM, known: QueueContext | None = None
) -> list[str]:
    return [d.tag for d in derive(fleet, request, request.required, known or told(history()))]


@pytest.mark.parametrize(
    ("options", "tag"),
    [
        ({}, "memory_gib>=12"),
        ({"margin": "0%"}, "memory_gib>=10"),
        ({"quantile": "50%", "margin": "0%"}, "memory_gib>=5"),
        ({"quantile": "51%", "margin": "0%"}, "memory_gib>=6"),
        ({"quantile": "1%", "margin": "1%"}, "memory_gib>=2"),
        ({"quantile": "100%", "margin": "100%"}, "memory_gib>=20"),
    ],
)
def test_minimum_is_quantile_with_margin_in_whole_gib(
    options: dict[str, object], tag: str
) -> None:
    assert needed(by_history(**options)) == [tag]


def test_reason_has_runs_and_figures() -> None:
    (found,) = derive(by_history(quantile="50%"), CHROMIUM, (), told(history()))

    figures = ("50%", "10 ", "sbuild", "chromium", "5120 MiB of memory", "20%")
    assert all(figure in found.because for figure in figures)


def test_short_history_gives_no_minimum() -> None:
    assert needed(by_history(min_runs=11)) == []
    assert needed(by_history(), known=told(history(memory_mib=RUNS[1:]))) == []


def test_partial_histories_of_a_package_are_combined() -> None:
    parts = told(history(memory_mib=RUNS[:4]), history(memory_mib=RUNS[4:]))

    assert needed(by_history(margin="0%"), known=parts) == ["memory_gib>=10"]


def test_queue_context_keeps_environments_and_history() -> None:
    environments = {"5": {"architecture": "arm64"}}

    found = queue_context(
        Demand(read_at=NOW, stored=True, environments=environments, history=(history(),))
    )

    assert (found.stored, found.environments) == (True, environments)
    assert found.history == {("sbuild", "chromium"): (history(),)}


@pytest.mark.parametrize(
    "request_",
    [
        a_request(task="sbuild", package="linux"),
        a_request(task="autopkgtest", package="chromium"),
        a_request(task="sbuild", package=None),
    ],
)
def test_runs_of_other_package_or_task_are_ignored(request_: Request) -> None:
    assert needed(by_history(), request_) == []


@pytest.mark.parametrize("own", ["memory_gib>=2", "memory_gib>=512"])
def test_minimum_of_request_precedes_history(own: str) -> None:
    assert needed(by_history(), a_request(package="chromium", required=[own])) == []


def test_minimum_in_task_data_precedes_history() -> None:
    rule = {"from": "memory", "ask": "memory_gib>={value}"}
    request = a_request(package="chromium", task_data={"memory": 3})

    assert needed(by_history(rule), request) == ["memory_gib>=3"]


def test_minimum_of_another_number_does_not_replace_history() -> None:
    request = a_request(package="chromium", required=["disk_gib>=2"])

    assert needed(by_history(), request) == ["memory_gib>=12"]


def test_disk_has_a_separate_history() -> None:
    rule = {"history": {"of": "disk"}, "ask": "disk_gib>={value}"}
    known = told(history(disk_mib=[200] * 10))

    assert needed(a_fleet(tags=NUMBERS, derive=[rule]), known=known) == ["disk_gib>=1"]


def test_rule_chains_on_minimum_from_history() -> None:
    rule = {"tag": "memory_gib>=12", "ask": "roomy"}

    assert needed(by_history(rule)) == ["memory_gib>=12", "roomy"]
