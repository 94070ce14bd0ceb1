"""Records of every kind that a store has: some of each, how they are written and read."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from fleet.model.facts import Ledger, LedgerEntry, MachinePayer, PriceList
from fleet.model.history import MomentFigures, RunObservation, RunSample, Tally
from fleet.model.log import LogEntry
from fleet.model.orders import Hold
from fleet.ports import Charging, Since
from fleet.state.store import Store
from tests.builders import NOW, ago, an_attempt
from tests.builders.versioning import a_manifest, a_version
from tests.ports.stores import a_record

SEEN = MomentFigures(busy=2, idle=1, starting=0, other=0, waiting=3, nanos=120_000_000)
UNREAD = MomentFigures(None, None, None, None, None, None)
SINCE = Since(hour=NOW, day=NOW - timedelta(hours=8), month=NOW - timedelta(days=20, hours=8))
AN_ENTRY = LogEntry(at=NOW, kind="hold", machine="m-1")
MINUTE = timedelta(minutes=1)


def a_sample(*, minutes: float = 0, **pools: MomentFigures) -> RunSample:
    return RunSample(at=ago(minutes=minutes), fleet=SEEN, pools=pools or {"builders": SEEN})


def keep(
    store: Store, *minutes: float, days: float = 35, worlds: Sequence[str] | None = None
) -> None:
    """Keep the worlds of some minutes after NOW."""
    for nth, each in enumerate(minutes):
        world = worlds[nth] if worlds else f'{{"world": {each}}}'
        observed = RunObservation(NOW + each * MINUTE, world, timedelta(days=days))
        store.record_sample(a_sample(minutes=-each), observed)


def kept(store: Store, since: float = -1e6, until: float = 1e6) -> list[bytes]:
    return list(store.moments(NOW + since * MINUTE, NOW + until * MINUTE))


def worlds_of(*minutes: float) -> list[bytes]:
    return [f'{{"world": {each}}}'.encode() for each in minutes]


def a_charge(**overrides: object) -> LedgerEntry:
    defaults = {"hour": NOW, "pool": "builders", "seconds": 60, "money": "0.002"}
    return LedgerEntry.model_validate(defaults | overrides)


def a_charging(*entries: LedgerEntry, **overrides: object) -> Charging:
    defaults = {"since": None, "until": NOW, "currency": "EUR", "entries": entries}
    return Charging.model_validate(defaults | overrides)


def a_payer(machine: str, team: str | None = None, **overrides: object) -> MachinePayer:
    said = {"machine": machine, "pool": "builders", "team": team, "since": NOW}
    return MachinePayer.model_validate(said | overrides)


def a_tally(**overrides: object) -> Tally:
    said = {"month": "2026-11", "kind": "package", "name": "dpkg"}
    return Tally.model_validate(said | overrides)


def a_price_list(**overrides: object) -> PriceList:
    quote = {"price": "0.2219", "month": "138.46", "cores": 8, "memory": 1, "disk": 1}
    defaults = {
        "read_at": NOW,
        "location": "fsn1",
        "currency": "EUR",
        "quotes": {"ccx33": quote | {"architecture": "amd64"}},
        "address": "0.0008",
        "disk": None,
    }
    return PriceList.model_validate(defaults | overrides)


def a_hold(machine: str = "m-1", **overrides: object) -> Hold:
    terms = {"by": "ada", "at": NOW, "until": ago(hours=-2), "reason": "why", "machine": machine}
    return Hold.model_validate(terms | overrides)


def write_all(store: Store) -> None:
    """Write a record of every kind."""
    store.record_stack(a_record())
    store.spend("a", ("one:1",))
    store.record_attempts([an_attempt()])
    store.charge(a_charging(a_charge(), tallies=(a_tally(seconds=60),)))
    store.note_payers((a_payer("m1", "x"),))
    store.save_image_version(a_version(), was=None)
    store.save_manifest(a_manifest())
    keep(store, 0)
    store.place_order(a_hold(), AN_ENTRY)
    store.prices.write({"hetzner": a_price_list()})


READS: Mapping[str, Callable[[Store], object]] = {
    "stacks": lambda store: store.stacks(),
    "runs": lambda store: store.last_runs(1),
    "spent": lambda store: store.spent(),
    "attempts": lambda store: store.attempts(10),
    "prices": lambda store: store.prices.read(),
    "orders": lambda store: store.orders(NOW),
    "log": lambda store: store.read_log(),
    "chain": lambda store: store.log_chain().links,
    "samples": lambda store: store.samples(ago(days=80), ago(days=-40)),
    "moments": kept,
    "ledger": lambda store: store.ledger(SINCE, "EUR"),
    "charged": lambda store: store.charged_since(),
    "tallies": lambda store: store.tallies("2026-11"),
    "waits": lambda store: store.waited(),
    "images": lambda store: store.image_versions(),
    "manifest": lambda store: store.manifest("trixie", a_manifest().version),
}


def read_all(store: Store) -> dict[str, object]:
    """Return the records of each kind that there are."""
    found = {name: read(store) for name, read in READS.items()}
    return {name: each for name, each in found.items() if each and each != Ledger()}
