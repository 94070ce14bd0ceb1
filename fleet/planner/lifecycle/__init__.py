"""The steps of `reconcile` that keep, make, drain and delete machines, grouped by reason.

Begin with `begin.py`: it starts the plan of each pool and adds, in its order, what goes whatever
waits. Each other step adds its actions to the plan of one pool, in the order of
`fleet/reconcile.py`.
"""
