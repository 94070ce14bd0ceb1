"""Render the effect of a change of fleet.yaml as a document."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.changes import (
    ActionsChange,
    Changes,
    Comparison,
    GuardChange,
    ImageChange,
    OutdatedChange,
    PoolChange,
    RequestsChange,
    Verdict,
)
from fleet.explain.config_changes import ChangedEntries, ConfigChange
from fleet.explain.costs import BuildsCost, ComparedBuild, MovedBuilds
from fleet.explain.options import way_to
from fleet.explain.reach import RuleReach
from fleet.explain.sensitive import Kind, SensitiveEdit
from fleet.model.facts import PlaceFacts, Unknown
from fleet.planner.forecast import ExpectedWaits
from fleet.report.document import (
    Block,
    Column,
    ColumnKind,
    Form,
    Items,
    Section,
    Style,
    StyledText,
    Table,
    bold,
    line,
    row,
    shorten,
)
from fleet.schema.findings import listed, some_of, yaml_key
from fleet.schema.units import write_duration
from fleet.words import figures as words
from fleet.words.answers import describe_stopped
from fleet.words.guards import describe_refused_change
from fleet.words.runs import explain_guard, explain_place

_MOST_ROWS = 40
_MOST_STOPS = 2
_MORE = "{} more, all in the JSON"
_NAMES = {"max": "max", "type": "machine type"}
_GUARDS = {"refused": "refuses", "throttled": "throttles"}


class _EffectRow(NamedTuple):
    """One effect of the change: pool or queue, kind, text and reason."""

    where: str
    name: str
    mark: str
    what: str
    why: str
    id: str = ""


def comparison_blocks(change: Comparison, included: Mapping[str, str]) -> Iterator[Block]:
    """Yield the sections on the effect of a change, without the headline and the figures."""
    if isinstance(change, Unknown):
        yield Section("Effect of this change: unknown", [Items((change.unknown,), _UNKNOWN)])
        return
    yield _sensitive(change)
    yield _causes(change, included)
    yield _allow_list(change)
    yield builds_section(change.builds, change.currency)


def _sensitive(change: Changes) -> Section:
    count = len(change.sensitive)
    if not count:
        return Section("", [bold("No sensitive edits")])
    rows = [
        row(
            line(StyledText(edit.what, Style.YELLOW)),
            f"{edit.place}: {_values(each, edit.before, edit.after)}",
            edit.about,
            mark=StyledText("! ", Style.YELLOW),
        )
        for each in change.sensitive
        for edit in [sensitive_edit(each, change.currency)]
    ]
    columns = (
        Column("Edit"),
        Column("In fleet.yaml", ColumnKind.PROSE),
        Column("About", ColumnKind.PROSE),
    )
    table = Table(columns, shorten(rows, _MOST_ROWS, _MORE), is_list=True)
    return Section(f"Sensitive edits: {count}", [table])


def _causes(change: Changes, included: Mapping[str, str]) -> Section:
    rows = [
        row(
            line(f"{effect.where} ", StyledText(effect.name, Style.BOLD)),
            line(StyledText(effect.what, _STYLES.get(effect.mark, Style.PLAIN))),
            effect.why,
            effect.id,
            mark=StyledText(f"{effect.mark} ", _STYLES.get(effect.mark, Style.PLAIN)),
        )
        for effect in _effect_rows(change, included)
    ]
    columns = (
        Column("Where", ColumnKind.GROUP),
        Column("Effect"),
        Column("Why", ColumnKind.PROSE),
        Column("Reason", ColumnKind.ID),
    )
    rows = shorten(rows, _MOST_ROWS, _MORE, at=1)
    table = Table(columns, rows, is_list=True)
    return Section("Effects of this change", [table, Items(change.unknown, _UNKNOWN)])


def _allow_list(change: Changes) -> Section:
    rows = []
    for rule in change.allow_list:
        only = f" of task {rule.task}" if rule.task else ""
        asks = f"{only} asks for {listed(rule.ask)}"
        name = line(StyledText(rule.match, Style.BOLD), asks)
        rows.append(row(name, *rule_facts(rule, change.currency)))
    facts = (Column(each, ColumnKind.PROSE) for each in ("Recorded builds", "Whose", "Cost"))
    rows = shorten(rows, _MOST_ROWS, _MORE)
    table = Table((Column("Rule"), *facts), rows, is_list=True)
    return Section("Rules of the allow-list that this change adds or changes", [table])


_STYLES = {"+": Style.GREEN, "~": Style.YELLOW, "-": Style.RED, "!": Style.YELLOW}
_UNKNOWN = StyledText("? ", Style.YELLOW)
_NOT_ALL = "not everything is known"


def comparison_figures(change: Changes) -> Items:
    """Return the effects after the headline, those on this run, then those when none waits."""
    return Items((*_effects(change)[1:], *_summary(change)), StyledText("- "))


def _summary(change: Changes) -> Iterator[str]:
    verdict = change.verdict
    if verdict is not None and not change.same_config:
        parts = [_machines(verdict)]
        if change.is_quiet or _moves_builds(change):
            parts.append(_money(change))
        yield from ("; ".join(parts), _workers(verdict), _waits(verdict))
    if not change.same_config:
        yield _steady_difference(change)


def _machines(verdict: Verdict) -> str:
    counts = (("create", verdict.create), ("drain", verdict.drain), ("delete", verdict.delete))
    said = [f"{abs(n):,} {'more' if n > 0 else 'fewer'} to {verb}" for verb, n in counts if n]
    if verdict.withheld > 0:
        said.append(f"guards withhold {words.many(verdict.withheld, 'action')} of this change")
    if verdict.machines_known:
        return ", ".join(said) or "no machine more or fewer"
    return f"{', '.join(said)} ({_NOT_ALL})" if said else f"machines {words.UNKNOWN}"


def _workers(verdict: Verdict) -> str:
    said = [
        f"{words.many(count, 'request')} {verb}{'s' if count == 1 else ''} a worker"
        for count, verb in ((verdict.gained, "gain"), (verdict.lost, "lose"))
        if count
    ]
    if verdict.requests_known and verdict.machines_known:
        return ", ".join(said) or "no request gains or loses a worker"
    return f"{', '.join(said)} ({_NOT_ALL})" if said else f"requests {words.UNKNOWN}"


def _waits(verdict: Verdict) -> str:
    before, after = verdict.waits_before, verdict.waits_after
    if not before.of and not after.of:
        return "no request waits" if verdict.requests_known else f"expected wait {words.UNKNOWN}"
    figures = [
        _compare_waits("p50", before.half, after.half),
        _compare_waits("p95", before.most, after.most),
    ]
    return f"expected wait {', '.join(figures)}{_unknown_starts(after)}"


def _unknown_starts(waits: ExpectedWaits) -> str:
    """Return the number of known starts, and why another is unknown; empty if all are known."""
    if waits.known == waits.of:
        return ""
    causes: defaultdict[str, list[str]] = defaultdict(list)
    for key, why in waits.unknown.items():
        causes[why].append(key)
    known = f"start of {waits.known:,} of {waits.of:,} known in this run"
    return f" ({'; '.join((known, *(f'{listed(keys)}: {why}' for why, keys in causes.items())))})"


def _compare_waits(name: str, before: int | None, after: int | None) -> str:
    """Return a wait without and with the change, as text. No arrow leads to an unknown wait."""
    old, new = (words.UNKNOWN if n is None else write_duration(n) for n in (before, after))
    if old != new and words.UNKNOWN in (old, new):
        return f"{name} {old} without this change and {new} with it"
    return f"{name} {old}" + (f" -> {new}" if new != old else "")


def comparison_headline(change: Changes) -> str:
    """Return the most important effect of a change, and the number of sensitive edits."""
    if change.same_config:
        return "No effect: only comments or order differ"
    count = len(change.sensitive)
    edits = [words.many(count, "sensitive edit")] if count else []
    worst = worst_case(change.sensitive, change.currency)
    last = ", ".join(filter(None, (*edits, worst)))
    said = "; ".join(filter(None, (_effects(change)[0], last)))
    return said[0].upper() + said[1:]


def _effects(change: Changes) -> tuple[str, ...]:
    """Return the effects of a change, the most important first; empty for an equal fleet.yaml."""
    if change.same_config:
        return ()
    found = (*_refusals(change), *_stops(change), *_effect(change))
    return tuple(filter(None, found))


def _refusals(change: Changes) -> Iterator[str]:
    """Yield one text with the guards that refuse the change and the first reason, if any does."""
    refused = [each for each in change.guards if each.after == "refused"]
    names = [f"{e.guard} of pool {e.pool}" if e.pool else e.guard for e in refused]
    if refused:
        yield describe_refused_change(words.named("guard", names), refused[0].because)


def _stops(change: Changes) -> Iterator[str]:
    """Yield the number of builds that get no machine because of the change, per cause."""
    for each in change.stopped[:_MOST_STOPS]:
        yield describe_stopped(each.count, each.because, lasting=each.is_lasting)
    if others := sum(each.count for each in change.stopped[_MOST_STOPS:]):
        yield f"{words.many(others, 'build')} for other reasons"


def _effect(change: Changes) -> Iterator[str]:
    """Yield the effect on builds, machines, images and, without builds, the lasting cost."""
    builds = ""
    if _moves_builds(change) and change.verdict is not None:
        stopped = sum(each.count for each in change.stopped)
        builds = describe_moved(change.verdict.builds, change.currency, stopped)
    yield builds or ("" if change.is_quiet else _money(change))
    if change.is_quiet and change.verdict and not change.verdict.machines_known:
        yield f"effect on machines {words.UNKNOWN}"
    elif change.is_quiet:
        unsure = " (some facts are unknown)" if change.unknown else ""
        effect = "" if change.stopped else f"no effect on machines now{unsure}"
        lasting = "" if builds else _steady_cost(change)
        due = f"{words.many(len(change.images), 'image')} to build" if change.images else ""
        yield "; ".join(filter(None, (effect, due, lasting)))


def _moves_builds(change: Changes) -> bool:
    """Return whether the change affects waiting builds and keeps the currency."""
    moved = change.verdict.builds.count if change.verdict else 0
    return bool(moved) and change.currency == change.currency_before


def _steady_cost(change: Changes) -> str:
    """Return the lasting change of the monthly cost as text; empty if it is 0 or unknown."""
    before, after = change.rest_before, change.rest_after
    if before is None or after is None or change.currency != change.currency_before:
        return ""
    month = after.month - before.month
    return f"later {month:+,.0f} {change.currency} per month" if round(month) else ""


def _steady_difference(change: Changes) -> str:
    """Return the change of the hourly and monthly cost when no request waits, as text."""
    before, after = change.rest_before, change.rest_after
    if before is None or after is None or change.currency != change.currency_before:
        return "when none waits: unknown (a price is unknown, or the currency changes)"
    hour, month = after.hour - before.hour, after.month - before.month
    if not hour and not month:
        return f"when none waits: no difference ({words.rate(after.hour)} {change.currency}/h)"
    return (
        f"when none waits: {words.rate(hour, sign=True)} {change.currency}/h, "
        f"about {month:+,.0f} {change.currency} per month "
        f"({before.month:,.0f} without it, {after.month:,.0f} with it)"
    )


def _money(change: Changes) -> str:
    """Return the change of the cost per hour after this run, as text."""
    if change.verdict and not change.verdict.cost_known:
        return f"cost per hour {words.UNKNOWN}"
    before, after, amount, *_ = words.rates(_amounts(change))
    if change.currency != change.currency_before:
        return f"{before} {change.currency_before}/h -> {after} {change.currency}/h"
    if change.cost_before == change.cost_after:
        return f"{after} {change.currency}/h with and without it"
    sign = "" if amount.startswith("-") else "+"
    figures = f"{before} without, {after} with"
    replacing = any(each.outdated for each in change.outdated)
    while_replacing = " while replacing" if replacing else ""
    return f"{sign}{amount} {change.currency}/h ({figures}){while_replacing}"


def _amounts(change: Changes) -> list[Decimal]:
    """Return all amounts of a change, to show them with the same number of decimals."""
    difference = change.cost_after - change.cost_before
    return [change.cost_before, change.cost_after, difference, *(a.cost for a in change.actions)]


def _effect_rows(change: Changes, included: Mapping[str, str]) -> list[_EffectRow]:
    rates = words.rates(_amounts(change), sign=True)[3:]
    costs = [f"{rate} {change.currency}/h" for rate in rates]
    shown = {each.path for each in change.sensitive}
    config = [_config(each) for each in change.config if each.path not in shown]
    return [
        *sorted(
            [
                *map(_pool, change.pools),
                *(row for row in config if row.where == "pool"),
                *map(_draw_outdated, change.outdated),
                *map(_actions, change.actions, costs),
            ],
            key=lambda row: row.name,  # a stable sort: edits stay before their effects
        ),
        *map(_image, change.images),
        *(_requests(each, included) for each in _merge_by_cause(change.requests)),
        *(_guard(each, included) for each in change.guards),
        *(row for row in config if row.where != "pool"),
        *(_EffectRow("action required", "", "!", text, "") for text in change.attention),
    ]


def _pool(change: PoolChange) -> _EffectRow:
    if change.change != "changed":
        return _EffectRow("pool", change.pool, "*", f"is {change.change}", "")
    what = "; ".join(
        f"{_NAMES.get(each.key, each.key)} {_values(each, each.before, each.after)}"
        for each in change.differences
    )
    return _EffectRow("pool", change.pool, "*", what, "")


def _values(change: ChangedEntries, before: str, after: str) -> str:
    """Return both values as text; of two lists, the added and removed entries."""
    entries = [
        f"{sign}{entry}"
        for sign, found in (("+", change.added), ("-", change.removed))
        for entry in found
    ]
    return listed(entries) or f"{_value(before)} -> {_value(after)}"


def _draw_outdated(change: OutdatedChange) -> _EffectRow:
    many, them = words.many(len(change.workers), "machine"), some_of(change.workers)
    if change.outdated:
        return _EffectRow(
            "pool", change.pool, "~", f"{many} outdated, replaced in turn: {them}", ""
        )
    return _EffectRow("pool", change.pool, "*", f"{many} no longer outdated: {them}", "")


def _actions(change: ActionsChange, cost: str) -> _EffectRow:
    more = change.after > change.before
    mark = {"create": "+", "drain": "~", "delete": "-"}[change.action] if more else "*"
    count = abs(change.after - change.before)
    parts = [f"{count:,} {'more' if more else 'fewer'} to {change.action}"]
    if change.before and change.after:
        parts.append(f"{change.after:,} instead of {change.before:,}")
    if change.withheld:
        parts.append("withheld by a guard")
    if change.type:
        parts.append(change.type)
    if change.workers:
        parts.append(some_of(change.workers))
    if change.cost:
        parts.append(cost)
    return _EffectRow(
        *("pool", change.pool, mark, ", ".join(parts)),
        why=change.because if more else "",  # the reason does not apply to fewer actions
        id=change.reason.value if more else "",
    )


def _image(change: ImageChange) -> _EffectRow:
    due = {"added": "new image", "recipe changed": "recipe changed"}[change.change]
    machines = words.replaced(change.replaces) or "no machine"
    why = f"{change.build}; once promoted ({change.promotion}) it replaces {machines}"
    return _EffectRow("image", change.image, "*", f"needs a build: {due}", why)


def _merge_by_cause(changes: Iterable[RequestsChange]) -> Iterator[RequestsChange]:
    """Merge changes of requests that have the same outcome and cause, regardless of their tags."""
    found: defaultdict[object, list[RequestsChange]] = defaultdict(list)
    for each in changes:
        found[each.served, each.queue, each.because, each.path].append(each)
    for first, *others in found.values():
        requests = (*first.requests, *(key for each in others for key in each.requests))
        yield first.altered(requests=requests)


def _requests(change: RequestsChange, included: Mapping[str, str]) -> _EffectRow:
    many = words.many(len(change.requests), "request")
    fate = "served" if change.served else "no longer served"
    place = words.cited([change.path], included) if change.path else ""
    return _EffectRow(
        *("queue", change.queue, "+" if change.served else "!"),
        what=f"{many} {fate}: {some_of(change.requests)}",
        why=explain_place(change.because, place),
    )


def _guard(change: GuardChange, included: Mapping[str, str]) -> _EffectRow:
    if change.after == "passed":
        what = f"no longer {_GUARDS[change.before]}"
    else:
        is_new = change.before != change.after
        what = f"newly {_GUARDS[change.after]}" if is_new else f"{_GUARDS[change.after]} more"
    limit = words.cited([change.path], included) if change.path else ""
    why = explain_guard(change.because, limit, change.way_out)
    where = "guard of pool" if change.pool else "guard of"
    return _EffectRow(where, change.pool or "the whole fleet", "!", what, why, change.guard)


def _config(change: ConfigChange) -> _EffectRow:
    section, *inner = change.path
    if section == "pools":
        pool, *key = inner
        return _EffectRow("pool", str(pool), "*", f"{yaml_key(key)} {_edit(change)}", "")
    return _EffectRow("fleet.yaml", "", "*", f"{yaml_key(change.path)}: {_edit(change)}", "")


def _edit(change: ConfigChange) -> str:
    if not change.before:
        return f"{_value(change.after)} added"
    if not change.after:
        return f"{_value(change.before)} removed"
    return _values(change, change.before, change.after)


def _value(text: str) -> str:
    """Return a value as text. A list or map becomes code, so that Markdown keeps it whole."""
    return f"`{text}`" if re.search(r"[\[{\"]", text) and "`" not in text else text


_MAX_BUILDS = 20
"""Maximum builds in a report; the JSON has all builds."""
_MAX_SHOWN = 5
"""Maximum builds in a terminal, so that the report fits on a screen."""


class _BuildRow(NamedTuple):
    """One machine that a build may run on, with a note."""

    place: PlaceFacts
    note: str


def describe_moved(builds: MovedBuilds, currency: str, stopped: int) -> str:
    """Return the cost and time of affected waiting builds with and without a change, as text.

    `stopped` builds get no machine with the change.
    """
    count = builds.count
    before, after = (_sum(each, count, currency) for each in (builds.before, builds.after))
    which = "this build" if count == 1 else f"these {count:,} builds"
    if stopped >= count > builds.after.unplaced:
        which += ", if they start" if count > 1 else ", if it starts"
    return f"{which}: {after} ({before} without this change)"


def _sum(builds: BuildsCost, count: int, currency: str) -> str:
    if builds.unplaced == count:
        return "no machine fits"
    cost = _cost(builds.cost, currency)
    if builds.seconds:
        longest = "" if count == 1 else "the longest "
        cost += f", {longest}{write_duration(builds.seconds)}"
    if not builds.unplaced:
        return cost
    return f"{cost}, no machine fits {builds.unplaced:,} of them"


def builds_section(builds: Sequence[ComparedBuild], currency: str) -> Section:
    """Return a table of affected builds and their possible machines, and count the others."""
    moved = [build for build in builds if build.is_moved]
    rows = []
    for nth, build in enumerate(moved[:_MAX_BUILDS]):
        form = Form.ALL if nth < _MAX_SHOWN else Form.FULL
        name = line(StyledText(build.name, Style.BOLD), f" {_describe_build(build)}".rstrip())
        for option in _rows(build):
            place = option.place
            rows.append(
                row(
                    name,
                    words.place(place),
                    words.time(place.start),
                    words.time(place.end) if place.end else words.UNKNOWN,
                    words.UNKNOWN if place.seconds is None else write_duration(place.seconds),
                    _cost(place.cost, currency),
                    option.note,
                    form=form,
                )
            )
    for most, form in ((_MAX_SHOWN, Form.BRIEF), (_MAX_BUILDS, Form.FULL)):
        if (hidden := len(moved) - min(_MAX_BUILDS, most)) > 0:
            rows.append(row("", f"… and {hidden:,} more, in the JSON", form=form))
    columns = (
        Column("Build", ColumnKind.GROUP),
        Column("place"),
        Column("start", fold=1),
        Column("end"),
        Column("takes", fold=2),
        Column("cost", ColumnKind.FIGURE),
        Column("note", ColumnKind.PROSE),
    )
    title = "Time and money of the builds that this change moves, on machines created now"
    blocks: list[Block] = [Table(columns, rows)]
    if moved and (others := sum(build.count for build in builds if not build.is_moved)):
        many = words.many(others, "other waiting build")
        blocks.append(line(f"Not moved: {many}, see the JSON"))
    return Section(title, blocks)


def _describe_build(build: ComparedBuild) -> str:
    count = words.many(build.count, "build") if build.count > 1 else ""
    return ", ".join(filter(None, (build.task, count)))


def _rows(build: ComparedBuild) -> Iterator[_BuildRow]:
    """Yield the possible machines of a build: those that fit without the change, then others."""
    fitting = {way_to(each): each for each in build.before if not each.asks}
    after = {way_to(each): each for each in build.after}
    for way in dict.fromkeys((*fitting, *after)):
        old, new = fitting.get(way), after.get(way)
        # If a machine fits without and with the change, show the figures with the change.
        place = old if old and (new is None or new.asks) else new
        if place is None:
            continue
        chosen = "planned" if place.is_chosen else ""
        if place is old and (new is None or new.asks):
            chosen = f"{chosen or 'only'} without this change"
        elif old is None and not place.asks:
            chosen = f"{chosen or 'only'} with this change"
        yield _BuildRow(place, ", ".join(filter(None, (chosen, words.place_note(place)))))


def _cost(amount: Decimal | None, currency: str) -> str:
    return f"cost {words.UNKNOWN}" if amount is None else f"{words.bill(amount)} {currency}"


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
