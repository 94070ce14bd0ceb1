"""A promoter that promotes nothing."""

from datetime import datetime

from fleet.model.plan import Plan
from fleet.ports import Tell
from fleet.state.store import Store


class FakePromoter:
    """A run without images."""

    def promote_all(
        self,
        plan: Plan,  # noqa: ARG002 - the port's own argument
        store: Store,  # noqa: ARG002 - same
        now: datetime,  # noqa: ARG002 - same
        note: Tell,  # noqa: ARG002 - same
        tell: Tell,  # noqa: ARG002 - same
    ) -> tuple[str, ...]:
        return ()
