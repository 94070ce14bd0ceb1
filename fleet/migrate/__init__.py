"""Migration from Resalloc, Copr or Debusine's pools, and back.

Start with `from_resalloc.py`; `writing.py` writes fleet.yaml, `delivery.py` delivers exports.
`commands.py` is `fleet import`; `init.py` and `export.py` are the commands of these names.
"""
