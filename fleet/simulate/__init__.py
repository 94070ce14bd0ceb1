"""Simulate a fleet.yaml with recorded demand: `fleet simulate`.

Start with `replay.py`. `farm.py` is the scripted world that executes a plan, `figures.py` has the
results, and `report.py` renders them. `explain/recorded_demand.py` turns worlds into jobs.
"""
