"""This module answers wrong usage with the usage of the verb it was of, and what was meant."""

import argparse
from typing import Any


class Parser(argparse.ArgumentParser):
    """Answers wrong usage with the usage of the verb it was of, and what was probably meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse overloads it
        """Refuse what is left over here, where argparse would leave it to the whole program."""
        known, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return known, left

    def _check_value(self, action: argparse.Action, value: object) -> None:
        from fleet.schema.findings import nearest

        choices = list(map(str, action.choices or ()))
        meant = nearest(str(value), choices) if choices and value not in choices else ""
        if meant:
            raise argparse.ArgumentError(
                action,
                f"invalid choice: {value!r}; did you mean {meant!r}? "
                f"(choose from {', '.join(map(repr, choices))})",
            )
        super()._check_value(action, value)
