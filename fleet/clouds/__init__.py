"""Providers of machines, with one package per kind of provider.

Start with `cloud.py`, the interface of a provider. `kinds.py` is the table of kinds. The section
of a provider in fleet.yaml is in `schema/sources.py`, its stack program in `stacks/<kind>/`.
"""
