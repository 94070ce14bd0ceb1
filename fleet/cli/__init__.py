"""The command line: `fleet VERB` is VERB.py, with its arguments and its run.

Start with main.py; console.py is the only module that prints.
"""
