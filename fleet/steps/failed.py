"""This module lets go of machines whose workers no registry knows, though they had time to boot.

Their tokens are revoked first, so that none registers while its machine is being deleted. Where
no token can be revoked, they stay and a person is told. A worker that had registered did boot: if
many are not known any more, it is their registry that lost something, and guards refuse that.
"""

from fleet.census import State
from fleet.draft import Draft
from fleet.plan import Reason
from fleet.schema.model import Boot
from fleet.schema.units import write_duration

_LOST = (
    "its worker had registered, but its registry does not know it any more; "
    "its token is revoked first"
)


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
        if unit.name in draft.lost:
            draft.delete(unit, Reason.REGISTRATION_LOST, _LOST)
        else:
            draft.delete(unit, Reason.BOOT_FAILED, because)
