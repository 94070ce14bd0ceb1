"""Why a request waits, why a pool has its machines, why a worker stays or goes.

Begin with `request`; `unblock` searches for edits that help, `changes` compares two fleet.yaml.
"""
