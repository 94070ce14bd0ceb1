"""This module finds rules of `derive` that can never give a tag."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import DeriveRule, Fleet

RULE = "wrong-derivation"


def check(fleet: Fleet) -> Iterator[Finding]:
    """Require that a rule says where its value is from, and a table that is declared."""
    for number, rule in enumerate(fleet.derive):
        yield from _value(number, rule)
        if rule.lookup is not None and rule.from_ is None:
            message = "lookup needs `from`, which says what is looked up"
            yield Finding(RULE, message, ("derive", number, "lookup"), hint="add from: PATH")
        elif rule.lookup is not None and rule.lookup not in fleet.lookups:
            yield Finding(
                RULE,
                f"there is no table '{rule.lookup}' under lookups",
                ("derive", number, "lookup"),
                hint=did_you_mean(rule.lookup, fleet.lookups)
                or f"add lookups: {{{rule.lookup}: …}}",
            )


def _value(number: int, rule: DeriveRule) -> Iterator[Finding]:
    from fleet.tagrules.derive import is_placeholder, placeholders

    path = ("derive", number, "ask")
    if rule.tag is not None and rule.from_ is not None:
        message = "`from` and `tag` both say what {value} is"
        yield Finding(RULE, message, ("derive", number, "tag"), hint="keep one of them")
    for part in placeholders(rule.ask):
        if not is_placeholder(part):
            message = f"'{part}' stands for nothing"
            yield Finding(RULE, message, path, hint="write {value}, or {value.KEY} for a part")
        elif rule.from_ is None and rule.tag is None:
            message = f"'{part}' stands for nothing: the rule says not what the value is"
            yield Finding(RULE, message, path, hint="add from: PATH, a place in the task data")
