"""Measure counting in SQL, as contrib/debusine does it.

100 pools, two scopes, 100,000 pending rows in 8,000 signatures, PostgreSQL beside this process.
The baseline counts once per pool and scope, as Debusine 0.16 does: on a sample of the pools,
carried on to all.
"""

from collections import Counter

import psycopg

from bench.report import Report
from bench.tags import REQUESTS, SIGNATURES, best_of
from bench.workload import SCOPES, offers_of, requests_of, signatures_of
from contrib.debusine.sql import Terms
from contrib.debusine.statements import TASK_TYPES, PoolOffer, count_waiting
from fleet.tagrules.offers import Ask
from tests.rigs import postgres
from tests.rigs.debusine_tables import RequestRow, Tables

POOLS = 100
SAMPLED_POOLS = 10
CANDIDATES = """SELECT count(*) FROM db_workrequest WHERE status = 'pending'
    AND NOT (worker_id IS NOT NULL) AND task_type = ANY(%s)
    AND scheduler_tags_provided @> %s::varchar(255)[]
    AND scheduler_tags_required <@ %s::varchar(255)[]"""


def measure() -> Report:
    """Return seconds, and each beside its baseline from the same run."""
    figures, ratios = measure_sql()
    return Report(
        name="contrib",
        figures=figures,
        ratios=ratios,
        floors={"sql_vs_per_pool_and_scope": 20},
    )


def measure_sql() -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds for counting in one statement, and in one per pool and scope."""
    if because := postgres.why_not():
        raise SystemExit(f"bench: counting in SQL is not measured: {because}")
    pools = {name: PoolOffer(offer) for name, offer in offers_of(POOLS, plain=True).items()}
    requests = requests_of(signatures_of(SIGNATURES, plain=True), REQUESTS)
    with postgres.running() as url, psycopg.connect(url, autocommit=True) as connection:
        tables = Tables(connection)
        tables.create()
        tables.add_requests(rows_of(requests))
        connection.execute("VACUUM ANALYZE")
        statement = count_waiting(pools, Terms())
        together = best_of(lambda: tables.ask(statement))
        sample = dict(list(pools.items())[:SAMPLED_POOLS])
        each = best_of(lambda: count_each(tables, sample)) * POOLS / SAMPLED_POOLS
        counted: Counter[str] = Counter()
        for pool, _, number in tables.ask(statement):
            counted[pool] += number
        if count_each(tables, sample) != {name: counted[name] for name in sample}:
            raise SystemExit("bench: one statement counts otherwise than one per pool and scope")
    return (
        {"sql_one_statement_s": together, "sql_per_pool_and_scope_s": each},
        {"sql_vs_per_pool_and_scope": each / together},
    )


def rows_of(requests: list[Ask]) -> list[RequestRow]:
    """Return the rows of requests as Debusine stores them."""
    return [
        RequestRow(
            id=number,
            required=tuple(sorted(ask.required)),
            provided=tuple(sorted(ask.provided)),
            scope=SCOPES[number % len(SCOPES)],
        )
        for number, ask in enumerate(requests)
    ]


def count_each(tables: Tables, pools: dict[str, PoolOffer]) -> dict[str, int]:
    """Count what waits for each pool, once per scope: the same rows for every scope."""
    found = {}
    for _ in SCOPES:
        for name, pool in pools.items():
            values = (list(TASK_TYPES), list(pool.offer.requires), list(pool.offer.provides))
            found[name] = tables.connection.execute(CANDIDATES, values).fetchall()[0][0]
    return found
