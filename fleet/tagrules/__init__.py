"""This package decides what may run where; `offers` is its specification."""

from fleet.tagrules.offers import (
    EXTERNAL_WORKER,
    Ask,
    Mismatch,
    Offer,
    ask_of_tags,
    find_mismatch,
    offer_of_pool,
    offer_of_tags,
    satisfies,
    serves_queue,
)

__all__ = [
    "EXTERNAL_WORKER",
    "Ask",
    "Mismatch",
    "Offer",
    "ask_of_tags",
    "find_mismatch",
    "offer_of_pool",
    "offer_of_tags",
    "satisfies",
    "serves_queue",
]
