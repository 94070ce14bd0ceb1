"""This module reads Debusine over REST for tests, and writes pages of its list."""

import json
from datetime import UTC, datetime

from fleet.facts import Demand, Unknown
from fleet.queues.debusine.rest import DebusineRest
from fleet.schema.model import DebusineQueue
from tests.loopback import Answer
from tests.replay import PENDING, TOKEN, read_exchange

NOW = datetime(2026, 11, 21, 0, 15, tzinfo=UTC)
LIST = "/api/1.0/work-request/"
STATUS = "/api/1.0/service-status/"
METRICS = "/api/1.0/open-metrics/"
NO_ROWS = b'{"next": null, "previous": null, "results": []}'


def rest(
    url: str, *, scopes: tuple[str, ...] = ("debian",), token: str | None = TOKEN
) -> DebusineRest:
    queue = DebusineQueue(kind="debusine", url=url, scopes=list(scopes))
    return DebusineRest(queue, token, silence=0.6)


def read_demand(
    url: str, *, scopes: tuple[str, ...] = ("debian",), token: str | None = TOKEN
) -> Demand:
    demand = rest(url, scopes=scopes, token=token).read(NOW).demand
    assert isinstance(demand, Demand), demand
    return demand


def why_unknown(
    url: str, *, scopes: tuple[str, ...] = ("debian",), token: str | None = TOKEN
) -> str:
    demand = rest(url, scopes=scopes, token=token).read(NOW).demand
    assert isinstance(demand, Unknown), demand
    return demand.unknown


def row(**overrides: object) -> dict[str, object]:
    body = json.loads(read_exchange(PENDING[0]).answer.body)
    return dict(body["results"][0]) | overrides


def one_page(*rows: dict[str, object], next_page: str | None = None) -> Answer:
    body = {"next": next_page, "previous": None, "results": rows}
    return Answer(200, json.dumps(body).encode())
