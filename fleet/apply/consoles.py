"""Hold machines that failed to boot, and store the end of their console output."""

from datetime import timedelta

from fleet.apply.observe import Sources
from fleet.apply.record import log_of_order
from fleet.errors import FleetError
from fleet.model.orders import FLEET, Hold
from fleet.model.plan import BootHold, Plan
from fleet.planner.lifecycle.held import HOLD_SECONDS
from fleet.ports import ConsoleReader, Tell
from fleet.report.terminal import clean
from fleet.schema.secrets import masked

_MAX_CHARS = 200_000


def hold_failed(plan: Plan, sources: Sources, run: str, note: Tell, tell: Tell) -> None:
    """Keep machines that failed to boot, as planned, and revoke their tokens.

    `run` is the id of this run in the log; `note` writes to the journal of this run.
    """
    now = plan.time
    for each in plan.holds:
        note(f"hold {each.worker}")
        until = now + timedelta(seconds=HOLD_SECONDS)
        hold = Hold(machine=each.worker, by=FLEET, at=now, until=until, reason=each.because)
        try:
            console = end_of(read_console(sources, each.provider, each.machine), each.log)
        except FleetError as error:
            console = ""
            tell(f"{each.pool}: console of {each.worker} is unknown: {error}")
        entry = log_of_order("hold", hold, now, run)
        sources.store.place_order(hold, entry, console)
        tell(f"{each.pool}: {hold.sentence}")
        _revoke(each, sources, tell)


def _revoke(held: BootHold, sources: Sources, tell: Tell) -> None:
    if held.registry is None or held.registry not in sources.registries:
        return
    try:
        sources.registries[held.registry].revoke(held.worker)
    except FleetError as error:
        tell(f"{held.pool}: token of {held.worker} is not revoked: {error}")


def read_console(sources: Sources, provider: str, machine_id: str) -> str:
    """Return a machine's console output. Raises FleetError if the provider stores none."""
    cloud = sources.providers.get(provider)
    if not isinstance(cloud, ConsoleReader):
        raise FleetError(f"provider {provider} does not tell what its machines write")
    return cloud.console(machine_id)


def end_of(text: str, lines: int) -> str:
    """Return the last `lines` of a console output, without control characters and credentials."""
    last = text[-_MAX_CHARS:].splitlines()[-lines:] if lines else []
    return "".join(f"{masked(clean(each))}\n" for each in last)
