"""This module finds rules of `derive` that can never give a tag."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import DebusineQueue, DeriveRule, Fleet, WorldQueue
from fleet.tagrules.history import number_of
from fleet.tagrules.told import ENVIRONMENTS
from fleet.tagrules.vocabulary import Vocabulary


def wrong_derivation(fleet: Fleet) -> Iterator[Finding]:
    """Require that a rule says where its value is from, and a table that is declared."""
    for number, rule in enumerate(fleet.derive):
        yield from _value(number, rule)
        yield from _history(fleet, number, rule)
        if rule.lookup is not None and rule.from_ is None:
            message = "lookup needs `from`, which says what is looked up"
            yield Finding(
                "wrong-derivation", message, ("derive", number, "lookup"), hint="add from: PATH"
            )
        elif rule.lookup is not None and rule.lookup not in _tables(fleet):
            yield Finding(
                "wrong-derivation",
                f"there is no table '{rule.lookup}' under lookups",
                ("derive", number, "lookup"),
                hint=did_you_mean(rule.lookup, _tables(fleet))
                or f"add lookups: {{{rule.lookup}: …}}",
            )


def _tables(fleet: Fleet) -> tuple[str, ...]:
    """Return the tables that there may be: the file's, and what a queue tells itself."""
    tells = any(isinstance(q, DebusineQueue | WorldQueue) for q in fleet.queues.values())
    return (*fleet.lookups, *((ENVIRONMENTS,) if tells else ()))


def _history(fleet: Fleet, number: int, rule: DeriveRule) -> Iterator[Finding]:
    """Require that a rule of `history` asks for a minimum of a number, and has one value."""
    if rule.history is None:
        return
    if rule.from_ is not None or rule.tag is not None:
        word = "from" if rule.from_ is not None else "tag"
        message = f"`history` and `{word}` both say what {{value}} is"
        yield Finding(
            "wrong-derivation", message, ("derive", number, word), hint="keep one of them"
        )
    name = number_of(rule.ask)
    if name is None:
        message = "what earlier runs needed is a minimum of a number"
        hint = f"write ask: '{rule.history.of}_gib>={{value}}'"
        yield Finding("wrong-derivation", message, ("derive", number, "ask"), hint=hint)
    elif name not in Vocabulary(fleet).numeric:
        message = f"{name} is no number, so it has no minimum"
        near = did_you_mean(name, Vocabulary(fleet).numeric)
        declare = f"declare it: tags: {{{name}: {{kind: number}}}}"
        hint = near if near.startswith("did") else declare
        yield Finding("wrong-derivation", message, ("derive", number, "ask"), hint=hint)


def _value(number: int, rule: DeriveRule) -> Iterator[Finding]:
    from fleet.tagrules.derive import is_placeholder, placeholders

    path = ("derive", number, "ask")
    if rule.tag is not None and rule.from_ is not None:
        message = "`from` and `tag` both say what {value} is"
        yield Finding(
            "wrong-derivation", message, ("derive", number, "tag"), hint="keep one of them"
        )
    for part in placeholders(rule.ask):
        if not is_placeholder(part):
            message = f"'{part}' stands for nothing"
            yield Finding(
                "wrong-derivation", message, path, hint="write {value}, or {value.KEY} for a part"
            )
        elif rule.from_ is None and rule.tag is None and rule.history is None:
            message = f"'{part}' stands for nothing: the rule says not what the value is"
            yield Finding(
                "wrong-derivation", message, path, hint="add from: PATH, a place in the task data"
            )
