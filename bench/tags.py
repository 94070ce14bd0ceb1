"""Measure what tags cost: matching in bulk and the allow-list.

Matching: 100,000 requests in 8,000 signatures, 400 offers. `match_100k_x_400_s` is everything,
grouping requests by signature too. The baseline asks the specification once per request and
worker, one worker per offer: on a sample of the requests, carried on to all; the ratio compares
it with the matching of signatures. `match_growth_signatures_x10` is 80,000 signatures over 8,000.
"""

from collections.abc import Callable
from time import perf_counter

from bench.patterns import measure_patterns
from bench.report import Report
from bench.workload import offers_of, requests_of, signatures_of
from fleet.tagrules.offers import Ask, Offer, match, satisfies

ROUNDS = 5
REQUESTS = 100_000
SIGNATURES = 8_000
OFFERS = 400
SAMPLE = 1_000


def measure() -> Report:
    """Return seconds, and each beside its baseline from the same run."""
    figures, ratios = measure_matching()
    more_figures, more_ratios = measure_patterns()
    return Report(
        name="tags",
        figures=figures | more_figures,
        ratios=ratios | more_ratios,
        targets={"match_growth_signatures_x10": 15},
        floors={"match_vs_per_request": 100},
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


def best_of(measured: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several rounds."""
    took = []
    for _ in range(ROUNDS):
        began = perf_counter()
        measured()
        took.append(perf_counter() - began)
    return min(took)
