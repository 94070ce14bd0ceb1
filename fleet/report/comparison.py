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
    PoolChange,
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
    Entry,
    Items,
    Line,
    Section,
    Style,
    StyledText,
    Table,
    TableOf,
    bold,
    line,
    row,
    yellow,
)
from fleet.schema.findings import Path, listed, some_of, yaml_key
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
_MARKS = {"create": "+", "drain": "~", "delete": "-"}
_UNKNOWN = StyledText("? ", Style.YELLOW)


def comparison_blocks(change: Comparison, included: Mapping[str, str]) -> Iterator[Block]:
    """Yield the sections on the effect of a change, without the headline and the figures."""
    if isinstance(change, Unknown):
        yield Section("Effect of this change: unknown", [Items((change.unknown,), _UNKNOWN)])
        return
    count, currency = len(change.sensitive), change.currency
    edits = (
        TableOf(change.sensitive, is_list=True, mark=yellow("! "))
        .text("Edit", lambda each: line(yellow(_SENSITIVE[each.kind][0])))
        .prose("In fleet.yaml", _describe_edit)
        .prose("About", lambda each: _describe_subject(each, currency))
    )
    title = f"Sensitive edits: {count}" if count else ""
    yield Section(title, [_cut(edits) if count else bold("No sensitive edits")])
    effects = (
        TableOf(_effects(change, included), is_list=True, mark=_Effect.sign)
        .add(
            Column("Where", ColumnKind.GROUP),
            lambda each: line(f"{each.where} ", *bold(each.name)),
        )
        .text("Effect", lambda each: line(StyledText(each.what, each.style)))
        .prose("Why", lambda each: each.why)
        .add(Column("Reason", ColumnKind.ID), lambda each: each.id)
    )
    yield Section("Effects of this change", [_cut(effects), Items(change.unknown, _UNKNOWN)])
    rules = (
        TableOf(change.allow_list, is_list=True)
        .text("Rule", _name_rule)
        .prose("Recorded builds", _describe_matches)
        .prose("Whose", _describe_people)
        .prose("Cost", lambda each: _describe_rule_cost(each, currency))
    )
    yield Section("Rules of the allow-list that this change adds or changes", [_cut(rules)])
    yield _builds(change)


def _cut(table: TableOf[Entry]) -> TableOf[Entry]:
    """Return a table that a terminal shortens."""
    return table.keep(_MOST_ROWS, lambda rest: f"{len(rest):,} more, all in the JSON")


# The headline and the figures


def comparison_headline(change: Changes) -> str:
    """Return the most important effect of a change, and the number of sensitive edits."""
    if change.same_config:
        return "No effect: only comments or order differ"
    edits = words.many(len(change.sensitive), "sensitive edit") if change.sensitive else ""
    edits = words.join(", ", edits, _worst_case(change.sensitive, change.currency))
    said = words.join("; ", next(_main_effects(change)), edits)
    return said[0].upper() + said[1:]


def comparison_figures(change: Changes) -> Items:
    """Return the effects after the headline, those on this run, then those when none waits."""
    if change.same_config:
        return Items(())
    _, *texts = _main_effects(change)
    if verdict := change.verdict:
        money = _money(change) if change.is_quiet or _moves_builds(change) else ""
        texts += [
            words.join("; ", _machines(verdict), money),
            _workers(verdict),
            _waits(verdict),
        ]
    return Items((*texts, _cost_at_rest(change)), StyledText("- "))


def _main_effects(change: Changes) -> Iterator[str]:
    """Yield the refusals, the stopped builds, then the effect on builds, machines and images."""
    if refused := [each for each in change.guards if each.after == "refused"]:
        names = [each.guard + f" of pool {each.pool}" * bool(each.pool) for each in refused]
        yield describe_refused_change(words.named("guard", names), refused[0].because)
    for each in change.stopped[:_MOST_STOPS]:
        yield describe_stopped(each.count, each.is_lasting, each.because)
    if others := sum(each.count for each in change.stopped[_MOST_STOPS:]):
        yield f"{words.many(others, 'build')} for other reasons"
    moved = change.verdict if _moves_builds(change) else None
    if moved:
        stopped = sum(each.count for each in change.stopped)
        yield _describe_moved(moved.builds, change.currency, stopped)
    elif not change.is_quiet:
        yield _money(change)
    if not change.is_quiet:
        return
    if change.verdict and not change.verdict.machines_known:
        yield f"effect on machines {words.UNKNOWN}"
        return
    unsure = " (some facts are unknown)" * bool(change.unknown)
    images, rest = change.images, _compare_rest(change)
    later = not moved and rest and round(rest[1])
    effects = words.join(
        "; ",
        "" if change.stopped else f"no effect on machines now{unsure}",
        f"{words.many(len(images), 'image')} to build" if images else "",
        f"later {rest[1]:+,.0f} {change.currency} per month" if rest and later else "",
    )
    yield from [effects] if effects else []


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
    longest = "" if count == 1 else "the longest "
    return words.join(
        ", ",
        _cost(builds.cost, currency),
        f"{longest}{write_duration(builds.seconds)}" if builds.seconds else "",
        f"no machine fits {builds.unplaced:,} of them" if builds.unplaced else "",
    )


def _machines(verdict: Verdict) -> str:
    counts = (("create", verdict.create), ("drain", verdict.drain), ("delete", verdict.delete))
    said = [f"{abs(n):,} {'more' if n > 0 else 'fewer'} to {verb}" for verb, n in counts if n]
    if verdict.withheld > 0:
        said.append(f"guards withhold {words.many(verdict.withheld, 'action')} of this change")
    if verdict.machines_known:
        said = said or ["no machine more or fewer"]
    return _add_doubt("machines", said, is_known=verdict.machines_known)


def _workers(verdict: Verdict) -> str:
    said = [
        f"{words.many(count, 'request')} {verb}{'s' if count == 1 else ''} a worker"
        for count, verb in ((verdict.gained, "gain"), (verdict.lost, "lose"))
        if count
    ]
    is_known = verdict.requests_known and verdict.machines_known
    if is_known:
        said = said or ["no request gains or loses a worker"]
    return _add_doubt("requests", said, is_known=is_known)


def _add_doubt(noun: str, said: Sequence[str], *, is_known: bool) -> str:
    doubt = "" if is_known else " (not everything is known)"
    return f"{', '.join(said)}{doubt}" if said else f"{noun} {words.UNKNOWN}"


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
    if not difference:
        return f"{after} {change.currency}/h with and without it"
    sign = "" if amount.startswith("-") else "+"
    replacing = " while replacing" * any(each.outdated for each in change.outdated)
    return f"{sign}{amount} {change.currency}/h ({before} without, {after} with){replacing}"


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
    """One effect of the change: mark of its kind, pool or queue, text and reason."""

    mark: str
    where: str
    name: str
    what: str
    why: str = ""
    id: str = ""

    @property
    def style(self) -> Style:
        """Return the style of the kind of effect."""
        return _STYLES.get(self.mark, Style.PLAIN)

    def sign(self) -> StyledText:
        """Return the mark before the row."""
        return StyledText(f"{self.mark} ", self.style)


def _effects(change: Changes, included: Mapping[str, str]) -> Iterator[_Effect]:
    shown = {each.path for each in change.sensitive}
    config = [_config(each) for each in change.config if each.path not in shown]
    of_pools = [
        *(
            _Effect("*", "pool", each.pool, _list_differences(each) or f"is {each.change}")
            for each in change.pools
        ),
        *(each for each in config if each.where == "pool"),
        *(
            _Effect(
                *("~" if each.outdated else "*", "pool", each.pool),
                f"{words.many(len(each.workers), 'machine')} "
                f"{'outdated, replaced in turn' if each.outdated else 'no longer outdated'}: "
                f"{some_of(each.workers)}",
            )
            for each in change.outdated
        ),
        *(_actions(each, change.currency) for each in change.actions),
    ]
    yield from sorted(of_pools, key=lambda each: each.name)  # stable: edits before their effects
    for image in change.images:
        due = "new image" if image.change == "added" else image.change
        machines = words.replaced(image.replaces) or "no machine"
        why = f"{image.build}; once promoted ({image.promotion}) it replaces {machines}"
        yield _Effect("*", "image", image.image, f"needs a build: {due}", why)
    yield from _requests(change.requests, included)
    yield from (_guard(each, included) for each in change.guards)
    yield from (each for each in config if each.where != "pool")
    yield from (_Effect("!", "action required", "", text) for text in change.attention)


def _list_differences(pool: PoolChange) -> str:
    return "; ".join(
        f"{'machine type' if each.key == 'type' else each.key} "
        f"{_values(each, each.before, each.after)}"
        for each in pool.differences
    )


def _actions(change: ActionsChange, currency: str) -> _Effect:
    more = change.after > change.before
    count = abs(change.after - change.before)
    what = words.join(
        ", ",
        f"{count:,} {'more' if more else 'fewer'} to {change.action}",
        f"{change.after:,} instead of {change.before:,}" if change.before and change.after else "",
        "withheld by a guard" * change.withheld,
        change.type or "",
        some_of(change.workers),
        f"{words.hourly(change.cost, sign=True)} {currency}/h" if change.cost else "",
    )
    if not more:  # the reason does not apply to fewer actions
        return _Effect("*", "pool", change.pool, what)
    reason = change.because, change.reason.value
    return _Effect(_MARKS[change.action], "pool", change.pool, what, *reason)


def _requests(changes: Iterable[RequestsChange], included: Mapping[str, str]) -> Iterator[_Effect]:
    """Yield an effect per outcome and cause of requests, regardless of their tags."""
    found: defaultdict[tuple[bool, str, str, Path], list[str]] = defaultdict(list)
    for each in changes:
        found[each.served, each.queue, each.because, each.path] += each.requests
    for (served, queue, because, path), keys in found.items():
        mark, fate = ("+", "served") if served else ("!", "no longer served")
        why = explain_place(because, words.cited([path], included) if path else "")
        what = f"{words.many(len(keys), 'request')} {fate}: {some_of(keys)}"
        yield _Effect(mark, "queue", queue, what, why)


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
    return _Effect("!", where, change.pool or "the whole fleet", what, why, change.guard)


def _config(change: ConfigChange) -> _Effect:
    if change.before and change.after:
        edit = _values(change, change.before, change.after)
    else:
        edit = f"{_value(change.before or change.after)} {'removed' if change.before else 'added'}"
    if change.path[0] == "pools":
        _, pool, *key = change.path
        return _Effect("*", "pool", str(pool), f"{yaml_key(key)} {edit}")
    return _Effect("*", "fleet.yaml", "", f"{yaml_key(change.path)}: {edit}")


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
        about = words.join(", ", build.task, count)
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
        old, new = before.get(way), after.get(way)
        if old and (new is None or new.asks):
            each, side = old, "without this change"
        else:
            each = after[way]
            side = "" if old or each.asks else "with this change"
        chosen = "planned" if each.is_chosen else "only" if side else ""
        yield each, words.join(", ", f"{chosen} {side}".strip(), words.place_note(each))


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


def _describe_edit(edit: SensitiveEdit) -> str:
    key = yaml_key(edit.path)
    place = f" ({edit.place})" if edit.place else ""
    values = _values(edit, edit.before or "none", edit.after or _SENSITIVE[edit.kind][1])
    return f"{key}{place}: {values}"


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
        known = f"{words.many(count or 0, 'machine')}, {edit.busy} busy: {names}"
        return known if count else f"its machines are {words.UNKNOWN}"
    if edit.kind != "pattern-matches-more":
        return f"the tag of pools: {names}" if names else ""
    if count is None:
        return f"builds {words.UNKNOWN}: {edit.nameless or 'no build is recorded'}"
    builds = f"{words.many(count, 'recorded build')} newly{_packages(edit.packages)}"
    return builds if count else "none of the recorded builds yet"


def _name_rule(rule: RuleReach) -> Line:
    only = f" of task {rule.task}" if rule.task else ""
    return line(*bold(rule.match), f"{only} asks for {listed(rule.ask)}")


def _describe_people(rule: RuleReach) -> str:
    people = (("owners", rule.owners), ("requesters", rule.requesters))
    said = [f"{what}: {_count_each(counts)}" for what, counts in people if counts]
    return "; ".join(said) or "no recorded build"


def _describe_matches(rule: RuleReach) -> str:
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


def _describe_rule_cost(rule: RuleReach, currency: str) -> str:
    if rule.cost is None:
        return f"cost {words.UNKNOWN}: {rule.not_known}"
    before = rule.cost_before
    once = f"{words.bill(rule.cost)} {currency} for these builds"
    once += "" if before is None else f" ({words.bill(before)} without this change)"
    if rule.month is None:
        return f"{once}; per month {words.UNKNOWN}: {rule.not_known}"
    return f"{once}; at least {rule.month:,.0f} {currency} per month"
