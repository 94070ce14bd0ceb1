"""What Debusine's developers get: plain look-ups of Django wherever Debusine's rule is enough."""

from importlib.util import find_spec
from types import ModuleType

import pytest

from fleet.tagrules import Ask, Offer


@pytest.fixture
def models() -> ModuleType:
    """Return Debusine's models, or skip loudly."""
    if find_spec("django") is None:
        pytest.skip("contrib/debusine is NOT TESTED: Django is not installed")
    from tests.rigs import debusine_models

    debusine_models.connect("postgresql://nobody@/nothing?host=/nowhere")
    return debusine_models


def test_what_a_worker_can_run_is_the_two_comparisons_of_debusine(models: ModuleType) -> None:
    from contrib.debusine.matching import requests_for

    offer = Offer(frozenset(["worker:type:external"]), frozenset(["task:scope:debian"]))
    made = str(models.WorkRequest.objects.filter(requests_for(offer)).query)

    assert made.partition(" WHERE ")[2] == (
        '("db_workrequest"."scheduler_tags_required" <@ '
        "(ARRAY[worker:type:external])::varchar(255)[] "
        'AND "db_workrequest"."scheduler_tags_provided" @> '
        "(ARRAY[task:scope:debian])::varchar(255)[])"
    )


def test_a_class_counts_only_where_an_administrator_wrote_it(models: ModuleType) -> None:
    from contrib.debusine.matching import workers_for

    made = str(
        models.Worker.objects.filter(workers_for(Ask(frozenset(["worker:class:big"])))).query
    )

    assert "\"static_metadata\" -> provided_tags) @> Jsonb(['worker:class:big'])" in made
    assert '"dynamic_metadata" -> provided_tags' not in made


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("tag", ["a\0b", "x" * 256])
def test_a_tag_that_no_column_can_hold_is_never_asked_of_the_database(tag: str) -> None:
    from contrib.debusine.matching import requests_for

    wide = requests_for(Offer(frozenset([tag, "a"])))
    never = requests_for(Offer(frozenset(["a"]), frozenset([tag])))

    assert tag not in str(wide)
    assert "('pk__in', [])" in str(never)
