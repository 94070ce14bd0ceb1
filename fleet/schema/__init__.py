"""The schema of fleet.yaml: `model.Fleet` and its sections; `load` reads a file.

Start with `model.py` for the keys, or with `load.py`, which turns text into a Fleet and findings.
"""
