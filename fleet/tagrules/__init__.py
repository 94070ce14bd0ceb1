"""Match workers and requests by tags. Start with `offers.py`, which specifies the matching.

`requests.py` finds the tags that a request requires, `sources.py` the tags that the workers of a
pool provide.
"""
