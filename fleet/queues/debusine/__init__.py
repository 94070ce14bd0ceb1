"""A Debusine server: what waits, who works, and the workers that fleet registers.

Begin with `database.py`, which reads a whole server over SQL; `rest.py` reads it over REST, and
`registry.py` registers, drains and disables workers.
"""
