"""Reasons why a request waits, a pool has its machines, and a worker is kept or deleted.

Start with `request`. `unblock` searches for edits that help; `changes` compares two fleet.yaml.
`recorded_demand` turns recorded worlds into jobs, for `gains` and `fleet simulate`.
"""
