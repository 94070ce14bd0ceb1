"""This module finds machines that are kept for some work only by a tag that others can provide."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import DebusineQueue, Fleet, Pool
from fleet.tagrules.enforcement import SYSTEM_ONLY, is_workspace_tag


def protection_by_workspace_tag(fleet: Fleet) -> Iterator[Finding]:
    """Warn of `requires` that holds nothing but tags a workspace owner can provide."""
    servers = {name for name, queue in fleet.queues.items() if isinstance(queue, DebusineQueue)}
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool) or not servers & set(pool.serves or servers):
            continue
        if all(map(is_workspace_tag, pool.requires)):
            for number, tag in enumerate(pool.requires):
                yield Finding(
                    "protection-by-workspace-tag",
                    f"every owner of a Debusine workspace can have its requests provide '{tag}', "
                    "so it keeps nobody from these machines",
                    ("pools", name, "requires", number),
                    severity="warning",
                    hint=f"also require a tag that begins with {', '.join(SYSTEM_ONLY)}",
                )
