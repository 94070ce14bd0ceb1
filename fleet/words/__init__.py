"""Functions that write the sentences and figures in the output of fleet.

The planner and explain fill `because` and `message` with them, so this package imports neither.
"""
