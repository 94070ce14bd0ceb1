"""Draw fleets and worlds in which money and time depend on everything that may decide them."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from fleet.model.facts import Charge, Ledger, Request, Work, Worker, World
from fleet.schema.model import Fleet
from tests.builders import (
    a_listing,
    a_machine,
    a_pool,
    a_request,
    a_sim_fleet,
    a_stack,
    a_worker,
    a_world,
    some_inputs,
)

TYPES = {
    "four": {"cores": 4, "memory": "16GiB", "disk": "160GiB", "price": "0.0777 EUR/h"},
    "many": {"cores": 64, "memory": "128GiB", "disk": "400GiB", "price": "1.111 USD/h"},
    "fast": {
        "cores": 8,
        "memory": "32GiB",
        "disk": "80GiB",
        "price": "0.31 EUR/h",
        "speed": "230%",
    },
}
CADENCES = {60: "1m", 300: "5m", 600: "10m"}
STARTS = datetime(2026, 10, 20, tzinfo=UTC)
"""Around a change of the clock, and the end of a month."""
MOMENTS = st.integers(0, 20 * 86400).map(lambda second: STARTS + timedelta(seconds=second))
LENGTHS = st.sampled_from([None, 1, 90, 600, 1799, 1800, 3600, 20_000, 90_000])
PAYERS = st.sampled_from([None, "debian", "kali"])
PACKAGES = ("hello", "chromium")


@st.composite
def billings(draw: st.DrawFn) -> dict[str, object]:
    """Return how the simulated provider bills."""
    optional: dict[str, st.SearchStrategy[object]] = {
        "minimum": st.sampled_from(["2m", "90m"]),
        "hours_per_month": st.sampled_from([3, 50, 624]),
        "address": st.just("0.0008 EUR/h"),
        "disk": st.just("0.0001 EUR/h"),
    }
    chosen = {key: draw(each) for key, each in optional.items() if draw(st.booleans())}
    return {"increment": draw(st.sampled_from(["1s", "1m", "1h"])), **chosen}


@st.composite
def priced_pools(draw: st.DrawFn, *, is_warm: bool) -> dict[str, object]:
    """Return pools of one or two types with their own life, disk and price.

    `is_warm`: some keep machines without work.
    """
    warm = st.sampled_from([0, 0, 0, 1] if is_warm else [0])
    made: dict[str, object] = {}
    for name in sorted(
        draw(st.sets(st.sampled_from(["builders", "second", "tagged"]), min_size=1))
    ):
        kinds = draw(st.lists(st.sampled_from([*TYPES]), min_size=1, max_size=2, unique=True))
        machine: dict[str, object] = {"type": kinds}
        if draw(st.booleans()):
            machine["disk"] = "200GiB"
        if len(kinds) == 1 and not draw(st.integers(0, 3)):
            machine["price"] = "0.50 EUR/h"
        made[name] = a_pool(
            provider="desk",
            machine=machine,
            max=draw(st.integers(0 if is_warm else 1, 6)),
            min=draw(warm),
            spare=draw(warm),
            target_wait=draw(st.sampled_from([None, None, "30m", "3h"])),
            retire={
                "idle_after": draw(st.sampled_from(["1s", "10m", "15m", "2h"])),
                "at": draw(st.sampled_from([None, "once"])),
            },
            provides=["big"] if name == "tagged" else [],
            boot={"expected": draw(st.sampled_from(["10s", "4m"]))},
            **({"budget": {"per_day": "9 EUR"}} if draw(st.booleans()) else {}),
        )
    return made


DURATIONS: list[dict[str, object]] = [
    {},
    {"any": "40m"},
    {"sbuild": [{"match": "chromium", "takes": "26h", "machine": "four"}, {"takes": "20m"}]},
    {"sbuild": [{"takes": "2h", "cores": 16, "parallel": "70%"}], "any": "5m"},
]


@st.composite
def priced_fleets(draw: st.DrawFn, *, is_warm: bool = True) -> Fleet:
    """Return a fleet whose prices, speeds, lives and budgets differ."""
    return a_sim_fleet(
        providers={"desk": {"kind": "sim", "types": TYPES, "billing": draw(billings())}},
        queues={"debian": {"kind": "world", "path": "world.json", "deadline": "20h"}}
        if draw(st.booleans())
        else {"debian": {"kind": "world", "path": "world.json"}},
        pools=draw(priced_pools(is_warm=is_warm)),
        durations=draw(st.sampled_from(DURATIONS)),
        cadence=draw(st.sampled_from([*CADENCES.values()])),
        money={
            "currency": "EUR",
            "exchange": {"USD": {"rate": 0.93719, "as_of": "2026-10-01"}},
            "time_zone": draw(st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"])),
        },
        budgets=draw(st.sampled_from([{}, BUDGETS])),
        tags={"big": {"on_demand": draw(st.booleans())}},
    )


BUDGETS: dict[str, object] = {
    "all": {"per_day": "900 EUR", "per_month": "900 EUR", "machine_hours_per_month": 900},
    "kali": {"scope": "kali", "per_month": "70 EUR"},
}


@st.composite
def priced_requests(draw: st.DrawFn, now: datetime, most: int = 6) -> tuple[Request, ...]:
    """Return waiting requests of two packages, some of them a group."""
    return tuple(
        a_request(
            id=str(number),
            package=draw(st.sampled_from(PACKAGES)),
            required=draw(st.sampled_from([[], [], ["big"]])),
            expected_seconds=draw(LENGTHS),
            count=draw(st.sampled_from([1, 1, 1, 3])),
            scope=draw(st.sampled_from(["debian", "kali"])),
            pending_since=now - timedelta(minutes=draw(st.integers(0, 300))),
        )
        for number in range(draw(st.integers(0, most)))
    )


@st.composite
def priced_worlds(draw: st.DrawFn, fleet: Fleet) -> World:
    """Return a world with machines of any age, charged up to a moment before it."""
    now = draw(MOMENTS)
    workers: list[Worker] = []
    machines, stacks = [], {}
    for name in sorted(fleet.dynamic_pools):
        own = []
        for number in range(draw(st.integers(0, 3))):
            created = now - timedelta(seconds=draw(st.sampled_from([0, 59, 3600, 3601, 200_000])))
            kind = draw(st.sampled_from(sorted(TYPES)))
            named = f"debian-ci-{name}-{number + 1:04}"
            inputs = some_inputs(name=named, type=kind)
            own.append(inputs)
            machines.append(
                a_machine(name=named, id=named, pool=name, type=kind, created_at=created)
            )
            busy, began = draw(st.booleans()), max(created, now - timedelta(minutes=30))
            work = Work(
                task="sbuild",
                scope=draw(PAYERS),
                package=draw(st.sampled_from(PACKAGES)),
                started_at=began,
                expected_seconds=draw(LENGTHS),
            )
            workers.append(
                a_worker(
                    name=named,
                    pool=name,
                    busy=busy,
                    work=work if busy else None,
                    since=began,
                )
            )
        stacks[name] = a_stack(
            provider="desk", workers=tuple(own), ids={each.name: each.name for each in own}
        )
    charged = now - timedelta(seconds=draw(st.sampled_from([0, 1, 600, 4000])))
    return a_world(
        time=now,
        queues={
            "debian": {
                "demand": {"read_at": now, "requests": draw(priced_requests(now))},
                "workers": None,
            }
        },
        providers={"desk": a_listing(*machines, workers=tuple(workers), read_at=now)},
        stacks=stacks,
        ledger=Ledger(charged_until=charged, charges=draw(charges())),
        runs=(now - timedelta(seconds=fleet.cadence),),
    )


@st.composite
def charges(draw: st.DrawFn) -> tuple[Charge, ...]:
    """Return charges of two pools and any payer; a day has at most what its month has."""
    found = []
    for nth in range(draw(st.integers(0, 5))):
        hour, day, month = sorted(
            draw(st.lists(st.decimals("0", "60", places=9), min_size=3, max_size=3))
        )
        found.append(
            Charge(
                pool=draw(st.sampled_from(["builders", "gone"])),
                scope=draw(PAYERS),
                team=draw(st.sampled_from([None, "java"])),
                owner=str(nth),
                seconds=(0, 60, 3600),
                money=(Decimal(hour), Decimal(day), Decimal(month)),
            )
        )
    return tuple(found)
