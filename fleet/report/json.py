"""Render values as JSON with sorted keys, so that equal values are equal bytes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType, NoneType

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from fleet.explain.changes import ComparedPlan, Comparison
from fleet.explain.values import WorkerFacts
from fleet.model.plan import Plan
from fleet.report.status import status_of
from fleet.report.terminal import visible


def plan_to_json(plan: Plan, change: Comparison | None = None, cadence: int | None = None) -> str:
    """Return the plan as JSON, with what a change does; reading it back gives an equal value.

    `cadence` is that of a recorded world, in seconds.
    """
    if change is None:
        return value_to_json(plan)
    return value_to_json(ComparedPlan(**dict(plan), change=change, cadence=cadence))


def status_to_json(plan: Plan, facts: Mapping[str, WorkerFacts] = MappingProxyType({})) -> str:
    """Return pools and workers as JSON: the same facts as the status pages."""
    return value_to_json(status_of(plan, facts))


def value_to_json(value: BaseModel) -> str:
    """Return any value as indented JSON; reading it back gives an equal value."""
    return "".join(_pieces(value))


_AT_ONCE = 100
"""Entries of a long list that are written at once: fresh memory takes more time than writing."""


def _pieces(value: BaseModel) -> Iterator[str]:
    """Yield the text of a value, one field after the other; of a long list a part at a time."""
    before, closing = "{\n", "\n  ]"
    for key in sorted(type(value).model_fields):
        held, opening = getattr(value, key), f'  "{key}": [\n'
        if not isinstance(held, tuple) or len(held) <= _AT_ONCE:
            if text := _field(value, key):
                yield before + text
                before = ",\n"
            continue
        for at in range(0, len(held), _AT_ONCE):
            part = value.model_copy(update={key: held[at : at + _AT_ONCE]})
            yield before if at else before + opening
            yield _field(part, key).removeprefix(opening).removesuffix(closing)
            before = ",\n"
        yield closing
    yield "\n}\n"


def _field(value: BaseModel, key: str) -> str:
    """Return the lines of one field; empty where it is left out."""
    document = _sorted(value.model_dump(mode="json", include={key}))
    try:
        text = to_json(document, indent=2).decode()
    except PydanticSerializationError:  # a file's name may have bytes that are no characters
        text = json.dumps(document, indent=2, ensure_ascii=False)
    return visible(text)[len("{\n") : -len("\n}")]


_LEAVES = frozenset({str, int, bool, NoneType})
"""Most of what there is: a large plan has more than a million."""


def _sorted(value: object) -> object:
    """Return it with the keys of all its tables in order."""
    if isinstance(value, dict):
        return {
            key: own if type(own := value[key]) in _LEAVES else _sorted(own)
            for key in sorted(value)
        }
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return [*map(_sorted, value)]
    return value


def plan_to_terraform_report(plan: Plan) -> str:
    """Return the counts that `artifacts:reports:terraform` reads.

    Drains and promotions of images are updates. Shared resources count one by one; an unfinished
    earlier update of them is one more.
    """
    counted = Counter(action.action for action in plan.actions)
    for base in plan.bases:
        unfinished = not (base.create or base.change or base.delete)
        counted["create"] += len(base.create)
        counted["drain"] += len(base.change) + unfinished
        counted["delete"] += len(base.delete)
    counted["drain"] += len(plan.promotions)
    report = {
        "create": counted["create"],
        "update": counted["drain"],
        "delete": counted["delete"],
    }
    return json.dumps(report) + "\n"
