"""Send each notice once to each channel of fleet.yaml, and retry failed notices later."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from fleet.errors import FleetError
from fleet.model.plan import Notice, Plan
from fleet.ports import Messenger, Tell
from fleet.schema.units import write_count
from fleet.state.store import Store

MOST = 50
"""Maximum notices in one message; the next run sends the remaining notices."""
AGAIN = timedelta(hours=1)
"""Time before a failed notice is sent again, so that a slow server does not delay each run."""
_RETENTION = timedelta(days=400)
"""Time for which a sent notice is recorded; longer than any notice is repeated."""
_SENT = "sent"
_FAILED = "failed"


def send_notices(
    plan: Plan, messengers: Mapping[str, Messenger], store: Store, now: datetime, tell: Tell
) -> None:
    """Send due notices to each channel; print a warning if sending or recording fails."""
    if not (plan.notices and messengers):
        return
    try:
        before = store.notices.read()
        tried: dict[str, tuple[str, datetime]] = {}
        for channel, messenger in messengers.items():
            due = [each for each in plan.notices if _is_due(before, channel, each, now)][:MOST]
            if due:
                result = _send(plan, channel, messenger, due, tell)
                tried |= {f"{channel} {each.key}": (result, now) for each in due}
        if tried:
            old = [key for key, (_, at) in before.items() if at < now - _RETENTION]
            store.notices.write(tried, old)
    except FleetError as error:
        tell(f"fleet: warning: notices: {error}")


def _is_due(
    before: Mapping[str, tuple[str, datetime]], channel: str, notice: Notice, now: datetime
) -> bool:
    result, at = before.get(f"{channel} {notice.key}", ("", None))
    # A clock that was ahead may have recorded a failure in the future.
    return result != _SENT and (at is None or not at <= now < at + AGAIN)


def _send(
    plan: Plan, channel: str, messenger: Messenger, due: Sequence[Notice], tell: Tell
) -> str:
    """Send one message; return the result as a record for the store."""
    count = write_count(len(due), "notice")
    subject = f"fleet {plan.fleet}: {count}"
    text = "\n".join([f"{subject}:", *(f"- {each.said}" for each in due)])
    body: dict[str, object] = {
        "format": "fleet-notices-1",
        "fleet": plan.fleet,
        "time": plan.time.isoformat(),
        "text": text,
        "notices": [each.model_dump(mode="json") for each in due],
    }
    try:
        messenger.send(subject, text, body)
    except FleetError as error:
        tell(f"fleet: warning: notify.{channel}: {error}; tried again in an hour")
        return _FAILED
    tell(f"notify.{channel}: sent {count}")
    return _SENT
