"""Decide which machines are kept, created, replaced, drained and deleted (rules of life).

Start reading with `table.py`, which lists the rules in order, and `rule.py`, which has their base
class. `begin.py` creates the plan of each pool.
"""
