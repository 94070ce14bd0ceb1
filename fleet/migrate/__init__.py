"""Migration from Resalloc, Copr or Debusine's pools to fleet, and back.

Start with `from_resalloc.py`. `writing.py` writes fleet.yaml, and `delivery.py` delivers exports.
`commands.py` is `fleet import`; `init.py` and `export.py` are the commands of these names.
"""
