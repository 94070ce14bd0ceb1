"""Where machines come from: a folder per kind of provider.

Begin with `cloud.py`, what the program asks of a provider; `kinds.py` is the table of kinds. What
fleet.yaml says of one is in `schema/sources.py`, its stack's program in `stacks/<kind>/`.
"""
