"""This module finds rules of `derive` that feed each other in a circle."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet


def derivation_cycle(fleet: Fleet) -> Iterator[Finding]:
    """Require that what a rule derives never comes back to the rule."""
    if not any(rule.tag for rule in fleet.derive):
        return
    from fleet.tagrules.derive import find_circle

    circle = find_circle(fleet.derive)
    if circle:
        steps = [f"{fleet.derive[place].tag} gives {fleet.derive[place].ask}" for place in circle]
        yield Finding(
            "derivation-cycle",
            f"these rules feed each other: {', '.join(steps)}",
            ("derive", circle[0], "tag"),
            hint="derive one of them from the task data with `from`",
        )
