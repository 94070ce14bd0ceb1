"""Sentences of decisions: one function per code.

The planner and explain fill `because` and `message` from here, so this room is below them.
"""
