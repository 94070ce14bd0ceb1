"""This module is what a measurement says: figures, and ratios with what they should be."""

import os
import platform
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """Figures of one measurement; a ratio compares two figures and carries on to any machine."""

    name: str
    figures: dict[str, float]
    ratios: dict[str, float]
    targets: dict[str, float] = field(default_factory=dict)

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
        lines += [f"  {name:<{width}}  {value:10.1f}" for name, value in self.figures.items()]
        lines += [
            f"  {name:<{width}}  {value:10.2f}{self._verdict(name)}"
            for name, value in self.ratios.items()
        ]
        return "\n".join(lines)

    def _verdict(self, name: str) -> str:
        target = self.targets.get(name)
        if target is None:
            return ""
        return f"  (at most {target:g}: {'ok' if self.ratios[name] <= target else 'MISSED'})"


def describe_machine() -> str:
    """Return what a figure has to be read with: system, processors, Python."""
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
