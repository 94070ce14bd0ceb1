"""Simulated machines in a file.

Start with `cloud.py`; `machines.py` is the simulation, `plugin.py` makes it a Pulumi provider.
"""
