"""A Debusine server: its waiting requests, its workers, and the workers that fleet enrols.

Start with `database.py`, which reads a whole server over SQL. `rest.py` reads a server over REST,
and `registry.py` enrols, drains and disables workers.
"""
