"""Immutable data types: observations, plans and costs.

Start reading with `facts.py` (a World of machines, workers, requests), then `plan.py`.
"""
