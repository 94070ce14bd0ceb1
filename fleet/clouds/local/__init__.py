"""Workers that are processes on this computer.

Begin with `cloud.py`; `machines.py` starts, lists and ends them.
"""
