"""Sentences about why a pool serves or does not serve a request."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from fleet.model.decisions import MISMATCHES, Code, Decision, NoMachineReason, Path, Served, Unfit
from fleet.schema.findings import listed, yaml_key
from fleet.words.images import describe_unpublished

_Words = Callable[[Decision], str]


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


def explain_unprovided(tag: str, path: Path) -> str:
    """State the tag that no pool provides, and the rule that adds it to the request."""
    return f"no pool provides {tag}, which {yaml_key(path[:2])} asks for"


def explain_unserved_queue(queue: str | None) -> str:
    """State that no pool serves a queue."""
    return f"no pool serves queue {queue}"


def explain_unknown_value(refused: str, path: Path) -> str:
    """State why a value of a request adds no tag, and the key of fleet.yaml to correct."""
    return f"{refused}; correct the request, or {yaml_key(path)}"


def explain_unknown_environment(refused: str, queue: str) -> str:
    """State why an environment adds no tag, and the key that makes fleet ignore this."""
    return f"{refused}; waits, unless queues.{queue}.unknown_environment is any"


def explain_unsure(refused: str) -> str:
    """State that a request waits until it is known whether the request may require a tag."""
    return f"{refused}; waits until that can be read"


def explain_denied_ticket(refused: str) -> str:
    """State why a ticket may not require a tag, and therefore gets no machine."""
    return f"{refused}; the ticket gets no machine without it"


def explain_stored(refused: str) -> str:
    """State why a request may not require a tag, although its queue stored the tag."""
    return f"{refused}, and the queue stored the tag with it"


def with_messages(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return the decisions with messages. Existing messages are kept."""
    return tuple(each.altered(message=each.message or describe(each)) for each in decisions)


def describe(decision: Decision) -> str:
    """Return a decision in words. The caller adds the name of the pool."""
    if isinstance(decision.code, NoMachineReason):
        return f"fits, but {decision.message}"
    return _WORDS[decision.code](decision)


def _queue_not_served(decision: Decision) -> str:
    return f"does not serve queue {decision.figures.queue}"


def _tag_missing(decision: Decision) -> str:
    return f"does not provide {listed(decision.figures.tags)}"


def _tag_not_brought(decision: Decision) -> str:
    return f"requires {listed(decision.figures.tags)} of the request"


def _tag_exclusive(decision: Decision) -> str:
    return f"is exclusive to requests that ask for {listed(decision.figures.tags)}"


def _too_small(decision: Decision) -> str:
    return "; ".join(f"does not have {minimum}" for minimum in decision.figures.tags)


def _tag_held(decision: Decision) -> str:
    tags = decision.figures.tags
    are = "is" if len(tags) == 1 else "are"
    return f"creates no machine for it: {listed(tags)} {are} {decision.figures.held}"


def _describe_on_demand(decision: Decision) -> str:
    tags = ", ".join(decision.figures.tags)
    return f"fits, but creates machines only for requests that ask for {tags}"


def _fits(decision: Decision) -> str:
    waived = decision.figures.tags
    return f"fits without {listed(waived)}" if waived else "fits"


def _serves_others(decision: Decision) -> str:
    return f"{_fits(decision)}, but its machines serve other requests"


def _workers_busy(decision: Decision) -> str:
    return f"{_fits(decision)}, but all its workers are busy"


_WORDS: Mapping[Code, _Words] = {
    Unfit.QUEUE_NOT_SERVED: _queue_not_served,
    Unfit.TAG_MISSING: _tag_missing,
    Unfit.IMAGE_UNPROVEN: _tag_missing,
    Unfit.TAG_NOT_BROUGHT: _tag_not_brought,
    Unfit.TAG_EXCLUSIVE: _tag_exclusive,
    Unfit.TOO_SMALL: _too_small,
    Unfit.TAG_HELD: _tag_held,
    Unfit.ON_DEMAND: _describe_on_demand,
    Served.FITS: _fits,
    Served.SERVES_OTHERS: _serves_others,
    Served.WORKERS_BUSY: _workers_busy,
}
