"""What changes stacks: `embedded` in this process, `pulumi` through Pulumi's engine.

Begin with `embedded.py`; `parallel.py` runs the stacks of several pools at once.
"""
