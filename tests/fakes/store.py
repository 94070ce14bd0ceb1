"""A written store: everything in dictionaries that several stores may share."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from fleet.errors import EngineMismatch, Locked, StoreFailed, StoreMissing, VersionMoved
from fleet.model.facts import (
    Absence,
    Attempt,
    Charge,
    Departure,
    Entry,
    Ledger,
    MachinePayer,
    PriceList,
)
from fleet.model.history import Observed, Sample
from fleet.model.images import Manifest, Move, Version
from fleet.model.log import Chain, Link, LogEntry, Mark, count_expired, linked
from fleet.model.months import Tally
from fleet.model.orders import Order
from fleet.ports import Charging, Noted, Since, StackRecord

_PAYER = {"pool", "scope", "team", "owner", "tags"}


@dataclass
class Shelf:
    """What a store keeps, and for which fleet; `fleet` is empty until it is created."""

    fleet: str = ""
    stacks: dict[str, StackRecord] = field(default_factory=dict)
    runs: list[dict[str, str]] = field(default_factory=list)
    charged_until: datetime | None = None
    entries: list[tuple[str, Entry]] = field(default_factory=list)
    payers: tuple[MachinePayer, ...] = ()
    attempts: dict[tuple[datetime, str], Attempt] = field(default_factory=dict)
    absences: tuple[Absence, ...] = ()
    samples: dict[datetime, Sample] = field(default_factory=dict)
    moments: dict[datetime, bytes] = field(default_factory=dict)
    log: list[tuple[LogEntry, Link]] = field(default_factory=list)
    log_anchor: Mark = field(default_factory=Mark)
    tallies: dict[tuple[str, str, str], Tally] = field(default_factory=dict)
    waiting: dict[str, datetime] = field(default_factory=dict)
    spent: dict[str, set[str]] = field(default_factory=dict)
    orders: dict[str, tuple[Order, str]] = field(default_factory=dict)
    images: dict[tuple[str, str], Version] = field(default_factory=dict)
    manifests: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    rules: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    notified: dict[str, tuple[bool, datetime]] = field(default_factory=dict)
    departures: dict[tuple[str, str], Departure] = field(default_factory=dict)
    prices: dict[str, PriceList] = field(default_factory=dict)
    holder: tuple[str, datetime] | None = None


class FakeStore:
    """One fleet's view of a shelf."""

    def __init__(self, shelf: Shelf, fleet: str) -> None:
        self._kept = shelf
        self._fleet = fleet

    def init(self) -> bool:
        """Create the store; False when it exists."""
        if not self._kept.fleet:
            self._kept.fleet = self._fleet
            return True
        self.stacks()
        return False

    def stacks(self) -> tuple[StackRecord, ...]:
        """Return every stack, sorted by name."""
        return tuple(self._shelf.stacks[name] for name in sorted(self._shelf.stacks))

    def record_stack(self, record: StackRecord) -> None:
        """Remember a stack."""
        known = self._shelf.stacks.get(record.name)
        if known and known.engine != record.engine:
            raise EngineMismatch(f"stack {record.name} belongs to engine {known.engine}")
        if known and known.pool != record.pool:
            self._rename(known.pool, record.pool)
        self._shelf.stacks[record.name] = record

    def _rename(self, old: str, new: str) -> None:
        shelf, name = self._shelf, {"pool": new}
        shelf.entries = [
            (currency, entry.altered(**name) if entry.pool == old else entry)
            for currency, entry in shelf.entries
        ]
        shelf.attempts = {
            key: each.altered(**name) if each.pool == old else each
            for key, each in shelf.attempts.items()
        }
        shelf.payers = tuple(
            each.altered(**name) if each.pool == old else each for each in shelf.payers
        )
        for at, sample in shelf.samples.items():
            pools = dict(sample.pools)
            if old in pools:
                pools.setdefault(new, pools.pop(old))
                shelf.samples[at] = sample.altered(pools=pools)

    def forget_stack(self, name: str) -> None:
        """Drop a stack."""
        self._shelf.stacks.pop(name, None)

    def begin_run(self, *, started: datetime) -> None:
        """Append a run without an end."""
        blank = {"ended": "", "plan": "", "outcome": ""}
        self._shelf.runs.append({"started": started.isoformat()} | blank)

    def record_step(self, *, started: datetime, step: str) -> None:
        """Append a line to the run that was begun then."""
        for run in self._shelf.runs:
            if (run["started"], run["ended"]) == (started.isoformat(), ""):
                run["outcome"] += f"{step}\n"

    def record_run(
        self,
        *,
        started: datetime,
        ended: datetime,
        plan: str,
        outcome: str,
        noted: Noted | None = None,
    ) -> None:
        """Append one run, or end the one that was begun then, and what it says to the log."""
        log, counted = noted or Noted()
        self.append_log(log)
        if counted is not None:
            self._count(counted.tallies)
            self._shelf.waiting = dict(counted.waiting)
        times = {"started": started.isoformat(), "ended": ended.isoformat()}
        begun = {"started": times["started"], "ended": ""}
        self._shelf.runs = [run for run in self._shelf.runs if not begun.items() <= run.items()]
        self._shelf.runs.append(times | {"plan": plan, "outcome": outcome})

    def last_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first."""
        return tuple(reversed(self._shelf.runs[-count:]))

    def ended_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs that carried a plan out."""
        ended = [run for run in self._shelf.runs if run["ended"] and run["plan"]]
        return tuple(reversed(ended[-count:]))

    def record_sample(self, sample: Sample, observed: Observed | None = None) -> None:
        """Remember a sample and what was observed, and thin out what is long past."""
        if observed:
            moments = self._shelf.moments
            if observed.keep:
                moments.setdefault(observed.at, observed.world.encode())
            oldest = observed.at - observed.keep
            self._shelf.moments = {at: each for at, each in moments.items() if at > oldest}
        past = self._shelf.samples
        past[sample.at] = sample
        first: dict[str, datetime] = {}
        for at in sorted(past):
            age = sample.at - at
            ten_minutes = at.isoformat()[:15]
            is_thinned = age > timedelta(days=2)
            if age > timedelta(days=35) or (is_thinned and ten_minutes in first):
                del past[at]
            elif is_thinned:
                first[ten_minutes] = at

    def samples(self, since: datetime, until: datetime) -> tuple[Sample, ...]:
        """Return the samples of a time, the oldest first."""
        kept = sorted(self._shelf.samples.items())
        return tuple(each for at, each in kept if since <= at <= until)

    def moments(self, since: datetime, until: datetime) -> Iterator[bytes]:
        """Yield the worlds of a time, the oldest first."""
        kept = sorted(self._shelf.moments.items())
        yield from (world for at, world in kept if since <= at <= until)

    def some_moments(self, since: datetime, until: datetime, most: int) -> Iterator[bytes]:
        """Yield some of them, the first of each 64."""
        found = [*self.moments(since, until)]
        yield from found[:: -(-len(found) // most) or 1]

    def append_log(self, entries: Sequence[LogEntry]) -> Mark:
        """Append entries to the chain."""
        shelf = self._shelf
        for entry in entries:
            shelf.log.append((entry, linked(self._head, entry)))
        gone = count_expired([entry.at for entry, _ in shelf.log])
        if gone:
            shelf.log_anchor = shelf.log[gone - 1][1].mark
            del shelf.log[:gone]
        return self._head

    @property
    def _head(self) -> Mark:
        return self._shelf.log[-1][1].mark if self._shelf.log else self._shelf.log_anchor

    def read_log(self, since: datetime | None = None) -> tuple[LogEntry, ...]:
        """Return the entries from a moment on."""
        return tuple(e for e, _ in self._shelf.log if since is None or e.at >= since)

    def log_chain(self) -> Chain:
        """Return the log as it is kept."""
        links = tuple(link for _, link in self._shelf.log)
        return Chain(self._shelf.log_anchor, links, self._head)

    def charge(self, charging: Charging) -> bool:
        """Add to the ledger, once."""
        shelf = self._shelf
        if shelf.charged_until != charging.since:
            return False
        shelf.charged_until = charging.until
        if charging.since and charging.until < charging.since:
            shelf.entries = [each for each in shelf.entries if each[1].hour < charging.until]
        shelf.entries += [(charging.currency, entry) for entry in charging.entries]
        self._count(charging.tallies)
        if charging.payers is not None:
            shelf.payers = charging.payers
        return True

    def note_payers(self, payers: Sequence[MachinePayer]) -> None:
        """Note the payers of machines that are to be created."""
        names = {each.machine for each in payers}
        kept = (each for each in self._shelf.payers if each.machine not in names)
        self._shelf.payers = (*kept, *payers)

    def _count(self, tallies: Sequence[Tally]) -> None:
        for each in tallies:
            key = (each.month, each.kind, each.name)
            before = self._shelf.tallies.get(key)
            sums = {
                name: getattr(each, name) + getattr(before, name, 0)
                for name in ("count", "seconds", "nanos")
            }
            self._shelf.tallies[key] = each.altered(**sums)

    def tallies(self, month: str) -> tuple[Tally, ...]:
        """Return what was counted in a month."""
        return tuple(each for key, each in sorted(self._shelf.tallies.items()) if key[0] == month)

    def waited(self) -> Mapping[str, datetime]:
        """Return what waited."""
        return dict(self._shelf.waiting)

    def server_time(self) -> datetime | None:
        """Return None: it has no clock."""
        return None

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return the sums by payer."""
        shelf = self._shelf
        starts = (since.hour, since.day, since.month)
        payers: dict[str, list[Entry]] = {}
        for recorded_in, entry in shelf.entries:
            if since.month <= entry.hour < since.hour + timedelta(hours=1):
                if recorded_in != currency:
                    raise StoreFailed(f"recorded in another currency than {currency}")
                payers.setdefault(entry.model_dump_json(include=_PAYER), []).append(entry)
        charges = [
            Charge(
                **entries[0].model_dump(include=_PAYER),
                seconds=tuple(sum(e.seconds for e in entries if e.hour >= s) for s in starts),
                money=tuple(
                    sum((e.money for e in entries if e.hour >= s), Decimal(0)) for s in starts
                ),
            )
            for entries in payers.values()
        ]
        return Ledger(
            charged_until=shelf.charged_until,
            charges=tuple(sorted(charges, key=lambda charge: charge.model_dump_json())),
            payers=tuple(sorted(shelf.payers, key=lambda payer: payer.machine)),
        )

    def charged_since(self) -> datetime | None:
        """Return the first hour that anything was charged in."""
        return min((entry.hour for _, entry in self._shelf.entries), default=None)

    def absences(self) -> tuple[Absence, ...]:
        """Return the machines that the last run missed."""
        return self._shelf.absences

    def record_absences(self, absences: Sequence[Absence]) -> None:
        """Remember the machines that this run missed."""
        self._shelf.absences = tuple(absences)

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Remember tries."""
        self._shelf.attempts |= {(each.at, each.worker): each for each in attempts}

    def attempts(self, latest: int) -> tuple[Attempt, ...]:
        """Return the latest tries of each way to make machines, the oldest first."""
        tries = [each for _, each in sorted(self._shelf.attempts.items())]
        ways = {(each.pool, each.type, each.market) for each in tries}
        kept = [
            [each for each in tries if (each.pool, each.type, each.market) == way][-latest:]
            for way in ways
        ]
        return tuple(
            each for each in tries if each.result == "starting" or any(each in way for way in kept)
        )

    def spent(self) -> Mapping[str, tuple[str, ...]]:
        """Return each approval that was used, and for which machines."""
        spent = self._shelf.spent.items()
        return {digest: tuple(sorted(machines)) for digest, machines in spent if machines}

    def spend(self, approval: str, machines: Collection[str]) -> None:
        """Use an approval for these machines, each once."""
        self._shelf.spent.setdefault(approval, set()).update(machines)

    def refund(self, approval: str, machines: Collection[str]) -> None:
        """Take back what was not done."""
        self._shelf.spent.get(approval, set()).difference_update(machines)

    def orders(self, now: datetime) -> tuple[Order, ...]:
        """Return the orders in force."""
        kept = sorted(self._shelf.orders.items())
        return tuple(order for _, (order, _) in kept if order.until > now)

    def place_order(self, order: Order, entry: LogEntry, console: str = "") -> None:
        """Write an order down."""
        self.append_log([entry])
        self._shelf.orders[order.key] = (order, console)

    def lift_orders(self, orders: Mapping[str, LogEntry]) -> frozenset[str]:
        """Drop orders."""
        found = self._shelf.orders.keys() & orders.keys()
        for key in sorted(found):
            self.append_log([orders[key]])
            del self._shelf.orders[key]
        return frozenset(found)

    def console(self, order: str) -> str:
        """Return the console kept with a hold."""
        return self._shelf.orders[order][1] if order in self._shelf.orders else ""

    def image_versions(self) -> tuple[Version, ...]:
        """Return every version, by image, the oldest first."""
        return tuple(each for _, each in sorted(self._shelf.images.items()))

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Remember a version in place of what it was."""
        self.move_image_versions([Move(was, version)])

    def move_image_versions(self, moves: Sequence[Move], log: Sequence[LogEntry] = ()) -> None:
        """Remember several versions in place of what they were, all or none."""
        moved = {(move.now.image, move.now.version): move for move in moves}
        for key, move in moved.items():
            if self._shelf.images.get(key) != move.was:
                raise VersionMoved(f"{key} was changed in the meantime")
        self._shelf.images |= {key: move.now for key, move in moved.items()}
        self.append_log(log)

    def forget_image_version(self, image: str, version: str) -> None:
        """Drop a version."""
        self._shelf.images.pop((image, version), None)
        self._shelf.manifests.pop((image, version), None)

    def save_manifest(self, manifest: Manifest) -> None:
        """Remember a manifest."""
        self._shelf.manifests[manifest.image, manifest.version] = manifest

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return a manifest."""
        return self._shelf.manifests.get((image, version))

    def rules_seen(self) -> Mapping[str, tuple[str, datetime]]:
        """Return what was remembered."""
        return dict(self._shelf.rules)

    def see_rules(self, seen: Mapping[str, tuple[str, datetime]]) -> None:
        """Remember it."""
        self._shelf.rules.update(seen)

    def notified(self) -> Mapping[str, tuple[bool, datetime]]:
        """Return what was remembered."""
        return dict(self._shelf.notified)

    def note_notified(self, tried: Mapping[str, tuple[bool, datetime]], before: datetime) -> None:
        """Remember it."""
        kept = {key: each for key, each in self._shelf.notified.items() if each[1] >= before}
        self._shelf.notified = kept | dict(tried)

    def departures(self) -> tuple[Departure, ...]:
        """Return what was noted."""
        return tuple(self._shelf.departures[key] for key in sorted(self._shelf.departures))

    def note_departures(
        self, departures: Collection[Departure], gone: Collection[Departure] = ()
    ) -> None:
        """Note these in place of earlier ones, and forget others."""
        for each in gone:
            self._shelf.departures.pop((each.worker, each.registry), None)
        self._shelf.departures |= {(each.worker, each.registry): each for each in departures}

    def price_lists(self) -> Mapping[str, PriceList]:
        """Return what was kept."""
        return dict(self._shelf.prices)

    def keep_price_list(self, provider: str, prices: PriceList) -> None:
        """Keep it."""
        self._shelf.prices[provider] = prices

    @contextmanager
    def lock(self, owner: str, now: datetime) -> Iterator[str | None]:
        """Hold the lock."""
        if self._shelf.holder:
            raise Locked("another apply holds the lock: {}, since {}".format(*self._shelf.holder))
        self._shelf.holder = (owner, now)
        try:
            yield None
        finally:
            self._shelf.holder = None

    @property
    def _shelf(self) -> Shelf:
        if not self._kept.fleet:
            raise StoreMissing("there is no store")
        if self._kept.fleet != self._fleet:
            raise StoreFailed(f"the store belongs to fleet {self._kept.fleet}")
        return self._kept
