"""Plain values: what was observed, what is planned, what it costs.

Begin with `facts.py` (a World of machines, workers, requests), then `plan.py`.
"""
