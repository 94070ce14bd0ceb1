"""Engines that change stacks: `embedded` in this process, `pulumi` with the Pulumi CLI.

Start with `embedded.py`. `fleet/apply/parallel.py` runs the stacks of several pools concurrently.
"""
