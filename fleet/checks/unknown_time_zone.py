"""This module finds time zones that do not exist."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, Path, nearest
from fleet.schema.model import Fleet, Pool


def unknown_time_zone(fleet: Fleet) -> Iterator[Finding]:
    """Require that every time zone is a name of the IANA database."""
    for path, name in _named(fleet):
        if name != "UTC" and not _exists(name):
            close = nearest(name, _known())
            yield Finding(
                "unknown-time-zone",
                f"there is no time zone '{name}'",
                path,
                hint=f"did you mean '{close}'?" if close else "write one like Europe/Berlin",
            )


def _named(fleet: Fleet) -> Iterator[tuple[Path, str]]:
    yield ("money", "time_zone"), fleet.money.time_zone
    for name, pool in fleet.pools.items():
        windows = pool.replace.windows if isinstance(pool, Pool) else []
        for number, window in enumerate(windows):
            words = window.split(" ")
            if len(words) > 2:  # noqa: PLR2004 - days, hours and then the zone
                yield ("pools", name, "replace", "windows", number), words[2]


def _exists(name: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # A computer without the database knows no zone at all: then nothing is said.
        return not _known()
    return True


def _known() -> set[str]:
    from zoneinfo import available_timezones

    return available_timezones()
