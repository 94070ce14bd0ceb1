"""The steps of `reconcile` that keep, create, drain and delete machines, grouped by reason.

Start reading with `begin.py`: it creates the plan of each pool and adds the actions that do not
depend on demand. Each other step adds its actions to the plan of one pool, in the order of
`fleet/reconcile.py`.
"""
