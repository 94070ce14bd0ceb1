"""This module finds rules of the allow-list that add nothing to a plainly wider one."""

from collections.abc import Iterator, Mapping

from fleet.schema.findings import Finding, as_written
from fleet.schema.model import Fleet, PowerfulRule


def pattern_covered(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a rule whose builds get the same tags from another rule, for at least as long."""
    if len(fleet.powerful) < 2:  # noqa: PLR2004 - one rule has no other
        return
    covering = dict(_covering(fleet))
    for number, others in covering.items():
        wider = next(
            (n for n in sorted(others) if _adds_nothing(fleet, number, n, covering)), None
        )
        if wider is not None:
            yield _finding(number, fleet.powerful[wider])


def _finding(number: int, wider: PowerfulRule) -> Finding:
    whose = f" of {wider.contact}" if wider.contact else ""
    return Finding(
        "pattern-covered",
        f"the rule {as_written(wider.match)}{whose} takes all of this and asks for the same tags",
        ("powerful", number, "match"),
        severity="warning",
        hint="remove this rule, or narrow the other",
    )


def _adds_nothing(fleet: Fleet, number: int, other: int, covering: Mapping[int, set[int]]) -> bool:
    rule, wider = fleet.powerful[number], fleet.powerful[other]
    if not _does_more(wider, rule):
        return False
    # Of two rules that do the same, the first stays.
    return other < number or not (number in covering[other] and _does_more(rule, wider))


def _does_more(wider: PowerfulRule, rule: PowerfulRule) -> bool:
    lasts = wider.expires is None or (rule.expires is not None and wider.expires >= rule.expires)
    return lasts and set(rule.ask) <= set(wider.ask) and wider.dirs >= rule.dirs


def _covering(fleet: Fleet) -> Iterator[tuple[int, set[int]]]:
    """Yield each rule with those whose pattern plainly takes all that its own takes."""
    from fleet.tagrules.allow import PatternSet
    from fleet.tagrules.patterns import is_word, read_pattern, samples_of, simplified, word_of

    valid = _valid(fleet)
    read = {number: read_pattern(text) for number, text in valid.items()}
    simple = {n: text for n, pieces in read.items() if (text := simplified(pieces)) is not None}
    in_plain, in_whole = [*simple], [*valid]
    plain, whole = PatternSet([*simple.values()]), PatternSet([*valid.values()])
    for number, pieces in read.items():
        found = {other for other, text in valid.items() if text == valid[number]}
        if pieces is not None and is_word(pieces):
            found |= {in_whole[place] for place in whole.takers(word_of(pieces))}
        elif samples := samples_of(pieces):
            takers = [set(plain.takers(sample)) for sample in samples]
            found |= {in_plain[place] for place in set.intersection(*takers)}
        yield number, found - {number}


def _valid(fleet: Fleet) -> dict[int, str]:
    from fleet.tagrules.allow import is_valid

    return {number: rule.match for number, rule in enumerate(fleet.powerful) if is_valid(rule)}
