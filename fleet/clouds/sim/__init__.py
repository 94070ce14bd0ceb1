"""Simulated machines in a file.

Start with `cloud.py`. `machines.py` is the simulation, `plugin.py` offers it as a Pulumi provider.
"""
