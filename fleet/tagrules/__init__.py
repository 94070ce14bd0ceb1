"""Which worker may run which request. Begin with `offers.py`, the specification of matching.

`requests.py` says what a request asks for, `sources.py` what a pool's workers provide.
"""

from fleet.tagrules.offers import (
    Ask,
    Mismatch,
    Offer,
    ask_of_tags,
    find_doubts,
    find_mismatch,
    offer_of_pool,
    offer_of_tags,
    offer_of_worker,
    satisfies,
)
from fleet.tagrules.sources import EXTERNAL_WORKER, Doubt, newest_first, newest_version

__all__ = [
    "EXTERNAL_WORKER",
    "Ask",
    "Doubt",
    "Mismatch",
    "Offer",
    "ask_of_tags",
    "find_doubts",
    "find_mismatch",
    "newest_first",
    "newest_version",
    "offer_of_pool",
    "offer_of_tags",
    "offer_of_worker",
    "satisfies",
]
