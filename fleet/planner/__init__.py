"""Turn observed facts into a plan; `fleet/reconcile.py` lists the steps in order.

A request is represented in turn as a `Request` (reported by the queue), an `Ordered` in
`demand.EqualRequests` (with tags by the rules, signature and queue position), a member of a
`RequestGroup` (requests with equal eligible places and costs), and a member of a
`formulation.Block` (groups that are equivalent for the solver). It is then assigned to a worker or
to a `plan.Create`.

Start reading with `pool_plan.py`, which collects the actions of one pool, then `demand.py`,
`layout.py`, `allocation.py`, `staffing.py` and `assembly.py`, which combines all into the plan.
`inventory.py` has the observed state; `lifecycle/` has one file per group of reasons to create or
delete a machine. Only explanations and comparisons use `forecast.py` and `step.py`.
"""
