"""The rules of life: which machines are kept, created, replaced, drained and deleted, and why.

Start reading with `table.py`, which lists the rules in order, and `rule.py` with their base class.
`begin.py` creates the plan of each pool.
"""
