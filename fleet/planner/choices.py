"""This module holds what allocation chooses among: groups of requests, places, and limits as rows.

Everything is exact and named, so that the programme of `allocate` is a plain translation, and the
text of a plan can say which key of fleet.yaml stopped what.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from fleet.model.facts import Market
from fleet.model.prices import Tariff, bill
from fleet.planner.demand import Ordered, Payer
from fleet.planner.durations import Kind

Path = tuple[str | int, ...]
Rank = tuple[int, ...]
"""A strict class of service, the first served smallest: priority of its tags, the queue's own
priority, and how long it waits in doubling steps."""


class Fit(NamedTuple):
    """What one request of a group takes of a place."""

    share: float = 1.0
    """Of one machine, between 0 and 1: 1 where a machine serves one request."""
    money: Decimal = Decimal(0)
    """What serving it costs beyond `Place.setup`; 0 where the machine is paid for anyway."""
    seconds: int | None = 0
    """How long it is expected to run there, on average; None: nobody knows."""
    longest: int | None = 0
    """How long the longest of the group is expected to run; None: nobody knows."""
    priority: int = 0
    """How much the pool is preferred for what it asks for (`pools.NAME.priorities`)."""


@dataclass(frozen=True)
class Group:
    """Waiting requests with the same choices, that count to the same limits."""

    id: str
    rank: Rank
    requests: tuple[Ordered, ...]
    """In the order they are served."""
    fits: Mapping[str, Fit]
    """Place to what one of them takes there; places that do not fit are absent."""
    payer: Payer = field(default_factory=Payer)
    last: frozenset[str] = frozenset()
    """Places with machines on demand that others ask for: these come first."""
    tags: frozenset[str] = frozenset()
    """Tags they require, as far as a limit or a budget looks at them."""
    by_priority: bool = False
    """Priorities of pools count before money, not only where it is equal."""


@dataclass(frozen=True)
class Place:
    """Where requests can be served: free workers that offer the same, or machines to be made."""

    key: str
    pool: str
    makes: bool
    """True: machines to be made, of one type and market; False: workers that exist."""
    room: float = 0.0
    """Machines that are free, in parts; without meaning where machines are made."""
    type: str = ""
    market: Market = "on-demand"
    setup: Decimal = Decimal(0)
    """Money that one more machine costs beside the work: boot, and idle until it can be let go."""
    setup_seconds: int = 0
    """Seconds that one more machine costs beside the work."""
    price: Decimal = Decimal(0)
    """Money per hour of one machine, address and disk included."""
    kinds: tuple[Kind, ...] = ()
    """What its machines are, as far as the time that work takes depends on it."""
    tariff: Tariff | None = None
    """How a machine made there is billed; None where nobody knows its price, or none is made."""

    @property
    def step(self) -> Decimal:
        """Return the money of one step of time that is billed as a whole; 0: seconds are."""
        if self.tariff is None or self.tariff.increment == 1:
            return Decimal(0)
        return self.tariff.price * self.tariff.increment / 3600

    @property
    def unused(self) -> Decimal:
        """Return the money of the time that `setup` pays for and does not take."""
        return self.setup - self.price * self.setup_seconds / 3600 if self.step else Decimal(0)

    def billed(self, seconds: int) -> Decimal | None:
        """Return what a machine made there is billed if its work takes so long."""
        return bill(self.tariff, self.setup_seconds + seconds) if self.tariff else None


@dataclass(frozen=True, eq=False)
class Row:
    """One limit as a linear row: what is chosen may take no more than `room` of it."""

    path: Path
    because: str
    """What holds, in a sentence that names its figure: `pool arm is at workers.max (3)`."""
    room: Decimal
    machines: Mapping[str, Decimal] = field(default_factory=dict)
    """Place to what each machine made there takes."""
    requests: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)
    """Group and place to what each request served there takes."""
    kept: Mapping[str, Decimal] = field(default_factory=dict)
    """Place to what each machine takes that is made there to stay, for min or spare."""
    when: str = ""
    """Of a budget: the period that it is about, as `BudgetVerdict.when`."""
