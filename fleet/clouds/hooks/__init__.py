"""Machines that the commands of an operator create and delete.

Begin with `cloud.py`; `machines.py` runs the commands, `interface.py` is what they are given and
print, `memory.py` keeps numbers and ids between runs.
"""
