"""What Debusine's developers get: plain look-ups of Django wherever Debusine's rule is enough."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import psycopg
import pytest

from fleet.tagrules.debusine import WorkerRow
from fleet.tagrules.offers import Ask, Offer
from tests.rigs import postgres
from tests.rigs.debusine_tables import RequestRow, Tables
from tests.rigs.process import ROOT


@pytest.fixture
def models() -> ModuleType:
    """Return Debusine's models, or skip loudly."""
    if find_spec("django") is None:
        pytest.skip("contrib/debusine is NOT TESTED: Django is not installed")
    from tests.rigs import debusine_models

    debusine_models.connect("postgresql://nobody@/nothing?host=/nowhere")
    return debusine_models


def test_requests_for_worker_is_two_array_comparisons(models: ModuleType) -> None:
    from contrib.debusine.matching import requests_for

    made = str(
        models.WorkRequest.objects.filter(
            requests_for(["worker:type:external"], ["task:scope:debian"])
        ).query
    )

    assert made.partition(" WHERE ")[2] == (
        '("db_workrequest"."scheduler_tags_required" <@ '
        "(ARRAY[worker:type:external])::varchar(255)[] "
        'AND "db_workrequest"."scheduler_tags_provided" @> '
        "(ARRAY[task:scope:debian])::varchar(255)[])"
    )


def test_class_counts_only_when_an_administrator_set_it(models: ModuleType) -> None:
    from contrib.debusine.matching import workers_for

    made = str(models.Worker.objects.filter(workers_for(["worker:class:big"])).query)

    assert "\"static_metadata\" -> provided_tags) @> Jsonb(['worker:class:big'])" in made
    assert '"dynamic_metadata" -> provided_tags' not in made


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("tag", ["a\0b", "x" * 256])
def test_unstorable_tag_is_never_sent_to_the_database(tag: str) -> None:
    from contrib.debusine.matching import requests_for

    wide = requests_for([tag, "a"])
    never = requests_for(["a"], [tag])

    assert tag not in str(wide)
    assert "('pk__in', [])" in str(never)


@pytest.mark.usefixtures("models")
def test_already_split_tags_are_refused() -> None:
    from contrib.debusine.matching import requests_for, workers_for

    for given in (Ask(frozenset(["a"])), Offer(frozenset(["a"])), "a"):
        with pytest.raises(TypeError, match=type(given).__name__):
            workers_for(given)  # type: ignore[arg-type] # what is tried
        with pytest.raises(TypeError, match=type(given).__name__):
            requests_for(given)  # type: ignore[arg-type] # what is tried


BIG = WorkerRow(
    "external",
    {"provided_tags": ["worker:class:powerful"]},
    {"provided_tags": ["arch", "memory_gib=128"]},
)
SMALL = WorkerRow("external", {}, {"provided_tags": ["arch", "memory_gib=16"]})
PLAIN, LARGE, POWERFUL, RUNNING = 1, 2, 3, 4


@pytest.fixture
def debusine(models: ModuleType, postgres_server: str) -> Iterator[ModuleType]:
    """Return the models over a PostgreSQL with a big worker, a small one, and requests."""
    with (
        postgres.database(postgres_server) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        tables = Tables(connection)
        tables.create()
        tables.add_workers({1: BIG, 2: SMALL}, {1: "big", 2: "small"})
        tables.add_requests(
            [
                RequestRow(PLAIN, ("arch",)),
                RequestRow(LARGE, ("arch", "memory_gib>=64")),
                RequestRow(POWERFUL, ("memory_gib>=64", "worker:class:powerful")),
                RequestRow(RUNNING, ("arch",), status="running", worker=2),
            ]
        )
        own = models.connect(url)
        yield models
        own.close()


@pytest.mark.parametrize(
    ("worker", "requests"), [("big", [POWERFUL]), ("small", [PLAIN])], ids=["big", "small"]
)
def test_readme_example_finds_requests_a_worker_can_take(
    debusine: ModuleType, worker: str, requests: list[int]
) -> None:
    said = example(debusine, worker=debusine.Worker.objects.get(name=worker), request=PLAIN)

    assert sorted(said["can_take"].values_list("id", flat=True)) == requests


@pytest.mark.parametrize(
    ("request_id", "workers"), [(PLAIN, ["small"]), (LARGE, []), (POWERFUL, ["big"])]
)
def test_readme_example_finds_workers_that_can_run_a_request(
    debusine: ModuleType, request_id: int, workers: list[str]
) -> None:
    said = example(debusine, worker=debusine.Worker.objects.get(name="big"), request=request_id)

    assert sorted(said["can_run"].values_list("name", flat=True)) == workers


def example(models: ModuleType, *, worker: object, request: int) -> dict[str, Any]:
    """Run the example of the README as it stands there, and return what it says."""
    text = (ROOT / "contrib" / "debusine" / "README.md").read_text(encoding="utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {
        "Worker": models.Worker,
        "WorkRequest": models.WorkRequest,
        "worker": worker,
        "request": models.WorkRequest.objects.get(pk=request),
    }
    exec(code, names)  # noqa: S102 - the project's own page
    return names
