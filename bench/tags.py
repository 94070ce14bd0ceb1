"""This module measures what tags cost: matching in bulk, the allow-list, counting in SQL.

Matching: 100,000 requests in 8,000 signatures, 400 offers. `match_100k_x_400_s` is everything,
grouping requests by signature too. The baseline asks the specification once per request and
worker, one worker per offer: on a sample of the requests, carried on to all; the ratio compares
it with the matching of signatures. `match_growth_signatures_x10` is 80,000 signatures over 8,000.

Counting: 100 pools, two scopes, 100,000 pending rows in 8,000 signatures, PostgreSQL beside this
process. The baseline counts once per pool and scope, as Debusine 0.16 does: on a sample of the
pools, carried on to all.
"""

import sys
from collections import Counter
from collections.abc import Callable
from time import perf_counter

from bench.patterns import measure_patterns
from bench.report import Report
from bench.workload import SCOPES, offers_of, requests_of, signatures_of
from contrib.debusine.sql import Terms
from contrib.debusine.statements import PoolOffer, count_waiting
from fleet.tagrules import Ask, Offer, satisfies
from fleet.tagrules.bulk import match
from fleet.tagrules.debusine import TASK_TYPES
from tests.rigs import postgres
from tests.rigs.debusine_tables import RequestRow, Tables

ROUNDS = 5
REQUESTS = 100_000
SIGNATURES = 8_000
OFFERS = 400
SAMPLE = 1_000
POOLS = 100
SAMPLED_POOLS = 10
CANDIDATES = """SELECT count(*) FROM db_workrequest WHERE status = 'pending'
    AND NOT (worker_id IS NOT NULL) AND task_type = ANY(%s)
    AND scheduler_tags_provided @> %s::varchar(255)[]
    AND scheduler_tags_required <@ %s::varchar(255)[]"""


def measure() -> Report:
    """Return seconds, and each beside its baseline from the same run."""
    figures, ratios = measure_matching()
    for part in (measure_patterns, measure_sql):
        more_figures, more_ratios = part()
        figures |= more_figures
        ratios |= more_ratios
    return Report(
        name="tags",
        figures=figures,
        ratios=ratios,
        targets={
            "match_100k_x_400_s": 0.3,
            "match_growth_signatures_x10": 15,
            "patterns_1000_x_100k_s": 2,
        },
        floors={"match_vs_per_request": 100, "sql_vs_per_pool_and_scope": 20},
    )


def measure_matching() -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds for matching in bulk and one by one."""
    offers = offers_of(OFFERS)
    signatures = signatures_of(SIGNATURES)
    requests = requests_of(signatures, REQUESTS)
    whole = best_of(lambda: match(requests, offers))
    bulk = best_of(lambda: match(signatures, offers))
    many = signatures_of(SIGNATURES * 10)
    ten_times = best_of(lambda: match(many, offers))
    sample = requests[:SAMPLE]
    one_by_one = best_of(lambda: match_one_by_one(sample, offers)) * REQUESTS / SAMPLE
    found = match(sample, offers)
    if sum(len(found[ask]) for ask in sample) != match_one_by_one(sample, offers):
        raise SystemExit("bench: the bulk form gives another answer than the specification")
    figures = {
        "match_100k_x_400_s": whole,
        "match_8k_signatures_x_400_s": bulk,
        "match_one_by_one_s": one_by_one,
    }
    return figures, {
        "match_vs_per_request": one_by_one / bulk,
        "match_and_group_vs_per_request": one_by_one / whole,
        "match_growth_signatures_x10": ten_times / bulk,
    }


def match_one_by_one(requests: list[Ask], offers: dict[str, Offer]) -> int:
    """Return how many pairs match, asking about each."""
    return sum(1 for ask in requests for offer in offers.values() if satisfies(ask, offer))


def measure_sql() -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds for counting in one statement, and in one per pool and scope."""
    if because := postgres.why_not():
        print(f"bench: counting in SQL is not measured: {because}", file=sys.stderr)
        return {}, {}
    import psycopg

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


def best_of(measured: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several rounds."""
    took = []
    for _ in range(ROUNDS):
        began = perf_counter()
        measured()
        took.append(perf_counter() - began)
    return min(took)
