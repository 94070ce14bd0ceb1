"""The command line: `fleet VERB` is VERB.py, with its arguments and its run.

Begin with main.py; console.py is the only place that prints.
"""
