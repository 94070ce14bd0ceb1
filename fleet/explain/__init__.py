"""Explain why a request waits, why a pool has its machines, and why a worker is kept.

Start with `request`. `unblock` searches for helpful edits. `changes` compares two fleet.yaml.
`recorded_demand` turns observations into jobs, for `gains` and `fleet simulate`.
"""
