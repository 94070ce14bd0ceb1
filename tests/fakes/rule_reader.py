"""A written reader of a queue's rules."""

from collections.abc import Mapping

from fleet.model.facts import HeldRules, Unknown


class FakeRuleReader:
    """The rules of a queue, as a test says them."""

    def __init__(self, rules: Mapping[str, HeldRules | Unknown]) -> None:
        self.rules = dict(rules)

    def read(self) -> Mapping[str, HeldRules | Unknown]:
        """Return them."""
        return self.rules
