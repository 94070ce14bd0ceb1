"""From facts to a plan; `fleet/reconcile.py` lists the steps in order.

On its way to a machine a request is a `Request` (what the queue tells), an `Ordered` in
`demand.Signed` (tags by the rules, signature, place in the order), one of a `demand.Group` (what
alike requests may use, at which cost), one of a `formulation.Block` (groups that the solver need
not tell apart), and then served by a worker or by a `plan.Create`.
Begin with `demand.py`, then `layout.py`, `allocation.py`, `staffing.py`. `inventory.py` says what
exists; `lifecycle/` has one file per group of reasons that a machine comes or
goes.
"""
