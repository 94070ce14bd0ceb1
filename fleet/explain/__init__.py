"""Explain why a request waits, why a pool has its machines, and why a worker is kept.

Start with `request`. `unblock` searches for edits that help; `changes` compares two fleet.yaml.
`recorded_demand` turns recorded worlds into jobs, for `gains` and `fleet simulate`.
"""
