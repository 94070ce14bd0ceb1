"""A Debusine server: its waiting requests, its workers, and the workers that fleet registers.

Start with `database.py`, which reads a whole server over SQL; `rest.py` reads it over REST, and
`registry.py` registers, drains and disables workers.
"""
