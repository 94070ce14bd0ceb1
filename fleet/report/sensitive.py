"""Describe sensitive edits of fleet.yaml, and the builds that allow-list rules match."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.reach import RuleReach
from fleet.explain.sensitive import Kind, SensitiveEdit
from fleet.schema.findings import listed, some_of, yaml_key
from fleet.schema.units import write_duration
from fleet.words import figures as words

_SENSITIVE: dict[Kind, tuple[str, str]] = {
    "secret-source-changed": ("a secret comes from or goes to another place", "removed"),
    "command-changed": ("`fleet` runs another program", "removed"),
    "pattern-matches-more": ("the allow-list matches more builds", "removed"),
    "asked-by-widened": ("more people may ask for a tag", "anyone"),
    "exclusive-removed": ("machines also run builds that do not ask for the tag", "removed"),
    "pool-removed": ("a pool that has machines is removed or drained", "removed"),
    "guard-loosened": ("a guard is looser", "no limit"),
    "approval-added": ("an approval lets machines pass a guard", "removed"),
    "limit-raised": ("a limit or budget is raised or removed", "no limit"),
    "access-widened": ("access to machines changes", "removed"),
    "image-pinned": ("an image is pinned: machines boot no newer version", "removed"),
}
"""Map of a kind of sensitive edit to its effect, and to the text for a removed value."""


class DescribedEdit(NamedTuple):
    """A sensitive edit of fleet.yaml, in words."""

    what: str
    place: str
    before: str
    after: str
    about: str


def sensitive_edit(edit: SensitiveEdit, currency: str) -> DescribedEdit:
    """Return the description of a sensitive edit."""
    what, gone = _SENSITIVE[edit.kind]
    key = yaml_key(edit.path)
    place = f"{key} ({edit.place})" if edit.place else key
    is_max = edit.path[2:] == ("workers", "max")
    about = _describe_worst(edit, currency) if is_max else _describe_subject(edit)
    return DescribedEdit(what, place, edit.before or "none", edit.after or gone, about)


def worst_case(edits: Sequence[SensitiveEdit], currency: str) -> str:
    """Return the most that the machines of higher `workers.max` cost, as text; empty without."""
    costs = [each.cost for each in edits if each.cost]
    return f"up to {words.rate(sum(costs, Decimal(0)), sign=True)} {currency}/h" if costs else ""


def _describe_worst(edit: SensitiveEdit, currency: str) -> str:
    worst = worst_case([edit], currency) or f"cost {words.UNKNOWN}"
    keys = [f"{key} ({value})" for key, value in edit.bounds.items()]
    bound = f"bounded by {listed(keys)}" if keys else "no budget or limit of a tag bounds it"
    return f"if all these machines exist: {worst}; {bound}"


def _describe_subject(edit: SensitiveEdit) -> str:
    names = some_of(edit.examples, total=edit.count)
    match edit.kind:
        case "pool-removed":
            if edit.count is None:
                return f"its machines are {words.UNKNOWN}"
            return f"{words.many(edit.count, 'machine')}, {edit.busy} busy: {names}"
        case "pattern-matches-more":
            if edit.count is None:
                return f"builds {words.UNKNOWN}: {edit.nameless or 'no build is recorded'}"
            if not edit.count:
                return "none of the recorded builds yet"
            builds = words.many(edit.count, "recorded build")
            return f"{builds} newly{_packages(edit.packages)}"
    return f"the tag of pools: {names}" if names else ""


def rule_facts(rule: RuleReach, currency: str) -> tuple[str, str, str]:
    """Return the recorded builds that a rule matches, their owners and their cost, as texts."""
    return _builds(rule), _format_owners(rule), _rule_cost(rule, currency)


def _builds(rule: RuleReach) -> str:
    if not rule.of:
        return f"builds {words.UNKNOWN}: {rule.nameless or 'no build is recorded'}"
    span = write_duration(rule.seconds)
    since = f"{rule.moments} moments in {span}" if rule.moments > 1 else "one moment"
    said = f"{rule.builds:,} of {rule.of:,} in {since}"
    if rule.added:
        return f"{said}; {rule.added:,} newly{_packages(rule.added_packages)}"
    return f"{said}{_packages(rule.packages)}; none newly" if rule.builds else said


def _packages(builds: Mapping[str, int]) -> str:
    """Return text on the packages, with the number of builds of each; empty without builds."""
    if len(builds) < 2:  # noqa: PLR2004 - all are of one package
        return "".join(f"{', all' if count > 1 else ':'} {name}" for name, count in builds.items())
    counted = some_of([f"{name} ({count:,})" for name, count in builds.items()])
    return f", of {len(builds):,} packages: {counted}"


def _format_owners(rule: RuleReach) -> str:
    people = [
        f"{what}: {some_of([f'{name} ({count:,})' for name, count in counts.items()])}"
        for what, counts in (("owners", rule.owners), ("requesters", rule.requesters))
        if counts
    ]
    return "; ".join(people) or "no recorded build"


def _rule_cost(rule: RuleReach, currency: str) -> str:
    if rule.cost is None:
        return f"cost {words.UNKNOWN}: {rule.not_known}"
    once = f"{words.bill(rule.cost)} {currency} for these builds"
    if rule.cost_before is not None:
        once += f" ({words.bill(rule.cost_before)} without this change)"
    if rule.month is None:
        return f"{once}; per month {words.UNKNOWN}: {rule.not_known}"
    return f"{once}; at least {rule.month:,.0f} {currency} per month"
