"""Sentences about limits, budgets, closed pools, and why the allocation search stopped."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from fleet.model.plan import BudgetVerdict
from fleet.model.values import amount_of, rate
from fleet.words.sentence import Sentence

UNSOLVED = (
    "allocated first come, first served, at the lowest price: solver not installed; install "
    "'fleet-reconciler[solver]'"
)
TOO_LARGE = "the problem is too large for an exact search"
AVERAGED = "requests of one group with different durations count as equally long"
ROUNDING = "rounding to whole machines"
UNKNOWN_WHEN_SAVED = "it was unknown when the plan was saved"
NO_RATE = "its currency has no exchange rate"
NEVER_REGISTERED = "its worker never registered"
_MAX_NAMED = 3
"""Maximum number of machines that a sentence names."""

explain_unfinished = Sentence[int]("the search stopped after {nodes} nodes")
explain_gap = Sentence[float]("the search stops at a gap of {gap:.2%}")

CREATES_NONE = "creates no machines: "

explain_closed = Sentence[str](CREATES_NONE + "{reason}")
explain_closed_type = Sentence[str, str]("creates no {kind}: {reason}")
explain_closed_way = Sentence[str, str, str]("not created: {kind}/{market}: {reason}")
explain_trial = Sentence[int, str](
    "creates at most {count:machine} until they have booted: {problem}"
)


def explain_warm(key: str, count: int, stop: str, by: str) -> str:
    """State `workers.min` or `workers.spare`, and the limit that prevents more machines."""
    stopped = f"{stop}: {by}" if by else stop
    return f"workers.{key} is {count}{f', but {stopped}' if stopped else ''}"


add_pool = Sentence[str, str]("[pool {pool} ]{reason}")


def explain_max(key: str, most: int, held: int) -> str:
    """State that a pool is at a limit of its machines. The caller adds the name of the pool."""
    with_new = ", new machines of this plan included" if held < most else ""
    return f"is at workers.{key} ({most}){with_new}"


def add_useless(full: str, useless: Iterable[tuple[str, str]]) -> str:
    """Append the machines that count toward the limit `full` but serve no request, and why."""
    found = [*useless]
    named = [f"{name} still counts, {why}" for name, why in found[:_MAX_NAMED]]
    if len(found) > _MAX_NAMED:
        named.append(f"and {len(found) - _MAX_NAMED} more that serve no request")
    return "; ".join([full, *named])


explain_deleting = Sentence[datetime]("deleting since {since:time}")


class LimitUse(NamedTuple):
    """The usage of a limit of a tag or queue, for one payer or in total."""

    key: str
    tag: str
    desk: str
    """The queue; empty for a limit on a tag."""
    of: str
    """The kind of payer, such as `team`; empty for the total of all payers."""
    who: str
    """The name of the payer; empty if unknown."""
    most: int
    taken: int
    """The number of machines in use."""
    unknown: int = 0
    """Number of them whose payer is unknown, which count to every payer."""


def explain_limit(use: LimitUse) -> str:
    """State the value and the usage of a limit of a tag or queue."""
    holds = f"{use.taken} in use"
    if use.taken < use.most:
        holds += f", {use.most - use.taken} assigned by this plan"
    if use.unknown:
        holds += f", of which {use.unknown} of an unknown {use.of}, counted to every {use.of}"
    what = f"queue {use.desk}" if use.desk else f"tag {use.tag}"
    whom = f" for {use.who or f'an unknown {use.of}'}" if use.of else ""
    return f"{use.key} of {what} is {use.most}{whom}: {holds}"


explain_blocked = Sentence[str | None, str | None](
    "queue {desk} blocks owner {owner} (queues.{desk}.blocked)"
)
explain_tagged_first = Sentence[str]("serves requests for {tag} first")
name_budget = Sentence[bool, str](
    "[{of_pool:if}the budget of pool][{of_pool:unless}budget] {budget}"
)
explain_unknown_budget = Sentence[str, str, str]("the rest of {name} {when} is unknown: {reason}")
explain_unknown_spending = Sentence[str]("spending is unknown: {reason}")
explain_unseen_pool = Sentence[str]("the machines of pool {pool} are unknown")


class BudgetUse(NamedTuple):
    """The usage of a budget before this plan. Amounts are in `unit`."""

    name: str
    when: str
    unit: str
    left: Decimal
    limit: Decimal
    spent: Decimal
    reserved: Decimal


def explain_used_up(use: BudgetUse, need: Decimal) -> str:
    """State that a budget cannot pay for new work on a worker, which costs at least `need`."""
    return (
        f"{use.name} is used up: {use.left:.2f} of {rate(use.limit)} {use.unit} left {use.when} "
        f"({use.spent:.2f} spent, {use.reserved:.2f} needed without new work), and new work on "
        f"this worker needs at least {need:.2f}"
    )


def explain_used_budget(budget: BudgetVerdict, need: Decimal, what: str, *, of_pool: bool) -> str:
    """State the usage of a budget with this plan, and the amount that the next `what` needs."""
    figures = (budget.left, budget.spent, budget.reserved)
    left, spent, reserved = (amount_of(each) or Decimal(0) for each in figures)
    # Use enough decimals to show that `left` is less than `need`.
    places = next((n for n in (2, 3) if f"{left:.{n}f}" != f"{need:.{n}f}"), 4)
    above = ", more than the whole budget" if need > budget.limit else ""
    return (
        f"{name_budget(of_pool, budget.budget)} has {left:.{places}f} of "
        f"{rate(budget.limit)} {budget.unit} left "
        f"{budget.when} ({spent:.2f} spent, {reserved:.2f} reserved, "
        f"{budget.planned:.2f} planned), and the next {what} needs {need:.{places}f}{above}"
    )


explain_late = Sentence[int, str, int](
    "needs {fastest:duration} for it, and [the deadline of queue {queue}]"
    "[{queue:unless}its own deadline] is {deadline:duration}"
)
explain_no_room = Sentence[str]("{key} leaves no room")
