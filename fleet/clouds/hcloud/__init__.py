"""Servers, snapshots and prices of Hetzner Cloud.

Start with `cloud.py`. `machines.py` lists and changes servers, `api.py` calls the API, `images.py`
writes disks to snapshots over `ssh.py`, `prices.py` reads the price list.
"""
