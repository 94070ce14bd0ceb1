"""Migration to fleet from Resalloc, Copr, or the worker pools of Debusine, and back.

Start with `from_resalloc.py`. `reading.py` reads their files and writes fleet.yaml.
`commands.py` is `fleet import`; `init.py` and `export.py` are the commands of these names.
"""
