"""This module renders how far an apply is: a bar over all steps, and the pools with some left."""

from collections import Counter

from fleet.plan import Plan

_WIDTH = 20


class Progress:
    """Counts the steps of a plan as they are told."""

    def __init__(self, plan: Plan) -> None:
        self._left = {f"{a.pool}: {a.action} {a.worker}": a.pool for a in plan.actions}
        self._planned = Counter(self._left.values())

    def hear(self, told: str) -> None:
        """Count a step that was told, once; anything else is no step."""
        self._left.pop(told, None)

    def __str__(self) -> str:
        """Return the bar, empty where nothing was planned."""
        planned = self._planned.total()
        if not planned:
            return ""
        done = planned - len(self._left)
        filled = _WIDTH * done // planned
        left = Counter(self._left.values())
        pools = (
            f"{pool} {self._planned[pool] - left[pool]}/{self._planned[pool]}" for pool in left
        )
        bar = "#" * filled + "." * (_WIDTH - filled)
        return f"[{bar}] {done} of {planned} steps; {', '.join(pools) or 'recording'}"
