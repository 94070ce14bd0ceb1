"""The commands of the core. Each module has the arguments and the function of one command.

Start with `fleet/program.py`, which has the table of commands. Only console.py prints.
"""
