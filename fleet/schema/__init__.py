"""What fleet.yaml may say: `model.Fleet` and its sections, `load` reads one.

Begin with `model.py` for the keys, with `load.py` for how text becomes a Fleet and findings.
"""
