"""Why a request waits, a worker stays and a pool has its size: cases of `reasons/`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fleet.explain.case import Case as Run
from fleet.explain.objects import explain_pool, explain_worker
from fleet.explain.values import Explanation
from fleet.guard import guard
from fleet.reconcile import reconcile
from tests.builders.cases import Block, read_blocks
from tests.builders.decisions import Case, world_of
from tests.builders.explaining import explain_request
from tests.builders.sentences import tells

CASES = [*read_blocks(Path(__file__).parent / "reasons")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_explanation_has_the_reasons_of_its_case(case: Block) -> None:
    found = explained(*case.parts)

    assert describe(found) == case.result
    for kind, words in case.because:
        is_there = any(tells(each, *words.split()) for each in texts(found)[kind.split()[-1]])
        assert is_there is not kind.startswith("no "), words


def explained(pool: str, world: str, question: str) -> Explanation:
    """Return the explanation of a request, of a worker, or of the pool."""
    fleet, seen = Case("", pool, world, "", ()).fleet, world_of(world)
    plan = guard(fleet, reconcile(fleet, seen))
    kind, _, number = question.partition(" ")
    match kind:
        case "request":
            found = explain_request(fleet, seen, plan, number)
        case "worker":
            found = explain_worker(Run(fleet, seen, plan), f"debian-ci-builders-{number:>04}")
        case _:
            found = explain_pool(Run(fleet, seen, plan), "builders")
    assert found is not None
    return found


def describe(found: Explanation) -> str:
    """Return the keys and enforcers of the reasons, and how many steps and suggestions follow."""
    reasons = [
        f"{'.'.join(map(str, each.path)) or 'no key'}{f' by {each.by}' if each.by else ''}"
        for each in found.reasons
    ]
    parts = [", ".join(reasons) or "no reason", f"steps {len(found.next_steps)}"]
    parts += [f"suggestions {len(found.suggestions)}"] if found.suggestions else []
    parts += [f"starts {found.expected:%H:%M:%S}"] if found.expected else []
    return "; ".join((*parts, *(["never"] if found.never else [])))


def texts(found: Explanation) -> Mapping[str, Sequence[str]]:
    return {
        "headline": [found.headline],
        "fact": found.facts,
        "plain": found.plain,
        "reason": [each.because for each in found.reasons],
        "who": [each.who for each in found.reasons],
        "step": found.next_steps,
        "suggestion": [each.sentence for each in found.suggestions],
    }
