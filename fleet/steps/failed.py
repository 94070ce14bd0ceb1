"""This module lets go of machines that failed to boot: their workers never registered.

Their tokens are revoked first, so that none registers while its machine is being deleted. Where
no token can be revoked, they stay and a person is told.
"""

from fleet.census import State
from fleet.draft import Draft
from fleet.plan import Reason
from fleet.schema.model import Boot
from fleet.schema.units import write_duration


def delete_failed(draft: Draft) -> None:
    """Delete what did not register within boot.deadline."""
    if draft.census.tokens is None:
        return
    deadline = (draft.pool.boot if draft.pool else Boot()).deadline
    because = (
        f"its worker did not register within boot.deadline ({write_duration(deadline)}); "
        "its token is revoked first"
    )
    for unit in draft.census.having(State.NEVER_REGISTERED):
        draft.delete(unit, Reason.BOOT_FAILED, because)
