"""This module has every registry see that what it was told in a run stands."""

from fleet.errors import FleetError
from fleet.operate.observe import Sources
from fleet.ports import Tell


def confirm_all(sources: Sources, tell: Tell) -> None:
    """Have each look again, saying for how long that is waited; the next run sees what fails."""
    for name, registry in sorted(sources.registries.items()):
        seconds = registry.pause()
        if seconds >= 1:
            tell(f"{name}: looking again in {seconds:.0f} s at what its workers were told")
        try:
            registry.confirm()
        except FleetError as trouble:
            tell(str(trouble))
