"""Migration to fleet from Resalloc, Copr, or the worker pools of Debusine, and back.

Start with `from_resalloc.py`. `writing.py` writes fleet.yaml, and `delivery.py` delivers exports.
`commands.py` is `fleet import`; `init.py` and `export.py` are the commands of these names.
"""
