"""Explain why a request waits, why a pool has its machines, and why a worker is kept.

Start with `request`. `unblock` tries the edits that `loosen` finds. `changes` compares two
versions of fleet.yaml. `recorded_builds` reads the builds of past observations, for `gains` and
`reach`.
"""
