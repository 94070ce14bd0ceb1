"""Format figures for people: money, durations, counts and keys of fleet.yaml."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from fleet.model.facts import PlaceFacts, WorkerFacts, WorkerInputs, market_of
from fleet.model.plan import (
    CLOCK_RULE,
    Action,
    ApprovalVerdict,
    BootHold,
    BudgetVerdict,
    Create,
    Estimate,
    Optimum,
    Plan,
    Promotion,
    Replaced,
    Warning_,
    WorkerVerdict,
)
from fleet.model.price_lists import PriceSource
from fleet.model.values import Figure, amount_of
from fleet.model.values import rates as write_rates
from fleet.schema.findings import some_of, yaml_key
from fleet.schema.units import write_count, write_duration, write_time
from fleet.words.sentence import Sentence

many, time = write_count, write_time

UNKNOWN = "unknown"
"""The text of an unknown figure. It must never look like a zero."""

WHOLE = "The whole plan, including actions that are due without this change"
UNKNOWN_HEADING = "Unknown (never counted as zero)"
PARTLY_READ_HEADING = "Queue only partly read: scale-down paused"
ORDERS_HEADING = "Orders of operators"
ATTENTION_HEADING = "Action required"
REFUSED_PAGE = "docs/how-to/read-a-refusal.md"
OUTDATED_PAGE = f"{REFUSED_PAGE}#a-saved-plan-is-outdated"
NOTICES_HEADING = "Expires soon, or too old"
REMARKS_HEADING = "Remarks on readings"


def join(mark: str, *texts: str) -> str:
    """Join the texts that are not empty."""
    return mark.join(filter(None, texts))


def rates(amounts: Sequence[Decimal | None], *, sign: bool = False) -> list[str]:
    """Format amounts of money with equally many decimals: those of the finest, at least two."""
    known = iter(write_rates([each for each in amounts if each is not None], sign=sign))
    return [UNKNOWN if amount is None else next(known) for amount in amounts]


def rate(amount: Decimal | None, *, sign: bool = False) -> str:
    """Format an amount of money with two to four decimals."""
    return rates([amount], sign=sign)[0]


def hourly(amount: Decimal | None, *, sign: bool = False) -> str:
    """Format a cost per hour with four decimals, so that the figures of a column align."""
    return UNKNOWN if amount is None else format(amount, "+,.4f" if sign else ",.4f")


def totals(amounts: Sequence[Decimal | None]) -> list[str]:
    """Format sums of money with two decimals, or with four if two hide an amount or difference."""
    known = {each for each in amounts if each}
    in_cents = {each: cents(each) for each in known}
    hides = any(abs(each) < _MIN_IN_CENTS for each in known)
    hides |= len({*in_cents.values()}) < len(known)
    return [*map(hourly if hides else cents, amounts)]


def cents(amount: Decimal | None) -> str:
    """Format an amount of money with two decimals."""
    return UNKNOWN if amount is None else f"{amount:,.2f}"


def amount(figure: Figure | None) -> str:
    """Format an amount of a budget with two decimals and no separators; None is `unknown`."""
    known = amount_of(figure)
    return UNKNOWN if known is None else f"{known:.2f}"


_MIN_IN_CENTS = Decimal("0.1")
"""Smaller costs are shown with more than two decimals."""


def bill(amount: Decimal | None) -> str:
    """Format a cost with two decimals, or a small cost with up to four."""
    if amount is None or abs(amount) >= _MIN_IN_CENTS:
        return cents(amount)
    return rate(amount.quantize(Decimal("0.0001")))


def place(each: PlaceFacts) -> str:
    """Format a machine option: machine type, market (unless on-demand) and pool."""
    market = "" if each.market == "on-demand" else f" ({each.market})"
    return f"{each.type}{market} of pool {each.pool}"


def place_note(each: PlaceFacts) -> str:
    """Return the reasons not to use a machine option, such as a deadline; empty if usable."""
    whose = "its own deadline" if each.own_deadline else "the deadline"
    late = f"misses {whose} ({write_duration(each.deadline or 0)})"
    closed = f"not created: {each.closed}" if each.closed else ""
    return join(
        ", ", closed, late * each.is_late, "needs a rule of the allow-list" * bool(each.asks)
    )


def rules_to_allow(places: Iterable[PlaceFacts]) -> Iterator[str]:
    """Yield the allow-list rule to add, per pool that a build may use only with a new rule."""
    asking = {each.pool: each for each in places if each.asks and not each.is_late}
    for pool, each in asking.items():
        later = " for later builds (the queue stored the tags of this one)"
        builds = later if each.acts_later else ""
        yield f"to allow pool {pool}{builds}, add {each.rule} to `powerful`"


def before_after(
    before: Decimal | None, after: Decimal | None, currency: str, *, arrow: str = "->"
) -> str:
    """Format the cost per hour before and after a change. Equal costs are shown once."""
    if before is None and after is None:
        return UNKNOWN
    first, second = totals([before, after])
    figures = first if before == after else f"{first} {arrow} {second}"
    return f"{figures} {currency}/h"


def market(inputs: WorkerInputs) -> str:
    """Return the market of a machine in parentheses with a leading space; empty if on-demand."""
    name = market_of(inputs)
    return "" if name == "on-demand" else f" ({name})"


def plan_cost(plan: Plan, *, arrow: str = "->") -> str:
    """Format the cost per hour before and after a plan, with "at least" if partly unknown."""
    if not (plan.is_cost_known or plan.cost_before or plan.cost_after):
        return f"cost {UNKNOWN}"
    known = before_after(plan.cost_before, plan.cost_after, plan.currency, arrow=arrow)
    return known if plan.is_cost_known else f"at least {known}"


def figure(count: int | None) -> str:
    """Format a count; None becomes `unknown`."""
    return UNKNOWN if count is None else str(count)


def size_of(facts: WorkerFacts) -> str:
    """Format the cores, memory, disk, swap and architecture of a machine; empty if unknown."""
    sizes = ((facts.memory, "memory"), (facts.disk, "disk"), (facts.swap, "swap"))
    cores = "" if facts.cores is None else many(facts.cores, "core")
    known = join(", ", cores, *(f"{size / 1024:g} GiB {of}" for size, of in sizes if size))
    return join(", ", known, facts.architecture or "") if known else ""


def state(worker: WorkerVerdict) -> str:
    """Return the state of a worker, or `unknown` if no registry reports the state."""
    return UNKNOWN if worker.state in ("assumed", "unknown") else worker.state


def duration(length: timedelta) -> str:
    """Format a duration in its two largest units, for instance "1 h 20 min"."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds} s" if seconds < _MINUTE else f"{seconds // _MINUTE} min"


_MINUTE = 60
ASSUMED = ", assumed"
"""A note at times that assume a duration."""


def starts(expected: Sequence[datetime | None], assumed: Sequence[datetime | None]) -> str:
    """Format the time span of the expected starts of requests, or else of the assumed starts."""
    known = sorted(filter(None, expected)) or sorted(filter(None, assumed))
    if not known:
        return UNKNOWN
    first, last = time(known[0]), time(known[-1])
    span = first if first == last else f"{first.removesuffix(' UTC')} to {last}"
    assuming = "" if any(expected) else ASSUMED
    missing = len(expected) - len(known)
    return span + assuming + (f", {missing:,} {UNKNOWN}" if missing else "")


def brief_time(moment: datetime | None, now: datetime) -> str:
    """Format a time in UTC, with a date if it is not today: "03:10" or "22 Nov 03:10"."""
    if moment is None:
        return UNKNOWN
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment.day} {moment:%b %H:%M}"


def since(moment: datetime | None, now: datetime) -> str:
    """Format the duration between a moment and now; a dash if the moment is unknown."""
    return "-" if moment is None else duration(now - moment)


def notices(plan: Plan) -> tuple[str, ...]:
    """Return the notices of a plan without those that a warning about fleet.yaml repeats."""
    warned = any(each.rule == "expires-soon" for each in plan.warnings)
    in_file = ("allow-list", "approval") if warned else ()
    return tuple(each.said for each in plan.notices if each.kind not in in_file)


def clock(plan: Plan) -> tuple[str, ...]:
    """Return the plan's warnings about an untrusted clock: why `fleet apply` refuses to run."""
    return tuple(each.message for each in plan.warnings if each.rule == CLOCK_RULE)


def warnings(plan: Plan) -> tuple[Warning_, ...]:
    """Return the warnings of a plan except those about the clock. The clock is shown first."""
    return tuple(each for each in plan.warnings if each.rule != CLOCK_RULE)


def price_source(source: PriceSource) -> str:
    """Describe the price list of a provider: origin, date, and why no newer list is used."""
    which = "provider's own list" if source.own else "table shipped with fleet"
    dated = f" of {source.as_of}" if source.as_of else " (has no prices for it)"
    is_old = source.age_seconds is not None and (source.because or not source.own)
    age = f", {duration(timedelta(seconds=source.age_seconds or 0))} old" if is_old else ""
    why = f" ({source.because})" if source.because else ""
    return f"Prices of {source.provider}: {which}{dated}{age}{why}"


def cited(paths: Sequence[Sequence[str | int]], included: Mapping[str, str]) -> str:
    """Format keys with their files, for instance "pools.arm.image in fleet.d/arm.yaml"."""
    files: dict[str, list[str]] = {}
    for path in paths:
        files.setdefault(included.get(yaml_key(path[:2]), "fleet.yaml"), []).append(yaml_key(path))
    return "; ".join(f"{some_of(keys)} in {file}" for file, keys in files.items())


def named(noun: str, names: Sequence[str]) -> str:
    """Format a noun and names, for instance "pools arm, big and 2 more"."""
    return f"{noun}{'s' if names[1:] else ''} {some_of(names)}"


def estimated(estimate: Estimate) -> str:
    """State the estimated demand of a queue that was only partly read."""
    return f"queue {estimate.queue}: {estimate.because}"


def changes(plan: Plan) -> str:
    """Format the number of workers that a plan creates, drains and deletes, and other changes."""
    if plan.is_quiet:
        unsure = plan.unknown or plan.estimates
        return "nothing to change (some facts are unknown)" if unsure else "nothing to change"
    parts, moved = sum(len(each.steps) for each in plan.bases), len(plan.promotions)
    return join(
        ", ",
        _counts(plan.actions, always=True),
        f"{len(plan.releases):,} to release" if plan.releases else "",
        f"{len(plan.resumes):,} to give back" if plan.resumes else "",
        f"{many(parts, 'change')} to shared resources" if parts else "",
        f"{many(moved, 'image version')} to move" if moved else "",
    )


def replacement(promotion: Promotion, currency: str) -> str:
    """State the machines that a promotion replaces, the pace and the maximum cost."""
    if not promotion.replaces:
        return "replaces no machine"
    cost = promotion.cost
    most = f"cost {UNKNOWN}" if cost is None else f"at most {rate(cost)} {currency}"
    pools = replaced(promotion.replaces)
    return f"later runs replace {pools}; running old and new machines together: {most}"


def replaced(pools: Sequence[Replaced]) -> str:
    """Format the number of machines to replace per pool, the pace in percent and the windows."""
    return ", ".join(
        f"{many(each.machines, 'machine')} of {each.pool} ({each.at_a_time}% at a time"
        + (f", only {' or '.join(each.windows)}" if each.windows else "")
        + ")"
        for each in pools
    )


def demand(waiting: int, served: int, *, unsure: object) -> str:
    """State the number of waiting requests, and how many of these have or will get a machine."""
    if not waiting:
        return f"waiting requests: {UNKNOWN}" if unsure else "no requests wait"
    requests = f"{'at least ' if unsure else ''}{many(waiting, 'request')}"
    verb = "waits" if waiting == 1 else "wait"
    return f"{requests} {verb}: {have_a_machine(served)}"


have_a_machine = Sentence[int]("{count:,} {count:has|have} or will get a machine")


def late(soon: int, later: int, unknown: int, never: int) -> str:
    """Count the requests that wait too long, by their prospect."""
    counts = (
        (soon, f"{'starts' if soon == 1 else 'start'} within 1 h"),
        (later, "later"),
        (unknown, "without a known start"),
        (never, "never"),
    )
    named = ", ".join(f"{count:,} {words}" for count, words in counts if count)
    return f"{many(soon + later + unknown + never, 'request')}: {named}"


def waiting(plan: Plan) -> str:
    """State the number of waiting requests of a plan; empty if no request is known to wait."""
    count = sum(signature.count for signature in plan.signatures)
    unserved = sum(each.count for each in plan.unserved)
    unsure = plan.unread or plan.estimates
    return demand(count, count - unserved, unsure=unsure) if count else ""


def new_machines(plan: Plan) -> Iterator[str]:
    """Yield sentences on the cost of new machines, how far it is from optimal, and assumptions."""
    optimum = plan.optimum
    if optimum is None:
        return
    gap = ""
    if optimum.is_optimal:
        gap = " (cheapest choice)"
    elif optimum.is_about_cost:
        above = (
            "" if optimum.gap == 1 else f"at most {optimum.gap:.2%} above the cheapest choice: "
        )
        gap = f" ({above}{optimum.because})"
    yield _cost_until_idle(plan, optimum) + gap
    assumed = join(
        "; ",
        f"1h for {many(optimum.assumed, 'request')} of unknown duration"
        if optimum.assumed
        else "",
        f"price 0 for {many(optimum.unpriced, 'machine')} of unknown price"
        if optimum.unpriced
        else "",
    )
    if assumed:
        yield f"Assumed: {assumed}"
    if optimum.withheld:
        yield f"Not included: {many(optimum.withheld, 'machine')} withheld by a guard"


def _cost_until_idle(plan: Plan, optimum: Optimum) -> str:
    """State the number of new machines, and their cost until their requests have ended."""
    count, money = optimum.machines, f"about {bill(optimum.cost)} {plan.currency}"
    created = sum(isinstance(action, Create) for action in plan.actions)
    if not count:
        return f"New machines cost {money} until they are idle"
    some = count != created
    which = "The" if some else "This" if count == 1 else "These"
    noun, costs, they = ("machine", "costs", "it is")
    if count > 1:
        noun, costs, they = (f"{count:,} machines", "cost", "they are")
    for_them = " for waiting requests" * some
    return f"{which} {noun}{for_them} {costs} {money} until {they} idle"


def withheld(plan: Plan) -> str:
    """Format the number of actions that guards withhold; empty if no action is withheld."""
    released = f"{len(plan.unreleased):,} to release" if plan.unreleased else ""
    return join(", ", _counts(plan.withheld, always=False), released)


def used(approval: ApprovalVerdict) -> str:
    """Format the usage of an approval, for instance "used 12 of 18, 3 more in this plan"."""
    now = f", {len(approval.passes)} more in this plan" if approval.passes else ""
    return f"used {approval.used} of {approval.count}{now}"


def digests(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield (name, shortened value) for each digest of a plan."""
    for name in ("plan", "config", "world"):
        if digest := getattr(plan.digests, name):
            yield name, short(digest)


def short(digest: str) -> str:
    """Return the first 12 characters of a digest. They suffice to identify a plan."""
    return digest[:12]


def _counts(actions: Sequence[Action], *, always: bool) -> str:
    counted = Counter(action.action for action in actions)
    return ", ".join(
        f"{counted[kind]:,} to {kind}"
        for kind in ("create", "drain", "delete")
        if always or counted[kind]
    )


_MAX_SKEW = 600
"""Maximum accepted difference between two clocks, in seconds."""


def age(recorded: datetime, now: datetime, cadence: int) -> str:
    """State the age of a recording, with a warning if the age exceeds twice `cadence`."""
    seconds = int((now - recorded).total_seconds())
    if seconds < -_MAX_SKEW:
        return (
            f"Observed {write_duration(-seconds)} in the future: the clock of this or of the "
            "recording computer is wrong"
        )
    old = f"Observed {write_duration(max(0, seconds))} ago"
    if seconds > 2 * cadence:
        times = f"{seconds // cadence:,} times `cadence` ({write_duration(cadence)})"
        return f"{old}, {times}: current machines, demand and cost may differ"
    return old


page_of_guard = Sentence[str](REFUSED_PAGE + "#{guard}")
_NEAR_LIMIT_PERCENT = 80


def near_limit(budget: BudgetVerdict) -> str:
    """Return a note if at least 80% of a budget is spent or planned; empty otherwise."""
    used = budget.used
    if used is None or not budget.limit:
        return ""
    share = int(100 * used / budget.limit)
    return (
        f"near its limit: {share}% is spent, reserved or planned"
        if share >= _NEAR_LIMIT_PERCENT
        else ""
    )


def holding(each: BootHold) -> str:
    """State that a machine is held (not deleted) from this run on, and why."""
    return f"{each.worker} is held from this run on: {each.because}"
