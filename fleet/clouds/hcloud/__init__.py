"""Hetzner Cloud: servers, snapshots, prices.

Begin with `cloud.py`; `machines.py` lists and changes servers, `api.py` talks to the API,
`images.py` and `bake.py` make snapshots, `prices.py` reads the price list.
"""
