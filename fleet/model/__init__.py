"""Plain values: observations, plans, costs.

Start reading with `facts.py` (a World of machines, workers, requests), then `plan.py`.
"""
