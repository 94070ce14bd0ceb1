"""The words of every surface: sentences of decisions, and figures in text.

The planner and explain fill `because` and `message` from here, so this room is below them.
"""
