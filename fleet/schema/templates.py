"""This module merges templates, which are named parts of pools, into the pools that extend them.

It works on nodes, so that every value keeps the place where it was written.
"""

from collections.abc import Iterable
from functools import reduce

from fleet.schema.concealed import holds_secret
from fleet.schema.findings import Finding, did_you_mean, quoted
from fleet.schema.nodes import Node
from fleet.schema.units import NAME_PATTERN, follows

MAX_CHAIN = 20
MAX_MERGED = 500_000
"""Values of all pools together, counted in each pool that a template brings them to."""
_MOST_SHOWN = 10


class TooMuch(Exception):
    """Templates multiply what is written beyond all measure."""


def apply_templates(root: Node, findings: list[Finding]) -> frozenset[str]:
    """Merge templates into pools; return the pools that say `extends` of what is not there.

    Raises TooMuch.
    """
    section = next((entry for entry in root.entries if entry[0].value == "templates"), None)
    if section is not None:
        root.entries.remove(section)
        root.dropped.append(section)
    templates = _Templates(section[1] if section else None, findings)
    pools = next((value.entries for key, value in root.entries if key.value == "pools"), [])
    partial = set()
    for number, (key, pool) in enumerate(pools):
        merged, is_whole = templates.extended(pool)
        pools[number] = (key, merged)
        if not is_whole:
            partial.add(key.value)
    templates.report_unused()
    return frozenset(partial)


class _Templates:
    """The templates of a file, each with what it extends once it is asked for."""

    def __init__(self, section: Node | None, findings: list[Finding]) -> None:
        self._findings = findings
        self._written: dict[str, tuple[Node, Node]] = {}
        self._found: dict[str, tuple[Node, bool]] = {}
        self._bases: dict[tuple[str, ...], Node] = {}
        self._size = self._unknowns = 0
        if section is not None and (section.kind == "list" or section.value is not None):
            self._report(section, "wrong-type", "expected a mapping of templates by their names")
        for key, value in section.entries if section else ():
            if not follows(NAME_PATTERN, key.value):
                message = f"expected a name like base-1, found {_shown(key.value)}"
                self._report(key, "wrong-value", message)
            if value.kind == "mapping":
                self._written[key.value] = (key, value)
            else:
                self._report(key, "wrong-type", "expected a mapping with keys of a pool")
                self._found[key.value] = (_part(value), False)

    def extended(self, node: Node, within: tuple[str, ...] = ()) -> tuple[Node, bool]:
        """Return a pool or template merged with what it extends, and whether all of that is."""
        entry = next((each for each in node.entries if each[0].value == "extends"), None)
        if entry is None:
            return node, True
        own = _part(node, [each for each in node.entries if each is not entry], [entry])
        names = entry[1].items
        if entry[1].kind != "list" or not all(isinstance(name.value, str) for name in names):
            found = entry[1].value
            hint = f"write [{found}]" if isinstance(found, str) and found in self._written else ""
            self._report(entry[1], "wrong-type", "expected a list of names of templates", hint)
            return own, False
        key = tuple(name.value for name in names)
        if key not in self._bases:
            parts = [self._template(name, within) for name in names]
            base = reduce(self._merged, [part for part, _ in parts], _part(own))
            if not all(is_whole for _, is_whole in parts):
                return self._merged(base, own), False
            self._bases[key] = base
        return self._merged(self._bases[key], own), True

    def report_unused(self) -> None:
        """Warn of templates that no pool extends, and check what those extend."""
        unused = [key for name, (key, _) in self._written.items() if name not in self._found]
        for key in unused:
            message = f"no pool extends the template '{key.value}', so nothing in it is checked"
            hint = "take it away, or name it in the `extends` of a pool"
            self._findings.append(
                Finding("unused-template", message, severity="warning", hint=hint, span=key.span)
            )
            self._template(key, ())

    def _template(self, name: Node, within: tuple[str, ...]) -> tuple[Node, bool]:
        if name.value in within:
            circle = " → ".join((*within[within.index(name.value) :], name.value))
            message = f"templates extend each other in a circle: {circle}"
            self._report(name, "template-cycle", message, "take one of these names away")
        elif len(within) >= MAX_CHAIN:
            message = f"templates extend each other more than {MAX_CHAIN} deep"
            self._report(name, "too-complex", message, "write it out, flatter")
        elif name.value in self._found:
            return self._found[name.value]
        elif name.value in self._written:
            template = self._written[name.value][1]
            found = self.extended(template, (*within, name.value))
            return self._found.setdefault(name.value, found)
        else:
            self._unknown(name)
        return _part(name), False

    def _unknown(self, name: Node) -> None:
        known = sorted(each for each in self._written if not holds_secret(each))
        self._unknowns += 1
        more = f" and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
        allowed = f"; known: {', '.join(known[:_MOST_SHOWN])}{more}" if known else ""
        message = f"there is no template {_shown(name.value)}{allowed}"
        hint = "declare it under `templates`" if not known else ""
        if known and self._unknowns <= _MOST_SHOWN:
            hint = did_you_mean(name.value, known)
        self._report(name, "unknown-template", message, hint)

    def _merged(self, base: Node, over: Node) -> Node:
        """Return a mapping with what another adds and replaces, at the place of the other."""
        entries = {key.value: (key, value) for key, value in base.entries}
        for key, value in over.entries:
            _, there = entries.get(key.value, (key, value))
            both = there is not value and there.kind == value.kind == "mapping"
            entries[key.value] = (key, self._merged(there, value) if both else value)
        merged = _part(over, entries.values())
        self._size += merged.size
        if self._size > MAX_MERGED:
            raise TooMuch
        return merged

    def _report(self, node: Node, rule: str, message: str, hint: str = "") -> None:
        self._findings.append(Finding(rule, message, hint=hint, span=node.span))


def _shown(name: str) -> str:
    return "(hidden)" if holds_secret(name) else quoted(name)


def _part(
    at: Node,
    entries: Iterable[tuple[Node, Node]] = (),
    dropped: Iterable[tuple[Node, Node]] = (),
) -> Node:
    """Return a mapping of these entries at the place of another node."""
    kept = [*entries]
    size = 1 + sum(key.size + value.size for key, value in kept)
    return Node(
        "mapping",
        at.file,
        at.start,
        at.end,
        block=at.block,
        entries=kept,
        dropped=[*at.dropped, *dropped],
        size=size,
    )
