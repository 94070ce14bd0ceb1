"""Render the effect of a change of fleet.yaml as a document."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
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
    PoolValueChange,
    RequestsChange,
    Verdict,
)
from fleet.explain.config_changes import ChangedEntries, ConfigChange
from fleet.model.facts import Unknown
from fleet.planner.forecast import ExpectedWaits
from fleet.report.builds import builds_section, describe_moved
from fleet.report.document import (
    Block,
    Column,
    ColumnKind,
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
from fleet.report.sensitive import rule_facts, sensitive_edit, worst_case
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
    what = "; ".join(map(_difference, change.differences))
    return _EffectRow("pool", change.pool, "*", what, "")


def _difference(each: PoolValueChange) -> str:
    return f"{_NAMES.get(each.key, each.key)} {_values(each, each.before, each.after)}"


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
