"""The commands of the core: one module per command, with its arguments and its run.

Start with program.py, which has the table of commands; only console.py prints.
"""
