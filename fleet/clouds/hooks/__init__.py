"""Machines that an operator's commands create and delete.

Start with `cloud.py`. `machines.py` runs the commands, `interface.py` defines their input and
output, `memory.py` stores numbers and ids between runs.
"""
