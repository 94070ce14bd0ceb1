"""Which worker may run which request. Begin with `offers.py`, the specification of matching.

`requests.py` says what a request asks for, `sources.py` what a pool's workers provide.
"""
