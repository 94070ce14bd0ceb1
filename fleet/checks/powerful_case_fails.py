"""This module tries the cases that stand beside the rules of the allow-list."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, Path, as_written, quoted
from fleet.schema.model import Fleet, PowerfulRule


def powerful_case_fails(fleet: Fleet) -> Iterator[Finding]:
    """Require that a rule takes what stands under `matches`, and nothing under `rejects`."""
    for number, rule in enumerate(fleet.powerful):
        if (rule.matches or rule.rejects) and _is_valid(rule):
            yield from _cases(("powerful", number), rule)


def _cases(path: Path, rule: PowerfulRule) -> Iterator[Finding]:
    from fleet.tagrules.allow import matches_name

    for number, name in enumerate(rule.matches):
        if not matches_name(rule, name):
            message = f"{as_written(rule.match)} does not match this name, and must"
            yield Finding(
                "powerful-case-fails",
                message,
                (*path, "matches", number),
                hint=_way_in(rule, name),
            )
    for number, name in enumerate(rule.rejects):
        if matches_name(rule, name):
            message = f"{as_written(rule.match)} matches this name, and must not"
            yield Finding(
                "powerful-case-fails", message, (*path, "rejects", number), hint=_way_out(rule)
            )


def _is_valid(rule: PowerfulRule) -> bool:
    from fleet.tagrules.allow import is_valid

    return is_valid(rule)  # what is not, invalid-pattern says


def _way_in(rule: PowerfulRule, name: str) -> str:
    from fleet.tagrules.allow import PARTS, compile_pattern, without_directory

    pattern = compile_pattern(rule.match)
    if not rule.dirs and pattern.takes(without_directory(name)):
        return "it is in a directory of the project: add dirs: true"
    if name.count("/") != PARTS - 1:
        return "a name has four parts: owner/project/chroot/package"
    beginning = pattern.takes_beginning(name)
    if beginning:
        return f"it matches only the beginning, {quoted(beginning)}; a whole name must match"
    return "correct the pattern or the case" + _asking(rule)


def _way_out(rule: PowerfulRule) -> str:
    return "narrow the pattern, or correct the case" + _asking(rule)


def _asking(rule: PowerfulRule) -> str:
    return f"; {rule.contact} knows what is meant" if rule.contact else ""
