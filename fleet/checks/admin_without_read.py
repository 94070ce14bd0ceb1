"""This module finds queues whose workers fleet makes without seeing what becomes of them."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import DebusineQueue, Fleet


def admin_without_read(fleet: Fleet) -> Iterator[Finding]:
    """Warn where workers can be told, but not read: no machine would ever be let go."""
    for name, queue in fleet.queues.items():
        if isinstance(queue, DebusineQueue) and queue.admin and not queue.read:
            yield Finding(
                "admin-without-read",
                f"fleet makes workers of queue '{name}', but cannot see which are idle: "
                "it lets none of their machines go",
                ("queues", name, "admin"),
                severity="warning",
                at="key",
                hint="add `read: {env: FLEET_DEBUSINE_DSN}`, a role that "
                "`fleet debusine grants` prints",
            )
