"""Simulate a fleet.yaml with recorded demand: `fleet simulate`.

Start with `replay.py`. `demand.py` turns worlds into jobs and other events, `farm.py` is the
scripted world that executes a plan, and `figures.py` has the results.
"""
