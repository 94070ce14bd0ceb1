"""Render the effect of a change of fleet.yaml as a document."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.builds import RuleReach
from fleet.explain.changes import (
    ActionsChange,
    Changes,
    Comparison,
    GuardChange,
    ImageChange,
    OutdatedChange,
    RequestsChange,
    Verdict,
)
from fleet.explain.costs import BuildsCost, ComparedBuild, MovedBuilds, way_to
from fleet.explain.edits import ChangedEntries, ConfigChange
from fleet.explain.sensitive import Kind, SensitiveEdit
from fleet.model.facts import PlaceFacts, Unknown
from fleet.planner.forecast import ExpectedWaits
from fleet.report.document import (
    Block,
    Column,
    ColumnKind,
    Items,
    Row,
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
_MAX_BUILDS = 10
"""Maximum builds in a report; the JSON has all builds."""
_MOST_STOPS = 2
_GUARDS = {"refused": "refuses", "throttled": "throttles"}
_STYLES = {"+": Style.GREEN, "~": Style.YELLOW, "-": Style.RED, "!": Style.YELLOW}
_UNKNOWN = StyledText("? ", Style.YELLOW)


def comparison_blocks(change: Comparison, included: Mapping[str, str]) -> Iterator[Block]:
    """Yield the sections on the effect of a change, without the headline and the figures."""
    if isinstance(change, Unknown):
        yield Section("Effect of this change: unknown", [Items((change.unknown,), _UNKNOWN)])
        return
    edits = [_draw_sensitive(each, change.currency) for each in change.sensitive]
    title = f"Sensitive edits: {len(edits)}" if edits else ""
    columns = (Column("Edit"), *_prose("In fleet.yaml", "About"))
    yield Section(title, [_list(columns, edits) if edits else bold("No sensitive edits")])
    columns = (
        Column("Where", ColumnKind.GROUP),
        Column("Effect"),
        Column("Why", ColumnKind.PROSE),
        Column("Reason", ColumnKind.ID),
    )
    effects = _list(columns, [effect.draw() for effect in _effects(change, included)], at=1)
    yield Section("Effects of this change", [effects, Items(change.unknown, _UNKNOWN)])
    rules = [_draw_rule(each, change.currency) for each in change.allow_list]
    title = "Rules of the allow-list that this change adds or changes"
    columns = (Column("Rule"), *_prose("Recorded builds", "Whose", "Cost"))
    yield Section(title, [_list(columns, rules)])
    yield _builds(change)


def _prose(*names: str) -> Iterator[Column]:
    return (Column(name, ColumnKind.PROSE) for name in names)


def _list(columns: Sequence[Column], rows: Sequence[Row], *, at: int = 0) -> Table:
    """Return a table that a terminal shortens. Column `at` has the number of hidden rows."""
    shown = shorten(rows, _MOST_ROWS, "{} more, all in the JSON", at=at)
    return Table(columns, shown, is_list=True)


# The headline and the figures


def comparison_headline(change: Changes) -> str:
    """Return the most important effect of a change, and the number of sensitive edits."""
    if change.same_config:
        return "No effect: only comments or order differ"
    count = len(change.sensitive)
    edits = words.many(count, "sensitive edit") if count else ""
    worst = _worst_case(change.sensitive, change.currency)
    last = ", ".join(filter(None, (edits, worst)))
    said = "; ".join(filter(None, (next(_main_effects(change)), last)))
    return said[0].upper() + said[1:]


def comparison_figures(change: Changes) -> Items:
    """Return the effects after the headline, those on this run, then those when none waits."""
    if change.same_config:
        return Items(())
    _, *texts = _main_effects(change)
    verdict = change.verdict
    if verdict is not None:
        money = _money(change) if change.is_quiet or _moves_builds(change) else ""
        texts.append("; ".join(filter(None, (_machines(verdict), money))))
        texts += [_workers(verdict), _waits(verdict)]
    return Items((*texts, _cost_at_rest(change)), StyledText("- "))


def _main_effects(change: Changes) -> Iterator[str]:
    """Yield the refusals, the stopped builds, then the effect on builds, machines and images."""
    refused = [each for each in change.guards if each.after == "refused"]
    names = [f"{each.guard} of pool {each.pool}" if each.pool else each.guard for each in refused]
    if refused:
        yield describe_refused_change(words.named("guard", names), refused[0].because)
    for each in change.stopped[:_MOST_STOPS]:
        yield describe_stopped(each.count, each.because, lasting=each.is_lasting)
    if others := sum(each.count for each in change.stopped[_MOST_STOPS:]):
        yield f"{words.many(others, 'build')} for other reasons"
    moved = change.verdict is not None and _moves_builds(change)
    if moved and change.verdict is not None:
        stopped = sum(each.count for each in change.stopped)
        yield _describe_moved(change.verdict.builds, change.currency, stopped)
    elif not change.is_quiet:
        yield _money(change)
    if not change.is_quiet:
        return
    if change.verdict and not change.verdict.machines_known:
        yield f"effect on machines {words.UNKNOWN}"
        return
    unsure = " (some facts are unknown)" if change.unknown else ""
    parts = [] if change.stopped else [f"no effect on machines now{unsure}"]
    parts += [f"{words.many(len(change.images), 'image')} to build"] if change.images else []
    rest = _compare_rest(change)
    if not moved and rest and round(rest[1]):
        parts.append(f"later {rest[1]:+,.0f} {change.currency} per month")
    if parts:
        yield "; ".join(parts)


def _moves_builds(change: Changes) -> bool:
    """Return whether the change affects waiting builds and keeps the currency."""
    moved = change.verdict.builds.count if change.verdict else 0
    return bool(moved) and change.currency == change.currency_before


def _describe_moved(builds: MovedBuilds, currency: str, stopped: int) -> str:
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
    parts = [_cost(builds.cost, currency)]
    if builds.seconds:
        longest = "" if count == 1 else "the longest "
        parts.append(f"{longest}{write_duration(builds.seconds)}")
    if builds.unplaced:
        parts.append(f"no machine fits {builds.unplaced:,} of them")
    return ", ".join(parts)


def _machines(verdict: Verdict) -> str:
    counts = (("create", verdict.create), ("drain", verdict.drain), ("delete", verdict.delete))
    said = [f"{abs(n):,} {'more' if n > 0 else 'fewer'} to {verb}" for verb, n in counts if n]
    if verdict.withheld > 0:
        said.append(f"guards withhold {words.many(verdict.withheld, 'action')} of this change")
    none = "no machine more or fewer"
    return _add_doubt("machines", said, none, is_known=verdict.machines_known)


def _workers(verdict: Verdict) -> str:
    said = [
        f"{words.many(count, 'request')} {verb}{'s' if count == 1 else ''} a worker"
        for count, verb in ((verdict.gained, "gain"), (verdict.lost, "lose"))
        if count
    ]
    none = "no request gains or loses a worker"
    is_known = verdict.requests_known and verdict.machines_known
    return _add_doubt("requests", said, none, is_known=is_known)


def _add_doubt(noun: str, said: Sequence[str], none: str, *, is_known: bool) -> str:
    if is_known:
        return ", ".join(said) or none
    return f"{', '.join(said)} (not everything is known)" if said else f"{noun} {words.UNKNOWN}"


def _waits(verdict: Verdict) -> str:
    before, after = verdict.waits_before, verdict.waits_after
    if not before.of and not after.of:
        return "no request waits" if verdict.requests_known else f"expected wait {words.UNKNOWN}"
    half = _compare_waits("p50", before.half, after.half)
    most = _compare_waits("p95", before.most, after.most)
    return f"expected wait {half}, {most}{_unknown_starts(after)}"


def _compare_waits(name: str, before: int | None, after: int | None) -> str:
    """Return a wait without and with the change, as text. No arrow leads to an unknown wait."""
    old, new = (words.UNKNOWN if n is None else write_duration(n) for n in (before, after))
    if old != new and words.UNKNOWN in (old, new):
        return f"{name} {old} without this change and {new} with it"
    return f"{name} {old}" + (f" -> {new}" if new != old else "")


def _unknown_starts(waits: ExpectedWaits) -> str:
    """Return the number of known starts, and why another is unknown; empty if all are known."""
    if waits.known == waits.of:
        return ""
    causes: defaultdict[str, list[str]] = defaultdict(list)
    for key, why in waits.unknown.items():
        causes[why].append(key)
    known = f"start of {waits.known:,} of {waits.of:,} known in this run"
    return f" ({'; '.join((known, *(f'{listed(keys)}: {why}' for why, keys in causes.items())))})"


def _money(change: Changes) -> str:
    """Return the change of the cost per hour after this run, as text."""
    if change.verdict and not change.verdict.cost_known:
        return f"cost per hour {words.UNKNOWN}"
    difference = change.cost_after - change.cost_before
    before, after, amount = words.rates([change.cost_before, change.cost_after, difference])
    if change.currency != change.currency_before:
        return f"{before} {change.currency_before}/h -> {after} {change.currency}/h"
    if change.cost_before == change.cost_after:
        return f"{after} {change.currency}/h with and without it"
    sign = "" if amount.startswith("-") else "+"
    replacing = any(each.outdated for each in change.outdated)
    return (
        f"{sign}{amount} {change.currency}/h ({before} without, {after} with)"
        f"{' while replacing' if replacing else ''}"
    )


def _compare_rest(change: Changes) -> tuple[Decimal, Decimal] | None:
    """Return the change of the hourly and monthly cost when no request waits; None if unknown."""
    before, after = change.rest_before, change.rest_after
    if before is None or after is None or change.currency != change.currency_before:
        return None
    return after.hour - before.hour, after.month - before.month


def _cost_at_rest(change: Changes) -> str:
    difference, before, after = _compare_rest(change), change.rest_before, change.rest_after
    if difference is None or before is None or after is None:
        return "when none waits: unknown (a price is unknown, or the currency changes)"
    if not any(difference):
        return f"when none waits: no difference ({words.rate(after.hour)} {change.currency}/h)"
    hour, month = difference
    return (
        f"when none waits: {words.rate(hour, sign=True)} {change.currency}/h, "
        f"about {month:+,.0f} {change.currency} per month "
        f"({before.month:,.0f} without it, {after.month:,.0f} with it)"
    )


# The effects


class _Effect(NamedTuple):
    """One effect of the change: pool or queue, mark of its kind, text and reason."""

    where: str
    name: str
    mark: str
    what: str
    why: str = ""
    id: str = ""

    def draw(self) -> Row:
        """Return the row of the effect."""
        style = _STYLES.get(self.mark, Style.PLAIN)
        where = line(f"{self.where} ", StyledText(self.name, Style.BOLD))
        what = line(StyledText(self.what, style))
        return row(where, what, self.why, self.id, mark=StyledText(f"{self.mark} ", style))


def _effects(change: Changes, included: Mapping[str, str]) -> Iterator[_Effect]:
    shown = {each.path for each in change.sensitive}
    config = [_config(each) for each in change.config if each.path not in shown]
    of_pools = [
        *_pools(change),
        *(each for each in config if each.where == "pool"),
        *map(_draw_outdated, change.outdated),
        *(_actions(each, change.currency) for each in change.actions),
    ]
    yield from sorted(of_pools, key=lambda each: each.name)  # stable: edits before their effects
    yield from map(_image, change.images)
    yield from (_requests(each, included) for each in _merge_by_cause(change.requests))
    yield from (_guard(each, included) for each in change.guards)
    yield from (each for each in config if each.where != "pool")
    yield from (_Effect("action required", "", "!", text) for text in change.attention)


def _pools(change: Changes) -> Iterator[_Effect]:
    for pool in change.pools:
        edits = [
            f"{'machine type' if each.key == 'type' else each.key} "
            f"{_values(each, each.before, each.after)}"
            for each in pool.differences
        ]
        yield _Effect("pool", pool.pool, "*", "; ".join(edits) or f"is {pool.change}")


def _draw_outdated(change: OutdatedChange) -> _Effect:
    many, them = words.many(len(change.workers), "machine"), some_of(change.workers)
    if change.outdated:
        return _Effect("pool", change.pool, "~", f"{many} outdated, replaced in turn: {them}")
    return _Effect("pool", change.pool, "*", f"{many} no longer outdated: {them}")


def _actions(change: ActionsChange, currency: str) -> _Effect:
    more = change.after > change.before
    count = abs(change.after - change.before)
    is_partial = change.before and change.after
    parts = [
        f"{count:,} {'more' if more else 'fewer'} to {change.action}",
        f"{change.after:,} instead of {change.before:,}" if is_partial else "",
        "withheld by a guard" if change.withheld else "",
        change.type,
        some_of(change.workers),
        f"{words.hourly(change.cost, sign=True)} {currency}/h" if change.cost else "",
    ]
    what = ", ".join(filter(None, parts))
    if not more:  # the reason does not apply to fewer actions
        return _Effect("pool", change.pool, "*", what)
    mark = {"create": "+", "drain": "~", "delete": "-"}[change.action]
    return _Effect("pool", change.pool, mark, what, change.because, change.reason.value)


def _image(change: ImageChange) -> _Effect:
    due = {"added": "new image", "recipe changed": "recipe changed"}[change.change]
    machines = words.replaced(change.replaces) or "no machine"
    why = f"{change.build}; once promoted ({change.promotion}) it replaces {machines}"
    return _Effect("image", change.image, "*", f"needs a build: {due}", why)


def _merge_by_cause(changes: Iterable[RequestsChange]) -> Iterator[RequestsChange]:
    """Merge changes of requests that have the same outcome and cause, regardless of their tags."""
    found: defaultdict[object, list[RequestsChange]] = defaultdict(list)
    for each in changes:
        found[each.served, each.queue, each.because, each.path].append(each)
    for alike in found.values():
        yield alike[0].altered(requests=tuple(key for each in alike for key in each.requests))


def _requests(change: RequestsChange, included: Mapping[str, str]) -> _Effect:
    many = words.many(len(change.requests), "request")
    mark, fate = ("+", "served") if change.served else ("!", "no longer served")
    place = words.cited([change.path], included) if change.path else ""
    why = explain_place(change.because, place)
    return _Effect("queue", change.queue, mark, f"{many} {fate}: {some_of(change.requests)}", why)


def _guard(change: GuardChange, included: Mapping[str, str]) -> _Effect:
    if change.after == "passed":
        what = f"no longer {_GUARDS[change.before]}"
    elif change.before != change.after:
        what = f"newly {_GUARDS[change.after]}"
    else:
        what = f"{_GUARDS[change.after]} more"
    limit = words.cited([change.path], included) if change.path else ""
    why = explain_guard(change.because, limit, change.way_out)
    where = "guard of pool" if change.pool else "guard of"
    return _Effect(where, change.pool or "the whole fleet", "!", what, why, change.guard)


def _config(change: ConfigChange) -> _Effect:
    if not change.before:
        edit = f"{_value(change.after)} added"
    elif not change.after:
        edit = f"{_value(change.before)} removed"
    else:
        edit = _values(change, change.before, change.after)
    if change.path[0] == "pools":
        _, pool, *key = change.path
        return _Effect("pool", str(pool), "*", f"{yaml_key(key)} {edit}")
    return _Effect("fleet.yaml", "", "*", f"{yaml_key(change.path)}: {edit}")


def _values(change: ChangedEntries, before: str, after: str) -> str:
    """Return both values as text; of two lists, the added and removed entries."""
    entries = [*(f"+{each}" for each in change.added), *(f"-{each}" for each in change.removed)]
    return listed(entries) or f"{_value(before)} -> {_value(after)}"


def _value(text: str) -> str:
    """Return a value as text. A list or map becomes code, so that Markdown keeps it whole."""
    return f"`{text}`" if re.search(r"[\[{\"]", text) and "`" not in text else text


# The builds that move


def _builds(change: Changes) -> Section:
    """Return the places that fit moved builds without or with the change; count the others."""
    moved = [build for build in change.builds if build.is_moved]
    rows = []
    for build in moved[:_MAX_BUILDS]:
        count = words.many(build.count, "build") if build.count > 1 else ""
        about = ", ".join(filter(None, (build.task, count)))
        name = line(StyledText(build.name, Style.BOLD), f" {about}".rstrip())
        rows += [
            row(
                name,
                words.place(each),
                words.time(each.start),
                words.time(each.end) if each.end else words.UNKNOWN,
                words.UNKNOWN if each.seconds is None else write_duration(each.seconds),
                _cost(each.cost, change.currency),
                note,
            )
            for each, note in _compare_places(build)
        ] or [row(name, "no machine fits")]
    if hidden := len(moved[_MAX_BUILDS:]):
        rows.append(row("", f"… and {hidden:,} more, in the JSON"))
    columns = (
        Column("Build", ColumnKind.GROUP),
        Column("place"),
        Column("start", fold=1),
        Column("end"),
        Column("takes", fold=2),
        Column("cost", ColumnKind.FIGURE),
        Column("note", ColumnKind.PROSE),
    )
    blocks: list[Block] = [Table(columns, rows)]
    if moved and (others := sum(each.count for each in change.builds if not each.is_moved)):
        many = words.many(others, "other waiting build")
        blocks.append(line(f"Not moved: {many}, see the JSON"))
    title = "Time and money of the builds that this change moves, on machines created now"
    return Section(title, blocks)


def _compare_places(build: ComparedBuild) -> Iterator[tuple[PlaceFacts, str]]:
    """Yield each place that fits a build, or needs a rule, and a note; those before come first.

    A place that fits on both sides has the figures with the change.
    """
    before = {way_to(each): each for each in build.before if not each.asks}
    after = {way_to(each): each for each in build.after}
    for way in dict.fromkeys((*before, *after)):
        new = after.get(way)
        is_lost = way in before and (new is None or bool(new.asks))
        each = before[way] if is_lost else after[way]
        side = ""
        if is_lost:
            side = "without this change"
        elif way not in before and not each.asks:
            side = "with this change"
        chosen = "planned" if each.is_chosen else "only" if side else ""
        yield each, ", ".join(filter(None, (f"{chosen} {side}".strip(), words.place_note(each))))


def _cost(amount: Decimal | None, currency: str) -> str:
    return f"cost {words.UNKNOWN}" if amount is None else f"{words.bill(amount)} {currency}"


# The sensitive edits and the rules of the allow-list


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


def _draw_sensitive(edit: SensitiveEdit, currency: str) -> Row:
    what, gone = _SENSITIVE[edit.kind]
    key = yaml_key(edit.path)
    place = f"{key} ({edit.place})" if edit.place else key
    values = _values(edit, edit.before or "none", edit.after or gone)
    about = _describe_subject(edit, currency)
    yellow = StyledText(what, Style.YELLOW)
    return row(line(yellow), f"{place}: {values}", about, mark=StyledText("! ", Style.YELLOW))


def _worst_case(edits: Sequence[SensitiveEdit], currency: str) -> str:
    """Return the most that the machines of higher `workers.max` cost, as text; empty without."""
    costs = [each.cost for each in edits if each.cost]
    return f"up to {words.rate(sum(costs, Decimal(0)), sign=True)} {currency}/h" if costs else ""


def _describe_subject(edit: SensitiveEdit, currency: str) -> str:
    names = some_of(edit.examples, total=edit.count)
    if edit.path[2:] == ("workers", "max"):
        worst = _worst_case([edit], currency) or f"cost {words.UNKNOWN}"
        keys = listed([f"{key} ({value})" for key, value in edit.bounds.items()])
        bound = f"bounded by {keys}" if keys else "no budget or limit of a tag bounds it"
        return f"if all these machines exist: {worst}; {bound}"
    count = edit.count
    if edit.kind == "pool-removed":
        machines = words.many(count or 0, "machine")
        return (
            f"{machines}, {edit.busy} busy: {names}"
            if count
            else f"its machines are {words.UNKNOWN}"
        )
    if edit.kind != "pattern-matches-more":
        return f"the tag of pools: {names}" if names else ""
    if count is None:
        return f"builds {words.UNKNOWN}: {edit.nameless or 'no build is recorded'}"
    builds = f"{words.many(count, 'recorded build')} newly{_packages(edit.packages)}"
    return builds if count else "none of the recorded builds yet"


def _draw_rule(rule: RuleReach, currency: str) -> Row:
    only = f" of task {rule.task}" if rule.task else ""
    name = line(StyledText(rule.match, Style.BOLD), f"{only} asks for {listed(rule.ask)}")
    people = [
        f"{what}: {_count_each(counts)}"
        for what, counts in (("owners", rule.owners), ("requesters", rule.requesters))
        if counts
    ]
    whose = "; ".join(people) or "no recorded build"
    return row(name, _matches(rule), whose, _rule_cost(rule, currency))


def _matches(rule: RuleReach) -> str:
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
    if len(builds) > 1:
        return f", of {len(builds):,} packages: {_count_each(builds)}"
    return "".join(f"{', all' if count > 1 else ':'} {name}" for name, count in builds.items())


def _count_each(counts: Mapping[str, int]) -> str:
    return some_of([f"{name} ({count:,})" for name, count in counts.items()])


def _rule_cost(rule: RuleReach, currency: str) -> str:
    if rule.cost is None:
        return f"cost {words.UNKNOWN}: {rule.not_known}"
    once = f"{words.bill(rule.cost)} {currency} for these builds"
    if rule.cost_before is not None:
        once += f" ({words.bill(rule.cost_before)} without this change)"
    if rule.month is None:
        return f"{once}; per month {words.UNKNOWN}: {rule.not_known}"
    return f"{once}; at least {rule.month:,.0f} {currency} per month"
