"""Hetzner Cloud: servers, snapshots, prices.

Start with `cloud.py`; `machines.py` lists and changes servers, `api.py` calls the API, `images.py`
and `bake.py` create snapshots, `prices.py` reads the price list.
"""
