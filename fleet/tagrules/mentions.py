"""This module lists every tag that fleet.yaml writes, where it stands and in which part."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fleet.schema.model import Fleet, Pool
from fleet.tagrules.vocabulary import Path


@dataclass(frozen=True)
class Mention:
    """A tag somewhere in fleet.yaml: asked for, provided, or required of requests."""

    tag: str
    role: Literal["asked", "provided", "required"]
    path: Path


def mentions(fleet: Fleet) -> Iterator[Mention]:
    """Yield every tag that is written out; templates of `derive` stand for others."""
    for number, rule in enumerate(fleet.powerful):
        for place, tag in enumerate(rule.ask):
            yield Mention(tag, "asked", ("powerful", number, "ask", place))
    for number, derived in enumerate(fleet.derive):
        if "{" not in derived.ask:
            yield Mention(derived.ask, "asked", ("derive", number, "ask"))
    for name, image in fleet.images.items():
        for place, tag in enumerate(image.provides):
            yield Mention(tag, "provided", ("images", name, "provides", place))
    for name, pool in fleet.pools.items():
        for place, tag in enumerate(pool.provides):
            yield Mention(tag, "provided", ("pools", name, "provides", place))
        for place, tag in enumerate(pool.requires if isinstance(pool, Pool) else ()):
            yield Mention(tag, "required", ("pools", name, "requires", place))
