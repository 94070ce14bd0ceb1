"""Three weeks that never were, on which policies are compared: the same in every run.

`ci`: 50 builds an hour, of five minutes at the median, from 7 to 17 o'clock on working days: the
figures of CircleCI's simulation of 2016. `copr`: 400 builds a day around the clock, half as many
at weekends, and each day one Chromium of 24 hours (the third seed: 24 hours are what a powerful
builder is for) that asks for a powerful machine. `archive`: 2,000 packages at once, twice, and
100 a day beside them: a twentieth of Debian's archive. How long packages take is drawn from a
lognormal distribution; its median and width are assumptions (many short, few very long), as is
the share of `archive` that needs much memory. Prices are those of Hetzner's catalogue of 2025-06,
billed by the hour. Guards are off: the others have none.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from fleet.model.facts import Request
from fleet.schema.model import Fleet
from fleet.simulate.recorded_demand import PastRequest

START = datetime(2026, 6, 1, tzinfo=UTC)
"""A Monday."""
DAYS = 7
QUEUE = "work"
_DAY = timedelta(days=1)
_POWERFUL = "powerful"
_MONDAY_TO_FRIDAY = 5
_ALL = {"share": "100%", "free_below": 1000, "count": 1000}


@dataclass(frozen=True)
class Workload:
    """A fleet and what waits for it, in order of time."""

    name: str
    fleet: Fleet
    jobs: tuple[PastRequest, ...]


def workloads() -> tuple[Workload, ...]:
    """Return all three."""
    made: Mapping[str, tuple[int, Callable[[Random], Iterator[_Build]]]] = {
        "archive": (60, _archive),
        "copr": (12, _copr),
        "ci": (12, _ci),
    }
    return tuple(
        Workload(name, _fleet(most), _numbered(builds(Random(name))))  # noqa: S311 - the same each time
        for name, (most, builds) in made.items()
    )


@dataclass(frozen=True, order=True)
class _Build:
    at: datetime
    seconds: int
    powerful: bool = False


def _archive(chance: Random) -> Iterator[_Build]:
    for day in (0, 3):
        for _ in range(2000):
            seconds = _draw(chance, 240, 1.2, 12 * 3600)
            powerful = chance.random() < 0.02  # noqa: PLR2004 - two in a hundred
            yield _Build(START + day * _DAY + timedelta(hours=1), seconds, powerful)
    for _ in range(100 * DAYS):
        yield _Build(_any_time(chance), _draw(chance, 240, 1.2, 12 * 3600))


def _copr(chance: Random) -> Iterator[_Build]:
    for day in range(DAYS):
        free = day >= _MONDAY_TO_FRIDAY
        for _ in range(200 if free else 400):
            at = START + day * _DAY + timedelta(seconds=chance.randrange(86_400))
            yield _Build(at, _draw(chance, 180, 1.3, 18 * 3600))
        at = START + day * _DAY + timedelta(seconds=chance.randrange(86_400))
        yield _Build(at, 24 * 3600, powerful=True)


def _ci(chance: Random) -> Iterator[_Build]:
    for day in range(_MONDAY_TO_FRIDAY):
        for _ in range(500):
            at = START + day * _DAY + timedelta(seconds=7 * 3600 + chance.randrange(36_000))
            yield _Build(at, _draw(chance, 300, 0.7, 3600))


def _any_time(chance: Random) -> datetime:
    return START + timedelta(seconds=chance.randrange(DAYS * 86_400))


def _draw(chance: Random, median: int, width: float, most: int) -> int:
    return int(min(max(median * chance.lognormvariate(0, width), 20), most))


def _numbered(builds: Iterator[_Build]) -> tuple[PastRequest, ...]:
    return tuple(
        PastRequest(
            f"{QUEUE}/{number}",
            QUEUE,
            Request(
                id=str(number),
                task="sbuild",
                required=(_POWERFUL,) if build.powerful else (),
                pending_since=build.at,
                expected_seconds=build.seconds,
            ),
            build.at,
            seconds=build.seconds,
        )
        for number, build in enumerate(sorted(builds))
    )


def _fleet(most: int) -> Fleet:
    types = {
        "cpx41": {"cores": 8, "memory": "16GiB", "disk": "240GiB", "price": "0.0464 EUR/h"},
        "ccx63": {"cores": 48, "memory": "192GiB", "disk": "960GiB", "price": "0.5472 EUR/h"},
    }
    return Fleet.model_validate(
        {
            "fleet": "bench",
            "cadence": "10m",
            "providers": {
                "cloud": {"kind": "sim", "types": types, "billing": {"increment": "1h"}}
            },
            "queues": {QUEUE: {"kind": "world", "path": "world.json"}},
            # The others have no guards, which hold back how fast a fleet grows and shrinks.
            "guards": {"throttle": {"create": _ALL, "delete": {"count": 1000}}},
            "images": {"worker": {"suite": "trixie", "architecture": "amd64"}},
            "tags": {_POWERFUL: {"on_demand": True, "exclusive": True}},
            "pools": {
                "builders": {
                    "provider": "cloud",
                    "machine": "cpx41",
                    "image": "worker",
                    "workers": {"max": most, "max_starting": max(5, most // 3)},
                    "retire": {"idle_after": "15m"},
                },
                "powerful": {
                    "provider": "cloud",
                    "machine": "ccx63",
                    "image": "worker",
                    "provides": [_POWERFUL],
                    "workers": {"max": 4},
                },
            },
        }
    )
