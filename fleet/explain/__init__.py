"""Explain why a request waits, why a pool has its machines, and why a worker is kept.

Start with `request`. `unblock` finds helpful edits. `changes` compares two versions of fleet.yaml.
`recorded_demand` turns observations into jobs, for `gains` and `fleet simulate`.
"""
