"""Simulated machines, kept in a file.

Begin with `cloud.py`; `machines.py` is the simulation, `plugin.py` offers it to Pulumi.
"""
