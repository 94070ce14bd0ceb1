"""Read Debusine over REST for tests, and write pages of its list."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from fleet.model.facts import Demand, Unknown
from fleet.queues.debusine.rest import DebusineRest
from fleet.schema.model import DebusineQueue
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.replay import PENDING, TOKEN, read_exchange

NOW = datetime(2026, 11, 21, 0, 15, tzinfo=UTC)
LIST = "/api/1.0/work-request/"
STATUS = "/api/1.0/service-status/"
METRICS = "/api/1.0/open-metrics/"
NO_ROWS = b'{"next": null, "previous": null, "results": []}'


def rest(
    url: str,
    *,
    scopes: tuple[str, ...] = ("debian",),
    token: str | None = TOKEN,
    silence: float = 30,
) -> DebusineRest:
    queue = DebusineQueue(kind="debusine", url=url, scopes=list(scopes))
    return DebusineRest(queue, token, silence=silence)


def read_demand(
    url: str, *, scopes: tuple[str, ...] = ("debian",), token: str | None = TOKEN
) -> Demand:
    demand = rest(url, scopes=scopes, token=token).read(NOW).demand
    assert isinstance(demand, Demand), demand
    return demand


def why_unknown(
    url: str,
    *,
    scopes: tuple[str, ...] = ("debian",),
    token: str | None = TOKEN,
    silence: float = 30,
) -> str:
    demand = rest(url, scopes=scopes, token=token, silence=silence).read(NOW).demand
    assert isinstance(demand, Unknown), demand
    return demand.unknown


def row(**overrides: object) -> dict[str, object]:
    body = json.loads(read_exchange(PENDING[0]).answer.body)
    return dict(body["results"][0]) | overrides


def one_page(
    *rows: dict[str, object], next_page: str | None = None, previous_page: str | None = None
) -> Answer:
    body = {"next": next_page, "previous": previous_page, "results": rows}
    return Answer(200, json.dumps(body).encode())


def metrics(pending: Mapping[str, int]) -> Answer:
    """Return what open-metrics tells of these scopes, in Debusine's form."""
    labels = 'backend="",build_architecture="",scope="{}",status="pending",task_name="noop"'
    lines = [
        f'work_requests{{{labels.format(scope)},task_type="Worker"}} {count}.0'
        for scope, count in pending.items()
    ]
    return Answer(200, "\n".join(["# TYPE work_requests gauge", *lines, ""]).encode())


def serving(listed: Callable[[Received], Answer] | Answer, **pending: int) -> Loopback:
    """Return a server that answers so for its lists, and counts so much in these scopes."""

    def answer(received: Received) -> Answer:
        if received.path == METRICS:
            return metrics(pending)
        return listed if isinstance(listed, Answer) else listed(received)

    return Loopback(answer)
