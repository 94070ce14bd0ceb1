"""What a measurement says: figures, and ratios with what they should be."""

import os
import platform
import re
import resource
from dataclasses import dataclass, field
from pathlib import Path


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

    def as_json(self) -> dict[str, object]:
        """Return the form that other programs read."""
        return {
            "name": self.name,
            "machine": describe_machine(),
            "figures": {name: round(value, 4) for name, value in self.figures.items()},
            "ratios": {name: round(value, 3) for name, value in self.ratios.items()},
        }

    def as_table(self) -> str:
        """Return the form that people read."""
        width = max(map(len, (*self.figures, *self.ratios)))
        lines = [f"{self.name} on {describe_machine()}"]
        lines += [
            f"  {name:<{width}}  {value:10.{1 if value >= 10 else 3}f}{self._verdict(name, value)}"  # noqa: PLR2004 - few digits where they would be noise
            for name, value in self.figures.items()
        ]
        lines += [
            f"  {name:<{width}}  {value:10.2f}{self._verdict(name, value)}"
            for name, value in self.ratios.items()
        ]
        return "\n".join(lines)

    def _verdict(self, name: str, value: float) -> str:
        if name in self.targets:
            good, bound = value <= self.targets[name], f"at most {self.targets[name]:g}"
        elif name in self.floors:
            good, bound = value >= self.floors[name], f"at least {self.floors[name]:g}"
        else:
            return ""
        return f"  ({bound}: {'ok' if good else 'MISSED'})"


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
