"""Explain why a request waits, why a pool has its machines, and why a worker is kept.

Start with `request`. `search` tries the edits that `loosen` finds. `changes` compares two versions
of fleet.yaml. `builds` reads the builds of past observations, and what allow-list rules gain them.
"""
