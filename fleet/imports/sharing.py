"""This module moves what pools repeat into templates, as a maintainer would have written them."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from fleet.imports.writing import Block, flow, name_of

_LEAST = 150
"""Characters that a template has to save to be worth its name."""
_MOST = 200
"""Groups of pools that are weighed at a time."""
_COMMENT = "#"
_Part = tuple[str, str, str]
"""A key, the key below it if there is one, and what is said there; or a comment."""
_Group = frozenset[int]
T = TypeVar("T")


def share(pools: Sequence[tuple[str, Block]], base: str, *outer: str) -> dict[str, Block]:
    """Move what pools have in common into templates, and return these, the widest first.

    `base` is the name of the template of all pools; `outer` are templates that all extend.
    """
    sharing = _Sharing(pools, {base, *outer})
    sharing.split(frozenset(range(len(pools))), base, [*outer])
    return sharing.templates


class _Sharing:
    """Pools, each with what no template says yet."""

    def __init__(self, pools: Sequence[tuple[str, Block]], taken: Collection[str]) -> None:
        self.templates: dict[str, Block] = {}
        self._taken = {*taken}
        self._blocks = [block for _, block in pools]
        self._left = [dict.fromkeys(_parts(block)) for block in self._blocks]
        words = (re.split(r"[^a-z0-9]+", name.lower()) for name, _ in pools)
        self._words = [dict.fromkeys(filter(None, each)) for each in words]

    def split(self, members: _Group, name: str, outer: list[str]) -> None:
        """Write the template of these pools, then those of groups among them."""
        common = _common([self._left[number] for number in sorted(members)])
        if _saved(common, members) >= _LEAST:
            template = _only(self._blocks[min(members)], common)
            template.entries[:0] = _extends(outer)
            self.templates[name], outer = template, [name]
            for number in members:
                for part in common:
                    del self._left[number][part]
        while group := self._widest(members):
            self.split(group, self._name(group), outer)
            members -= group
        for number in members:
            block = self._blocks[number]
            own = _only(block, self._left[number])
            block.entries, block.below = [*_extends(outer), *own.entries], own.below

    def _widest(self, members: _Group) -> _Group:
        """Return the most pools among these whose template is worth it; nobody: there is none."""
        where: dict[_Part, list[int]] = {}
        for number in sorted(members):
            for part in self._left[number]:
                where.setdefault(part, []).append(number)
        alike: dict[_Group, list[_Part]] = {}
        for part, numbers in where.items():
            if len(numbers) > 1:
                alike.setdefault(frozenset(numbers), []).append(part)
        for group in sorted(alike, key=lambda each: (-len(each), sorted(each)))[:_MOST]:
            every = [part for other in alike if group <= other for part in alike[other]]
            if _saved(every, group) >= _LEAST:
                return group
        return frozenset()

    def _name(self, group: _Group) -> str:
        """Return a name of the words that these pools' names have in common, or of the keys."""
        words = _common([self._words[number] for number in sorted(group)])
        of_all = {*_common(self._words)}
        parts = _common([self._left[number] for number in sorted(group)])
        keys = dict.fromkeys(below or key for key, below, _ in parts)
        name = name_of(
            "-".join([each for each in words if each not in of_all] or keys), self._taken
        )
        self._taken.add(name)
        return name


def _common(several: Sequence[Collection[T]]) -> list[T]:
    """Return what several have in common, in the order of the first; of one nothing."""
    first, *others = several or [[]]
    return [each for each in first if others and all(each in other for other in others)]


def _saved(parts: Collection[_Part], group: _Group) -> int:
    return (len(group) - 1) * sum(len("".join(part)) for part in parts)


def _extends(names: list[str]) -> list[tuple[str, object]]:
    return [("extends", names)] if names else []


def _parts(block: Block) -> Iterator[_Part]:
    for key, value in block.entries:
        if isinstance(value, Block):
            yield from ((key, below, flow(inner)) for below, inner in value.entries)
        else:
            yield key, "", flow(value)
    yield from ((_COMMENT, "", text) for text in block.below)


def _only(block: Block, parts: Collection[_Part]) -> Block:
    """Return what a block says of these parts."""
    found = Block(below=[each for each in block.below if (_COMMENT, "", each) in parts])
    for key, value in block.entries:
        if isinstance(value, Block):
            inner = [each for each in value.entries if (key, each[0], flow(each[1])) in parts]
            found.entries += [(key, Block(inner))] if inner else []
        elif (key, "", flow(value)) in parts:
            found.entries.append((key, value))
    return found
