"""This module finds numeric tags that are said to be exclusive or on demand."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet


def plain_tag_only(fleet: Fleet) -> Iterator[Finding]:
    """Refuse what only a plain tag can be: machines have more or less of a number, all of them."""
    for name, rule in fleet.tags.items():
        if rule.kind != "number":
            continue
        for key, written, word in (
            ("exclusive", rule.exclusive, "exclusive"),
            ("on_demand", rule.on_demand, "on demand"),
        ):
            if written:
                yield Finding(
                    "plain-tag-only",
                    f"{name} is a number, which every machine has: it cannot be {word}",
                    ("tags", name, key),
                    at="key",
                    hint=f"remove {key}, and give the machines a plain tag that is {word}",
                )
