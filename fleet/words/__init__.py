"""Sentences and formatted figures that every output of fleet uses.

The planner and explain fill `because` and `message` with them, so this package imports neither.
"""
