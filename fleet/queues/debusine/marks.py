"""This module names what fleet writes into the static metadata of a worker's row.

Logged-in users of the server can read it: nothing in it is secret. A row is ours only where FLEET
holds the name of this fleet.
"""

FLEET = "fleet:fleet"
"""Name of the fleet whose worker it is, compared whole."""
POOL = "fleet:pool"
"""Name of the worker's pool when it was enrolled."""
MACHINE = "fleet:machine"
"""Name of the machine that the worker runs on."""
BEFORE_DRAIN = "fleet:before-drain"
"""While fleet drains a worker: what it overwrote for that; empty where nothing was there."""

TASKS_ALLOWLIST = "tasks_allowlist"
"""Debusine's own list of the tasks that a worker takes; fleet drains by emptying it."""

PROVIDED_TAGS = "provided_tags"
REQUIRED_TAGS = "required_tags"
"""Debusine's own keys for the tags that an administrator gives a worker: those of its pool."""
