"""The rules of life: which machines are kept, created, replaced, drained and deleted, and why.

Start reading with `table.py`, which lists the rules in order, and `rule.py`, which says what a rule
is. `begin.py` creates the plan of each pool.
"""
