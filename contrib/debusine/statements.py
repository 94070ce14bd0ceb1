"""Statements for Debusine's database: who can run this request, what can this worker run.

They read the tables of Debusine 0.16; `fleet.tagrules.debusine` says which tags a worker has.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from contrib.debusine.expression import (
    RULE,
    Amounts,
    And,
    Subset,
    Tags,
    bind,
    know_ask,
    know_offer,
)
from contrib.debusine.sql import (
    Source,
    Sql,
    Terms,
    compile_condition,
    is_storable,
    source_of_requests,
    source_of_workers,
    texts,
    weave,
)
from fleet.tagrules.debusine import TYPE_PREFIX, WorkerRow, tags_in
from fleet.tagrules.offers import Ask, Offer
from fleet.tagrules.sources import CLASS

TASK_TYPES = ("Worker", "Server", "Signing")
"""The types of tasks that workers run."""

_WAITING = Sql(
    "r.status = 'pending' AND r.worker_id IS NULL AND r.task_type = ANY(%s::varchar[])",
    (list(TASK_TYPES),),
)
_REQUIRED = Sql("r.scheduler_tags_required")
_PROVIDED = Sql("r.scheduler_tags_provided")
_TYPE = Sql("%s", (TYPE_PREFIX,))
_DYNAMIC = Sql("w.dynamic_metadata")
_STATIC = Sql("w.static_metadata")
_BROUGHT = Subset(Tags.REQUIRES, Tags.PROVIDED)
_ABLE = And(tuple(part for part in RULE.parts if part != _BROUGHT))
_OFFERED: Source = {
    Tags.PROVIDES: Sql("p.provides"),
    Tags.REQUIRES: Sql("p.requires"),
    Tags.EXCLUSIVE: Sql("p.exclusive"),
    Amounts.NUMBERS: Sql("(SELECT * FROM unnest(p.names, p.numbers) AS v(name, number))"),
}
# Requests with equal tags are counted together before anything is compared (`alike`); of what
# they provide only this matters: which of the different wishes of all pools it fulfils. Each
# different set of required tags is then compared with each pool once (`able`).
_COUNT = """
WITH pools AS MATERIALIZED (
    SELECT p.*, dense_rank() OVER (ORDER BY p.requires) AS wish
    FROM jsonb_to_recordset({}) AS p(
        id int, pool text, provides varchar[], requires varchar[], exclusive varchar[],
        names varchar[], numbers numeric[], allowed varchar[], denied varchar[])),
wishes AS MATERIALIZED (SELECT p.wish, p.requires FROM pools AS p GROUP BY 1, 2),
alike AS MATERIALIZED (
    SELECT v.scope_id, r.task_name, r.scheduler_tags_required AS required, {} AS provided,
        count(*) AS requests
    FROM db_workrequest AS r JOIN db_workspace AS v ON v.id = r.workspace_id
    WHERE {} GROUP BY 1, 2, 3, 4),
waiting AS MATERIALIZED (
    SELECT b.scope_id, b.task_name, b.required, w.fulfilled, sum(b.requests) AS requests
    FROM alike AS b CROSS JOIN LATERAL (
        SELECT ARRAY(SELECT p.wish FROM wishes AS p WHERE {} ORDER BY 1) AS fulfilled) AS w
    GROUP BY 1, 2, 3, 4),
able AS MATERIALIZED (
    SELECT a.task_name, a.required, ARRAY(
        SELECT p.id FROM pools AS p
        WHERE CASE WHEN p.allowed IS NULL THEN a.task_name <> ALL(p.denied)
            ELSE a.task_name = ANY(p.allowed) END AND {}) AS ids
    FROM (SELECT DISTINCT task_name, required FROM waiting) AS a)
SELECT p.pool, s.name, sum(b.requests)::bigint
FROM waiting AS b JOIN able AS a USING (task_name, required)
JOIN pools AS p ON p.id = ANY(a.ids) AND p.wish = ANY(b.fulfilled)
JOIN db_scope AS s ON s.id = b.scope_id
GROUP BY 1, 2 ORDER BY 1, 2
"""


@dataclass(frozen=True)
class TaskLists:
    """The names of the tasks that a worker takes; an allow-list replaces the deny-list."""

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    def take(self, task: str) -> bool:
        """Say whether a worker with these lists takes a task."""
        return task in self.allowed if self.allowed is not None else task not in self.denied


def tasks_of(row: WorkerRow) -> TaskLists:
    """Return the names of the tasks that a worker takes."""
    both = {**row.dynamic_metadata, **row.static_metadata}
    allowed = both.get("tasks_allowlist")
    return TaskLists(
        allowed=None if allowed is None else tuple(tags_in(both, "tasks_allowlist")),
        denied=tuple(tags_in(both, "tasks_denylist")),
    )


@dataclass(frozen=True)
class PoolOffer:
    """What the workers of one pool offer, and which tasks they take."""

    offer: Offer
    tasks: TaskLists = field(default_factory=TaskLists)


def requests_for_worker(pool: PoolOffer, terms: Terms) -> Sql:
    """Return the statement for the ids of what a worker may run next, first things first."""
    return weave(
        "SELECT r.id FROM db_workrequest AS r WHERE {} AND {} AND {} "
        "ORDER BY r.priority_base + r.priority_adjustment DESC, r.created_at, r.id",
        _WAITING,
        _takes(pool.tasks),
        compile_condition(
            bind(RULE, know_offer(pool.offer)), source_of_requests(_REQUIRED, _PROVIDED, terms)
        ),
    )


def workers_for_request(ask: Ask, task: str, terms: Terms) -> Sql:
    """Return the statement for the ids and names of the workers that may run a request."""
    source = source_of_workers(Sql("w.provides"), Sql("w.requires"), terms)
    return weave(
        "WITH workers AS (SELECT w.id, w.name, {} AS provides, {} AS requires, "
        "w.dynamic_metadata || w.static_metadata AS metadata FROM db_worker AS w) "
        "SELECT w.id, w.name FROM workers AS w WHERE {} AND {} ORDER BY w.id",
        worker_provides(_DYNAMIC, _STATIC, Sql("w.worker_type")),
        worker_requires(_STATIC),
        _is_taken(task),
        compile_condition(bind(RULE, know_ask(ask)), source),
    )


def count_waiting(pools: Mapping[str, PoolOffer], terms: Terms) -> Sql:
    """Return the one statement for what waits that each pool could run: pool, scope, requests.

    Requests are grouped first and compared afterwards, each different set of required tags once.
    """
    source = {**source_of_requests(Sql("a.required"), Sql("b.provided"), terms), **_OFFERED}
    brought = any(pool.offer.requires for pool in pools.values())
    return weave(
        _COUNT,
        Sql("%s::jsonb", (_written(pools),)),
        _PROVIDED if brought else Sql("ARRAY[]::varchar[]"),
        _WAITING,
        compile_condition(_BROUGHT, source),
        compile_condition(_ABLE, source),
    )


def worker_provides(dynamic: Sql, static: Sql, worker_type: Sql) -> Sql:
    """Return the tags that Debusine takes a worker to provide, as varchar[]."""
    return weave(
        "ARRAY(SELECT t FROM {} WHERE NOT starts_with(t, {}) AND NOT starts_with(t, {}) "
        "UNION SELECT t FROM {} WHERE NOT starts_with(t, {}) UNION SELECT {} || {})::varchar[]",
        _listed(dynamic, "provided_tags"),
        _TYPE,
        Sql("%s", (CLASS,)),
        _listed(static, "provided_tags"),
        _TYPE,
        _TYPE,
        worker_type,
    )


def worker_requires(static: Sql) -> Sql:
    """Return the tags that a worker requires of requests, as varchar[]."""
    return weave("ARRAY(SELECT t FROM {})::varchar[]", _listed(static, "required_tags"))


def _takes(tasks: TaskLists) -> Sql:
    if tasks.allowed is not None:
        return weave("r.task_name = ANY({})", texts(tasks.allowed))
    return weave("r.task_name <> ALL({})", texts(tasks.denied))


def _is_taken(task: str) -> Sql:
    # A list that is JSON null is none; the static metadata comes before the dynamic.
    return Sql(
        "CASE WHEN coalesce(w.metadata -> 'tasks_allowlist', 'null') <> 'null' "
        "THEN w.metadata -> 'tasks_allowlist' @> to_jsonb(%s::text) "
        "ELSE NOT coalesce(w.metadata -> 'tasks_denylist' @> to_jsonb(%s::text), false) END",
        (task, task),
    )


def _listed(metadata: Sql, key: str) -> Sql:
    """Return the rows of a list in a worker's metadata, none where it is no list."""
    found = weave("{} -> {}", metadata, Sql("%s", (key,)))
    return weave(
        "jsonb_array_elements_text("
        "CASE WHEN jsonb_typeof({}) = 'array' THEN {} ELSE '[]' END) AS t",
        found,
        found,
    )


def _written(pools: Mapping[str, PoolOffer]) -> str:
    return json.dumps(
        [
            {
                "id": number,
                "pool": name,
                "provides": _storable(pool.offer.provides),
                "requires": sorted(pool.offer.requires),
                "exclusive": sorted(pool.offer.exclusive),
                "names": [number for number, _ in pool.offer.numbers],
                "numbers": [f"{number:f}" for _, number in pool.offer.numbers],
                "allowed": None if pool.tasks.allowed is None else list(pool.tasks.allowed),
                "denied": list(pool.tasks.denied),
            }
            for number, (name, pool) in enumerate(sorted(pools.items()))
            if all(map(is_storable, pool.offer.requires | pool.offer.exclusive))
        ]
    )


def _storable(tags: Iterable[str]) -> list[str]:
    return sorted(filter(is_storable, tags))
