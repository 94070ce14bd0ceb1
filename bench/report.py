"""What a measurement says: figures, and ratios with what they should be."""

import os
import platform
import re
import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A figure that must hold."""

    name: str
    must: str
    value: float
    holds: bool


@dataclass(frozen=True)
class Report:
    """Figures of one measurement; a ratio compares two figures and carries on to any machine."""

    name: str
    figures: dict[str, float]
    ratios: dict[str, float]
    targets: dict[str, float] = field(default_factory=dict)
    """Ratios and figures that should be at most this."""
    floors: dict[str, float] = field(default_factory=dict)
    """Ratios that should be at least this."""
    plots: dict[str, str] = field(default_factory=dict)
    """SVG files, by name."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """What docs/benchmark.md shows of single cases."""

    def points(self) -> list[Point]:
        """Return the figures and ratios that have a limit."""
        bounds = [(name, bound, True) for name, bound in self.targets.items()]
        bounds += [(name, bound, False) for name, bound in self.floors.items()]
        return [
            Point(
                name,
                f"at {'most' if is_target else 'least'} {bound:g}",
                value,
                value <= bound if is_target else value >= bound,
            )
            for name, bound, is_target in bounds
            if (value := (self.figures | self.ratios).get(name)) is not None
        ]

    def as_json(self) -> dict[str, object]:
        """Return the form that other programs read."""
        return {
            "name": self.name,
            "machine": describe_machine(),
            "figures": {name: round(value, 4) for name, value in self.figures.items()},
            "ratios": {name: round(value, 4) for name, value in self.ratios.items()},
            "points": [point._asdict() for point in self.points()],
            "rows": self.rows,
        }

    def as_table(self) -> str:
        """Return the form that people read."""
        width = max(map(len, (*self.figures, *self.ratios)), default=0)
        verdicts = {
            each.name: f"  ({each.must}: {'ok' if each.holds else 'MISSED'})"
            for each in self.points()
        }
        lines = [f"{self.name} on {describe_machine()}"]
        lines += [
            f"  {name:<{width}}  {value:10.{1 if value >= 10 else 3}f}{verdicts.get(name, '')}"  # noqa: PLR2004 - few digits where they would be noise
            for name, value in self.figures.items()
        ]
        lines += [
            f"  {name:<{width}}  {value:10.3f}{verdicts.get(name, '')}"
            for name, value in self.ratios.items()
        ]
        return "\n".join(lines)


def held_mib(process: int | None = None) -> float:
    """Return the most memory that this process, or another, has held so far."""
    status = Path(f"/proc/{process or 'self'}/status")
    if process is None and not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # `ru_maxrss` is at least what the process held that started this one.
    return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text(encoding="utf-8"))[0]) / 1024


def describe_machine() -> str:
    """Return what a figure has to be read with: system, processors, Python."""
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
