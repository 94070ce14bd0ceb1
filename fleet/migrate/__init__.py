"""Coming from Resalloc, Copr or Debusine's pools, and going back.

Begin with `from_resalloc.py`; `writing.py` writes fleet.yaml, `delivery.py` delivers exports.
"""
