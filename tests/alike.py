"""This module groups what REST lists as SQL groups it: the plain form, request by request."""

from collections.abc import Iterable

from fleet.facts import Demand, Request
from fleet.queues.debusine.looks import Looks
from fleet.queues.debusine.rows import PACKAGE_TAG
from fleet.tagrules.derive import at_path


def grouped(demand: Demand, looks: Looks) -> Demand:
    """Return the demand with requests of one kind together, as far as this is looked at."""
    found: dict[str, list[Request]] = {}
    for request in demand.requests:
        kept = keeping(request, looks)
        alike = kept.model_copy(update={"id": "", "pending_since": None})
        found.setdefault(alike.model_dump_json(), []).append(kept)
    oldest = [(min(kept, key=_age), len(kept)) for kept in found.values()]
    return demand.model_copy(
        update={
            "requests": in_order(one.model_copy(update={"count": n}) for one, n in oldest),
            "environments": demand.environments if looks.environments else {},
        }
    )


def keeping(request: Request, looks: Looks) -> Request:
    """Return a request with what is looked at, and nothing else."""
    provided = tuple(
        tag
        for tag in request.provided
        if tag in looks.provided or (looks.package and tag.startswith(PACKAGE_TAG))
    )
    data: dict[str, object] = {}
    for path in sorted(looks.paths):
        value = at_path(request.task_data, path)
        if value is not None:
            *above, name = path.split(".")
            place = data
            for step in above:
                place = place.setdefault(step, {})  # type: ignore[assignment] # nested dicts
            place[name] = value
    return request.model_copy(
        update={
            "provided": provided,
            "groups": (),
            "task_data": data,
            "package": request.package if looks.package else None,
            "scope": request.scope if looks.scope else None,
            "workspace": request.workspace if looks.workspace else None,
            "requester": request.requester if looks.submitter else None,
        }
    )


def in_order(requests: Iterable[Request]) -> tuple[Request, ...]:
    """Return requests in the order in which Debusine serves them."""
    return tuple(sorted(requests, key=lambda request: (-request.priority, *_age(request))))


def _age(request: Request) -> tuple[str, int]:
    return (str(request.pending_since), int(request.id))
