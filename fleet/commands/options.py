"""This module reads options that several commands have."""

from fleet.errors import WrongUsage
from fleet.schema.units import read_duration


def read_seconds(option: str, text: str) -> int:
    """Return the seconds of an option like `--every 60s`; raises WrongUsage for anything else."""
    seconds = read_duration(text)
    if seconds is None:
        raise WrongUsage(
            f"{option} {text}: expected a duration like 60s or 14m (units s, m, h, d)"
        )
    return seconds
