"""Sentences about why a pool serves a request or not, and why it has its number of machines."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from fleet.model.decisions import (
    MISMATCHES,
    Code,
    Decision,
    DecisionFigures,
    Path,
    Served,
    SizeReason,
    Unfit,
)
from fleet.schema.findings import listed
from fleet.schema.units import write_count
from fleet.words.images import describe_unpublished
from fleet.words.sentence import Sentence


def size_decision(  # noqa: PLR0913 - the figures of a decision
    code: SizeReason,
    pool: str,
    count: int | None = None,
    *,
    waiting: int = 0,
    message: str = "",
    until: datetime | None = None,
) -> Decision:
    """Return a reason for the size of a pool. An empty message is derived from the code."""
    figures = DecisionFigures(count=count, waiting=waiting, until=until)
    said = message or _describe(code, figures)
    return Decision(code=code, subject=(pool,), figures=figures, message=said)


def describe_size(decisions: Iterable[Decision]) -> str:
    """Join the messages of the reasons for the size of a pool."""
    return "; ".join(each.message for each in decisions)


def _describe(code: SizeReason, figures: DecisionFigures) -> str:
    """Return a reason for the size of a pool in words."""
    count, waiting = figures.count or 0, write_count(figures.waiting, "request")
    are, wait = ("request is", "waits") if count == 1 else ("requests are", "wait")
    machines = write_count(count, "machine")
    for_them = "waits for it" if figures.waiting == 1 else "wait for them"
    stopped = f", so {waiting} {for_them}" if figures.waiting else ""
    return {
        SizeReason.SERVES: f"{count} waiting {are} served here",
        SizeReason.COULD_SERVE: f"{write_count(count, 'request')} could run here, but {wait}",
        SizeReason.REPLACES_LATER: f"{count} {'worker waits' if count == 1 else 'workers wait'} "
        "to be replaced",
        SizeReason.PAID_HOUR: f"{machines} kept until the end of the paid hour",
        SizeReason.DEMAND_UNKNOWN: "its demand is unknown",
        SizeReason.NO_DEMAND: "no requests wait for it",
        SizeReason.REMOVED: "removed from fleet.yaml: its machines are deleted when their work "
        "ends",
        SizeReason.EXPIRED_ONLY: "a sweep considers only expired machines, not demand",
        SizeReason.REQUESTED_ONLY: "only the named machines are considered, not demand",
        SizeReason.GUARD_WITHHOLDS: f"a guard withholds {write_count(count, 'new machine')}"
        + stopped,
        SizeReason.GUARD_KEEPS: f"a guard withholds the deletion of {machines}",
    }[code]


def describe_pool(decisions: Sequence[Decision]) -> str:
    """Join the decisions on a pool to a sentence, such as "pool arm does not provide gpu"."""
    shown = decisions[:1]
    if shown[0].code in MISMATCHES:
        shown = [each for each in decisions if each.code in MISMATCHES]
    return f"pool {shown[0].subject[0]} {'; '.join(map(describe, shown))}"


def describe_nearest(decisions: Sequence[Decision]) -> str:
    """Explain why no pool serves a request, from the decisions on the nearest pool."""
    (name,), code = decisions[0].subject, decisions[0].code
    if code is Served.WORKERS_BUSY:
        return f"pool {name} fits, but all its workers are in use"
    if code not in MISMATCHES:
        return f"pool {name} fits, but is on demand: only for requests that ask for it"
    if code is Unfit.IMAGE_UNPROVEN:
        figures = decisions[0].figures
        none = describe_unpublished(figures.image, figures.provider)
        return f"{none}; its test would prove {listed(figures.tags)}"
    shown = [each for each in decisions if each.code in MISMATCHES]
    has = ", ".join(figure for each in shown for figure in each.figures.has)
    but = f" (it has {has})" if has else ""
    return f"no pool fits; nearest is {name}, which {'; '.join(map(describe, shown))}{but}"


explain_unprovided = Sentence[str, Path]("no pool provides {tag}, which {rule:key} asks for")
explain_unserved_queue = Sentence[str | None]("no pool serves queue {queue}")
explain_unknown_value = Sentence[str, Path]("{refused}; correct the request, or {path:key}")
explain_unknown_environment = Sentence[str, str](
    "{refused}; waits, unless queues.{queue}.unknown_environment is any"
)
explain_unsure = Sentence[str]("{refused}; waits until that can be read")
explain_denied_ticket = Sentence[str]("{refused}; the ticket gets no machine without it")
explain_stored = Sentence[str]("{refused}, and the queue stored the tag with it")


def with_messages(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return the decisions with messages. Existing messages are kept."""
    return tuple(each.altered(message=each.message or describe(each)) for each in decisions)


def describe(decision: Decision) -> str:
    """Return a decision in words. The caller adds the name of the pool."""
    figures = decision.figures
    tags, are = listed(figures.tags), "is" if len(figures.tags) == 1 else "are"
    lacks, fits = f"does not provide {tags}", f"fits without {tags}" if figures.tags else "fits"
    sentences: dict[Code, str] = {
        Unfit.QUEUE_NOT_SERVED: f"does not serve queue {figures.queue}",
        Unfit.TAG_MISSING: lacks,
        Unfit.IMAGE_UNPROVEN: lacks,
        Unfit.TAG_NOT_BROUGHT: f"requires {tags} of the request",
        Unfit.TAG_EXCLUSIVE: f"is exclusive to requests that ask for {tags}",
        Unfit.TOO_SMALL: "; ".join(f"does not have {minimum}" for minimum in figures.tags),
        Unfit.TAG_HELD: f"creates no machine for it: {tags} {are} {figures.held}",
        Unfit.ON_DEMAND: "fits, but creates machines only for requests that ask for "
        + ", ".join(figures.tags),
        Served.FITS: fits,
        Served.SERVES_OTHERS: f"{fits}, but its machines serve other requests",
        Served.WORKERS_BUSY: f"{fits}, but all its workers are busy",
    }
    return sentences.get(decision.code) or f"fits, but {decision.message}"
