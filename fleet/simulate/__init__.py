"""Simulate a fleet.yaml with recorded demand: `fleet simulate`.

Start with `replay.py`. `farm.py` simulates the systems that execute a plan, `figures.py` has the
results, and `report.py` renders them. `recorded_demand.py` turns worlds into jobs.
"""
