"""Workers that are processes on this computer.

Start with `cloud.py`. `machines.py` starts, lists and stops the processes.
"""
