"""Matching of workers and requests. Start with `offers.py`, the specification of matching.

`requests.py` determines the tags that a request requires, `sources.py` those that a pool's workers
provide.
"""
