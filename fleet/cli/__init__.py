"""The commands of the core, one module each, with its arguments and its run.

Start with program.py, which has the table of commands; console.py is the only module that prints.
"""
