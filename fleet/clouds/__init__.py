"""Providers of machines, a package per kind.

Start with `cloud.py`, the interface of a provider; `kinds.py` is the table of kinds. The
provider's section of fleet.yaml is in `schema/sources.py`, its stack program in `stacks/<kind>/`.
"""
