"""The schema of fleet.yaml: `model.Fleet` and its sections; `load` reads a file.

Start reading with `model.py` for the keys, or with `load.py` for the conversion of text to a Fleet
and findings.
"""
