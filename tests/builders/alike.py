"""Group what REST lists as SQL groups it: the plain form, request by request."""

from collections.abc import Iterable

from fleet.model.facts import Demand, Request
from fleet.queues.debusine.rows import groups_of
from fleet.queues.debusine.waiting import NAMED_PATHS, looks_of
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList
from fleet.tagrules.derive import at_path


def grouped(demand: Demand, fleet: Fleet) -> Demand:
    """Return the demand with requests of one kind together, as far as this fleet looks at them.

    Requests that a rule of the allow-list takes are of one kind where the same rules do; the
    oldest stands for them, by its own name.
    """
    found: dict[object, list[Request]] = {}
    allowed = AllowList(fleet, demand.read_at.date())
    for request in demand.requests:
        rules = [match.index for match in allowed.rules_for(request)]
        plain = keeping(request, fleet)
        alike = plain.altered(id="", pending_since=None).model_dump_json()
        kept = keeping(request, fleet, named=True) if rules else plain
        found.setdefault((alike, *rules), []).append(kept)
    oldest = [(min(kept, key=_age), len(kept)) for kept in found.values()]
    environments = demand.environments if looks_of(fleet).environments else {}
    return demand.altered(
        requests=in_order(one.altered(count=n) for one, n in oldest), environments=environments
    )


def keeping(request: Request, fleet: Fleet, *, named: bool = False) -> Request:
    """Return a request with what is looked at, and what its name is made of."""
    looks = looks_of(fleet)
    data: dict[str, object] = {}
    for path in sorted({*looks.paths, *(NAMED_PATHS if named else ())}):
        value = at_path(request.task_data, path)
        if value is not None:
            *above, name = path.split(".")
            place = data
            for step in above:
                place = place.setdefault(step, {})  # type: ignore[assignment] # nested dicts
            place[name] = value
    provided = tuple(tag for tag in request.provided if tag in looks.provided)
    return request.altered(
        provided=provided,
        groups=groups_of(provided),
        task_data=data,
        package=request.package if named else None,
        scope=request.scope if named or looks.scope else None,
        workspace=request.workspace if named or looks.workspace else None,
        requester=request.requester if looks.submitter else None,
    )


def in_order(requests: Iterable[Request]) -> tuple[Request, ...]:
    """Return requests in the order in which Debusine serves them."""
    return tuple(sorted(requests, key=lambda request: (-request.priority, *_age(request))))


def told(demand: Demand) -> Demand:
    """Return the demand without what only a database tells: how long earlier runs took."""
    requests = (each.altered(expected_seconds=None) for each in demand.requests)
    return demand.altered(requests=tuple(requests), history=())


def _age(request: Request) -> tuple[str, int]:
    return (str(request.pending_since), int(request.id))
