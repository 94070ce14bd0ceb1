"""Write the rule as Django `Q` objects, in place of a `can_run_on` per task.

`requests_for` filters work requests for one worker, `workers_for` workers for one request; both
leave the work to the database. See README.md beside this file.
"""

from collections.abc import Iterable
from typing import Any

from django.db.models import BooleanField, Expression, F, Q

from contrib.debusine.expression import (
    RULE,
    Amounts,
    And,
    Condition,
    Reached,
    Subset,
    Tags,
    bind,
    know_ask,
    know_offer,
)
from contrib.debusine.sql import (
    Sql,
    Terms,
    compile_condition,
    is_storable,
    source_of_requests,
    source_of_workers,
)
from contrib.debusine.statements import worker_provides, worker_requires
from fleet.tagrules.debusine import TYPE_PREFIX
from fleet.tagrules.offers import Ask, Offer
from fleet.tagrules.sources import CLASS
from fleet.tagrules.vocabulary import read_minimums, read_numbers

_LONGEST_TAG = 255
"""Characters of Debusine's column for tags of requests."""
_NEVER = Q(pk__in=[])
_REQUESTS = ("scheduler_tags_required", "scheduler_tags_provided")
_WORKERS = ("dynamic_metadata", "static_metadata", "worker_type")


def requests_for(
    provides: Iterable[str],
    requires: Iterable[str] = (),
    terms: Terms = Terms(),  # noqa: B008 - a frozen value
) -> Q:
    """Return what a work request has to fulfil for a worker with these tags to run it.

    Tags are as the database has them: numbers are split off, exclusive tags found, in here.
    """
    plain, numbers = read_numbers(_raw(provides), terms.numeric)
    exclusive = frozenset(tag for tag in plain if _is_exclusive(tag, terms))
    offer = Offer(plain, _raw(requires), exclusive, numbers=numbers)
    condition = bind(RULE, know_offer(offer))
    assert isinstance(condition, And)  # noqa: S101 - the rule is a conjunction
    every = Q()
    for part in condition.parts:
        every &= _of_requests(part, terms)
    return every


def workers_for(
    required: Iterable[str],
    provided: Iterable[str] = (),
    terms: Terms = Terms(),  # noqa: B008 - a frozen value
) -> Q:
    """Return what a worker has to fulfil to run a work request with these tags.

    Tags are as the database has them: minimums are split off in here.
    """
    plain, minimums = read_minimums(_raw(required), terms.numeric)
    condition = bind(RULE, know_ask(Ask(plain, _raw(provided), minimums)))
    assert isinstance(condition, And)  # noqa: S101 - the rule is a conjunction
    every = Q()
    for part in condition.parts:
        every &= _of_workers(part, terms)
    return every


def _raw(tags: Iterable[str]) -> frozenset[str]:
    """Return tags as a set; TypeError for what is no collection of texts."""
    if isinstance(tags, str | Ask | Offer):
        raise TypeError(f"give the tags as the database has them, not {type(tags).__name__}")
    found = frozenset(tags)
    if not all(isinstance(tag, str) for tag in found):
        raise TypeError("a tag is a text")
    return found


def _is_exclusive(tag: str, terms: Terms) -> bool:
    """Say whether a worker that provides this tag runs only requests that require it."""
    if tag in terms.exclusive or tag in terms.shared:
        return tag in terms.exclusive
    return next((alone for start, alone in terms.prefixes if tag.startswith(start)), False)


class Holds(Expression):  # type: ignore[misc] # Django ships no types
    """A condition of fleet on the columns of a model, as an expression of Django."""

    output_field = BooleanField()

    def __init__(self, condition: Condition, terms: Terms, columns: tuple[str, ...]) -> None:
        super().__init__()
        self.condition = condition
        self.terms = terms
        self.columns = [F(name) for name in columns]

    def get_source_expressions(self) -> list[Any]:
        """Return the columns, for Django to find out where they stand."""
        return self.columns

    def set_source_expressions(self, expressions: list[Any]) -> None:
        """Take the columns back, found."""
        self.columns = expressions

    def as_sql(self, compiler: Any, _connection: Any) -> tuple[str, tuple[object, ...]]:  # noqa: ANN401 - Django's own types
        """Return the condition as SQL for PostgreSQL."""
        columns = [Sql(compiler.compile(column)[0]) for column in self.columns]
        if len(columns) == len(_REQUESTS):
            source = source_of_requests(columns[0], columns[1], self.terms)
        else:
            dynamic, static, kind = columns
            source = source_of_workers(
                worker_provides(dynamic, static, kind), worker_requires(static), self.terms
            )
        made = compile_condition(self.condition, source)
        return made.text, made.values


def _of_requests(part: Condition, terms: Terms) -> Q:
    match part:
        case Subset(Tags.REQUIRED, frozenset() as tags) if not terms.numeric:
            return Q(scheduler_tags_required__contained_by=sorted(filter(_fits_column, tags)))
        case Subset(frozenset() as tags, Tags.REQUIRED) if not terms.numeric:
            return _contains("scheduler_tags_required", tags)
        case Subset(frozenset() as tags, Tags.PROVIDED):
            return _contains("scheduler_tags_provided", tags)
        case Reached(Amounts.MINIMUMS, _) if not terms.numeric:
            return Q()
        case _:
            return Q(Holds(part, terms, _REQUESTS))


def _of_workers(part: Condition, terms: Terms) -> Q:
    match part:
        case Subset(frozenset() as tags, Tags.PROVIDES) if not terms.numeric:
            every = Q()
            for tag in sorted(tags):
                every &= _provides(tag)
            return every
        case Subset(Tags.EXCLUSIVE, _) if not (terms.exclusive or terms.prefixes):
            return Q()
        case _:
            return Q(Holds(part, terms, _WORKERS))


def _provides(tag: str) -> Q:
    """Return what a worker is that Debusine takes to provide a tag."""
    if not is_storable(tag):
        return _NEVER
    if tag.startswith(TYPE_PREFIX):
        return Q(worker_type=tag.removeprefix(TYPE_PREFIX))
    written = Q(static_metadata__provided_tags__contains=[tag])
    if tag.startswith(CLASS):
        return written
    return written | Q(dynamic_metadata__provided_tags__contains=[tag])


def _contains(column: str, tags: frozenset[str]) -> Q:
    if not all(map(_fits_column, tags)):
        return _NEVER
    return Q(**{f"{column}__contains": sorted(tags)})


def _fits_column(tag: str) -> bool:
    # Django casts to the length of the column, and PostgreSQL would cut what is longer.
    return is_storable(tag) and len(tag) <= _LONGEST_TAG
