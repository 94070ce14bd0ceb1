"""The steps of `reconcile` that keep, drain and delete machines, one per file.

Begin with `begin.py`: it starts the plan of each pool and adds what goes whatever waits. Each
other step adds its actions to the plan of one pool, in the order of `fleet/reconcile.py`.
"""
