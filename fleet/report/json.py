"""Render values as JSON with sorted keys, so that equal values have equal bytes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import orjson
from pydantic import BaseModel

from fleet.explain.changes import ComparedPlan, Comparison
from fleet.explain.values import Responsible
from fleet.model.facts import WorkerFacts
from fleet.model.plan import Plan, Unserved
from fleet.report.status import status_of
from fleet.report.terminal import visible


def plan_to_json(plan: Plan, change: Comparison | None = None, cadence: int | None = None) -> str:
    """Return the plan and the effect of a change as JSON, which parses to an equal value.

    `cadence` is the time between the runs of a recorded observation, in seconds.
    """
    return visible("".join(plan_to_lines(plan, change, cadence)))


def plan_to_lines(
    plan: Plan, change: Comparison | None = None, cadence: int | None = None
) -> Iterator[str]:
    """Yield the JSON of a plan and the effect of a change, in chunks of lines."""
    if change is None:
        return _lines(plan)
    return _lines(ComparedPlan(**dict(plan), change=change, cadence=cadence))


def status_to_json(
    plan: Plan,
    facts: Mapping[str, WorkerFacts] = MappingProxyType({}),
    responsible: Responsible = Responsible(),  # noqa: B008 - a tuple, which never changes
) -> str:
    """Return pools and workers as JSON, with the same facts as the status pages."""
    return value_to_json(status_of(plan, facts, responsible))


def value_to_json(value: BaseModel) -> str:
    """Return a value as indented JSON. Parsing the JSON gives an equal value."""
    return visible("".join(_lines(value)))


_CHUNK = 100
"""Entries of a long list per chunk. Larger chunks spend most time on memory allocation."""


def _lines(value: BaseModel) -> Iterator[str]:
    """Yield the JSON of a value field by field. Long lists are split into chunks."""
    last, end = "{", "\n"
    for key in sorted(type(value).model_fields):
        held = getattr(value, key)
        if not isinstance(held, tuple) or len(held) <= _CHUNK:
            if text := _fields(value, {key}):
                yield last + end
                last, end = text, ",\n"
            continue
        yield last + end
        last, end = f'  "{key}": [', "\n"
        known: dict[tuple[int, int], str] = {}
        for at in range(0, len(held), _CHUNK):
            part = held[at : at + _CHUNK]
            yield last + end
            if isinstance(part[0], Unserved):
                last = ",\n".join([_encode_unserved(each, known) for each in part])
            else:
                text = _fields(value.model_copy(update={key: part}), {key})
                last = text[text.index("\n") + 1 : text.rindex("\n")]
            end = ",\n"
        yield last + "\n"
        last = "  ]"
    yield last + "\n}\n"


_UNSERVED = ({"because"}, {"blocked"}, {"count"}, {"decisions"}, {"path", "requests", "signature"})
"""Fields of `Unserved` in output order, as groups. The second and fourth group can be cached."""


def _encode_unserved(each: Unserved, known: dict[tuple[int, int], str]) -> str:
    """Return the JSON of requests without a machine.

    `known` caches the JSON of their blocked pools and decisions, which most requests share.
    Without the cache, the JSON of 100,000 requests takes 2.9 s instead of 0.7.
    """
    shared, texts = {1: id(each.blocked), 3: id(each.decisions)}, []
    for nth, keys in enumerate(_UNSERVED):
        text = known.get((nth, shared.get(nth, 0)))
        if text is None:
            text = _fields(each, keys).replace("\n", "\n    ")
            if nth in shared:
                known[nth, shared[nth]] = text
        texts.append(text)
    return "    {\n    " + ",\n    ".join(filter(None, texts)) + "\n    }"


def _fields(value: BaseModel, keys: set[str]) -> str:
    """Return the JSON lines of these fields; empty if the value leaves them out of JSON."""
    document = value.model_dump(mode="json", include=keys)
    try:
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:  # a file name may contain invalid bytes
        text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    return text[len("{\n") : -len("\n}")]


def plan_to_terraform_report(plan: Plan) -> str:
    """Return the counts that GitLab's `artifacts:reports:terraform` reads, as JSON.

    Drains and promotions of images count as updates. Each shared resource counts; an unfinished
    earlier update of shared resources counts as one additional update.
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
