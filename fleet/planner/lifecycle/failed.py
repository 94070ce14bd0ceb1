"""Delete failed machines: never registered, without tags, stopped, disconnected or broken.

The rule for held machines is here too, because fleet can hold a machine that failed to boot.

fleet revokes the token first, so that no worker registers during the deletion. If no registry can
revoke the token, fleet keeps the machine and the plan reports it. If workers that had registered
vanish from their registry, it may have lost data: guards refuse to delete many such machines.

A worker that is connected without tags is replaced: its queue asks for tags only once per hour. An
idle worker that is disconnected for long is replaced, unless its queue hears no worker at all (the
queue or its network is down). A machine that its provider repeatedly found broken gets no new work
and is deleted when idle; while the machine boots, only boot.deadline counts. Work on a stopped
machine has ended.

fleet finishes the steps of an interrupted apply with their recorded inputs. It drops a creation
that has no machine yet if fleet.yaml no longer wants it, or if failures close its option. Nothing
changes in a paused pool.
"""

from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from fleet.model.facts import market_of
from fleet.model.orders import FLEET
from fleet.model.plan import BootHold, Cause, Reason
from fleet.model.pool_limits import boot_of
from fleet.planner.failures import describe_creations
from fleet.planner.inventory import rule_of_absence
from fleet.planner.lifecycle.rule import LifeLimit, LifeRule, MachineLife
from fleet.planner.pool_plan import (
    PoolPlan,
    Why,
    is_going,
)
from fleet.planner.units import (
    DEAF_GRACE,
    DISCONNECTED_GRACE,
    Unit,
    UnitState,
    has_failed,
    hears_others,
    seconds_away,
    why_late,
)
from fleet.schema.model import TicketQueue, is_named_by_fleet
from fleet.words import lives

CONFIRMATION_DELAY = timedelta(minutes=10)
"""Minimum time between the first listing of an orphan and the listing that confirms it."""


class OrphanMachine(LifeRule):
    """Rule that deletes orphans: machines whose ticket ended and that no stack records.

    A machine of an interrupted apply is no orphan: fleet resumes its creation. A machine whose
    name fleet would not choose is no orphan either: an operator may be adopting it. Because one
    listing may be wrong, a machine gets no ticket after the first listing, and is deleted after a
    listing ten minutes later. If a pool has no stack, none of its machines is an orphan.
    """

    def apply(self, pool_plan: PoolPlan) -> None:
        """Drain orphans, and delete an orphan after a second listing."""
        inventory = pool_plan.inventory
        desk = inventory.tokens and pool_plan.fleet.queues.get(inventory.tokens)
        serves_tickets = pool_plan.pool is not None and isinstance(desk, TicketQueue)
        if not serves_tickets or inventory.stack is None or not pool_plan.may_remove:
            return
        for unit in inventory.having(UnitState.UNRECORDED):
            pool, name = unit.machine.pool if unit.machine else "", unit.name
            # Skip names that a stack records: orders of operators refer to machines by name.
            is_recorded = name in inventory.stack.ids
            if is_recorded or not is_named_by_fleet(pool_plan.fleet.fleet, pool, name):
                continue
            since = unit.worker.since if unit.worker and unit.worker.draining else None
            if unit.worker is not None and unit.may_run:
                because = lives.explain_busy_orphan(unit.worker.running)
                pool_plan.keep(unit, Reason.ORPHAN, because)
                continue
            drained = None if since is None else pool_plan.world.time - since
            # A stopped machine is of no use to its ticket.
            because = lives.explain_orphan(unit.work_in_vain, CONFIRMATION_DELAY, drained)
            if drained is None:
                told = replace(unit, registry=pool_plan.inventory.tokens)
                pool_plan.drain(told, Reason.ORPHAN, because)
            elif drained < CONFIRMATION_DELAY:
                pool_plan.keep(unit, Reason.ORPHAN, because)
            else:
                # `since` is the first listing or the end of the machine's last ticket. That ticket
                # proves an earlier listing, so the machine can be deleted in both cases.
                pool_plan.delete(unit, Reason.ORPHAN, because)


class DeafWorker(LifeRule):
    """Rule that deletes machines whose worker stays connected but reports no tags."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete workers that are connected for long but report no tags."""
        for unit in pool_plan.inventory.having(UnitState.DEAF):
            pool_plan.delete(unit, Reason.DEAF, lives.explain_deaf(DEAF_GRACE))


class StoppedMachine(LifeRule):
    """Rule that deletes machines that are switched off."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete stopped machines. They have no work, whatever a registry reports."""
        for unit in pool_plan.inventory.having(UnitState.STOPPED):
            if not unit.awaits_token:
                pool_plan.delete(unit, Reason.STOPPED, lives.explain_stopped(unit.work_in_vain))
            elif pool_plan.inventory.tokens is None or not pool_plan.inventory.has_registry:
                continue
            elif unit.name in pool_plan.lost:
                pool_plan.delete(unit, Reason.REGISTRATION_LOST, lives.REGISTRATION_LOST)
            else:
                pool_plan.delete(unit, Reason.BOOT_FAILED, lives.NEVER_CAME)


class DisconnectedWorker(LifeRule):
    """Rule that deletes machines whose idle worker is disconnected for long."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete idle workers that are long disconnected from a working queue.

        Keep busy workers, because they may reconnect with their running work.
        """
        for unit in pool_plan.inventory.having(UnitState.DISCONNECTED):
            away = seconds_away(pool_plan.world, unit.worker)
            if away > DISCONNECTED_GRACE and hears_others(pool_plan.world, unit.registry or ""):
                pool_plan.delete(unit, Reason.DISCONNECTED, lives.explain_disconnected(away))


class BrokenMachine(LifeRule):
    """Rule that replaces machines whose provider or port reports a failure."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Drain and replace broken machines, or delete disconnected machines."""
        for unit in pool_plan.inventory.units:
            if not has_failed(unit.machine) or unit.name in pool_plan.leaving:
                continue
            misses = unit.machine.misses if unit.machine else None
            failure = lives.explain_silent_port(misses) if misses else lives.FAILED
            if unit.state in (UnitState.IDLE, UnitState.BUSY, UnitState.DRAINING):
                pool_plan.replace_by_new(unit, Reason.LIVECHECK_FAILED, failure)
            if unit.state in (UnitState.IDLE, UnitState.BUSY) and not is_going(unit):
                pool_plan.drain(unit, Reason.LIVECHECK_FAILED, failure)
            elif unit.state is UnitState.DISCONNECTED:
                pool_plan.delete(unit, Reason.LIVECHECK_FAILED, lives.explain_broken(failure))


class FailedBoot(LifeRule):
    """Rule that deletes machines that did not register, or become ready, in time."""

    clock: ClassVar = "boot"
    keys: ClassVar = {
        Reason.BOOT_FAILED: ("boot", "deadline"),
        Reason.NEVER_REGISTERED: ("boot", "deadline"),
    }

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return the maximum boot time of a machine (`boot.deadline`)."""
        boot = boot_of(life.pool)
        return LifeLimit("boot", boot.deadline, boot.key)

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete or hold machines that did not register, or become ready, in time."""
        late = pool_plan.inventory.having(UnitState.NEVER_REGISTERED)
        ready = pool_plan.pool.ready if pool_plan.pool else None
        lost = lives.explain_lost_port(ready.port) if ready else ""
        because = why_late(pool_plan.pool, revoked=not lost)
        for unit in late if pool_plan.inventory.tokens is not None else ():
            expires = unit.worker.token_expires if unit.worker else None
            if unit.name in pool_plan.lost and lost:
                pool_plan.delete(unit, Reason.LIVECHECK_FAILED, lost)
            elif unit.name in pool_plan.lost:
                pool_plan.delete(unit, Reason.REGISTRATION_LOST, lives.REGISTRATION_LOST)
            else:
                has_expired = expires is not None and expires <= pool_plan.world.time
                hold_or_delete(pool_plan, unit, lives.CAME_TOO_LATE if has_expired else because)


HOLD_SECONDS = 86400
"""Seconds for which fleet holds a machine that failed to boot."""


def hold_or_delete(pool_plan: PoolPlan, unit: Unit, because: str) -> None:
    """Hold a machine that failed to boot, or delete it.

    Hold the machine unless fleet already holds `boot.on_failure.hold` machines of the pool. Only
    the run that detects the failure holds a machine, so a released machine is deleted.
    """
    wanted = boot_of(pool_plan.pool).on_failure
    held = [each for each in pool_plan.inventory.units if each.held and each.held.by == FLEET]
    room = wanted.hold - len(held) - len(pool_plan.holds) if wanted else 0
    is_new = any(
        attempt.worker == unit.name and attempt.result == "starting"
        for attempt in pool_plan.world.attempts
    )
    is_held = wanted is not None and room > 0 and is_new and pool_plan.may_remove
    if wanted is None or not is_held or unit.machine is None or unit.held:
        pool_plan.delete(unit, Reason.BOOT_FAILED, because)
        return
    message = lives.explain_failed_boot(because)
    pool_plan.holds.append(
        BootHold(
            pool=pool_plan.name,
            worker=unit.name,
            provider=pool_plan.inventory.provider,
            machine=unit.machine.id,
            registry=pool_plan.inventory.tokens if unit.awaits_token else None,
            log=wanted.log,
            because=message,
        )
    )
    pool_plan.keep(unit, Reason.HELD, lives.explain_held_boot(HOLD_SECONDS, message))


class GoneMachine(LifeRule):
    """Rule that removes machines from their stack if their provider no longer has them."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete vanished machines, and keep missing machines that may return.

        If a vanished machine has a ticket, remove its record from the stack; the ticket fails.
        """
        provider = pool_plan.inventory.provider
        absences = {
            each.name: each for each in pool_plan.world.absences if each.provider == provider
        }
        rule = rule_of_absence(pool_plan.fleet, provider)
        for unit in pool_plan.inventory.having(UnitState.MISSING):
            if absence := absences.get(unit.name):
                because = lives.explain_absent(
                    absence.since,
                    absence.lists,
                    rule.lists,
                    rule.after,
                    provider,
                    bool(absence.works),
                )
                pool_plan.keep(unit, Reason.NOT_KNOWN, because)
        for unit, gone in pool_plan.inventory.gone:
            if unit.may_run and unit.worker is not None:
                because = lives.explain_gone(gone, unit.worker.running)
                pool_plan.delete(unit, Reason.GONE, because, forgets=True, absent="gone")
            else:
                has_ended = unit.worker is not None and unit.worker.uses
                reason = Reason.TICKET_RETURNED if has_ended else Reason.GONE
                pool_plan.delete(unit, reason, lives.explain_gone(gone, None), absent="gone")


class InterruptedRun(LifeRule):
    """Rule that repeats creations and deletions that an earlier, killed apply did not finish."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Repeat the unfinished creations and deletions of an earlier apply."""
        if pool_plan.inventory.blind or pool_plan.mode == "pause":
            return
        _finish_creations(pool_plan)
        for unit in pool_plan.inventory.having(UnitState.UNDELETED):
            pool_plan.delete(unit, Reason.INTERRUPTED, _explain_undeleted(unit))


def _explain_undeleted(unit: Unit) -> str:
    if unit.machine is None:
        return lives.DELETED_UNLISTED
    since = unit.machine.deleting_since
    if since is None and unit.machine.trouble:
        return lives.DELETION_FAILED
    return lives.DELETION_INTERRUPTED if since is None else lives.explain_undeleted(since)


def _finish_creations(pool_plan: PoolPlan) -> None:
    units = pool_plan.inventory.having(UnitState.UNFINISHED)
    # Existing machines count to max in any case.
    held = len(pool_plan.inventory.units) - sum(unit.machine is None for unit in units)
    most = 0 if pool_plan.unwanted else pool_plan.size.max
    failures = describe_creations(pool_plan.memory, pool_plan.name)
    for unit in units:
        if unit.inputs is None:
            continue
        failed = failures.get(unit.name, "")
        # A creation that fails in every run would keep its request away from working pools.
        way = unit.inputs.type, market_of(unit.inputs)
        reasons = (o.closed for o in pool_plan.options if (o.type, o.market) == way)
        closed = by.reason if (by := next(reasons, None)) else ""
        if unit.machine is None and (closed or held >= most):
            because = lives.explain_unmade(failed, closed)
            pool_plan.delete(unit, Reason.INTERRUPTED, because, absent="unmade")
            continue
        exists = unit.machine is not None
        held += not exists
        because = lives.explain_again(failed, exists)
        why = Why(Reason.INTERRUPTED, Cause.KNOWLEDGE, because, exists=exists)
        # The listing order of a stack must not change the bytes of a plan.
        labels, settings = sorted(unit.inputs.labels.items()), sorted(unit.inputs.settings.items())
        inputs = unit.inputs.altered(labels=dict(labels), settings=dict(settings))
        pool_plan.create(inputs, why)


class HeldMachine(LifeRule):
    """Rule that keeps machines held by an operator, or by fleet after a failed boot.

    A held machine gets no new work and is not deleted: fleet drains its worker. After the hold,
    the worker gets work again, unless it was drained for another reason, or there is a reason to
    delete the machine.
    """

    def apply(self, pool_plan: PoolPlan) -> None:
        """Keep and drain held machines. The reason names the holder."""
        for unit in pool_plan.inventory.units:
            if unit.held is None:
                continue
            because = lives.describe_hold(unit.held.said)
            pool_plan.keep(unit, Reason.HELD, because)
            states = (UnitState.IDLE, UnitState.BUSY, UnitState.DISCONNECTED)
            if unit.state in states and not (unit.worker and unit.worker.draining):
                # If a machine registers during fleet's hold, it is deleted as a failed boot.
                reason = Reason.BOOT_FAILED if unit.held.by == FLEET else Reason.HELD
                pool_plan.drain(unit, reason, because)
