"""Match workers and requests. Start with `offers.py`, which specifies matching.

`requests.py` finds the tags that a request requires, `sources.py` the tags that the workers of a
pool provide.
"""
