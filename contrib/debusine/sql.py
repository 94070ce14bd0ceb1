"""Compile the rule to SQL for PostgreSQL; `statements` makes whole statements of it.

What comes out is a text with `%s` for every value, and the values beside it: no value is ever
part of the text. Numbers stand in tags (`memory_gib=128`, `memory_gib>=64`), as everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from contrib.debusine.expression import Amounts, And, Condition, Reached, Subset, Tags
from fleet.schema.model import Fleet
from fleet.tagrules.vocabulary import Numbers, Vocabulary, tag_name

_NUMBER = r"[0-9]{1,12}(\.[0-9]{1,6})?$"


@dataclass(frozen=True)
class Sql:
    """A piece of SQL: a text with `%s` for every value, and the values."""

    text: str
    values: tuple[object, ...] = ()


def weave(template: str, *pieces: Sql) -> Sql:
    """Return the pieces in the places of `{}` in a template, values in their order."""
    first, *rest = template.split("{}")
    text = first
    values: tuple[object, ...] = ()
    for piece, behind in zip(pieces, rest, strict=True):
        text, values = text + piece.text + behind, (*values, *piece.values)
    return Sql(text, values)


_NO_AMOUNTS = Sql("(SELECT '' AS name, 0 AS number WHERE false)")


@dataclass(frozen=True)
class Terms:
    """What fleet.yaml declares of tags, as far as it decides what matches."""

    numeric: tuple[str, ...] = ()
    exclusive: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    """Tags that are not exclusive although a prefix says so."""
    prefixes: tuple[tuple[str, bool], ...] = ()
    """Beginnings of tags and whether these are exclusive, the deciding one first."""


Source = Mapping[Tags | Amounts, Sql]
"""Where fields stand: sets as SQL of type varchar[], amounts as rows of (name, number)."""


def terms_of(fleet: Fleet) -> Terms:
    """Return what a fleet.yaml declares of tags."""
    says = {
        n: rule.exclusive for n, rule in fleet.tags.items() if "exclusive" in rule.model_fields_set
    }
    prefixes = sorted((n for n in says if n.endswith("*")), key=lambda n: (-len(n), n))
    return Terms(
        numeric=tuple(n for n in sorted(Vocabulary(fleet).numeric) if tag_name(f"{n}=") == n),
        exclusive=tuple(sorted(name for name, exclusive in says.items() if exclusive)),
        shared=tuple(sorted(name for name, exclusive in says.items() if not exclusive)),
        prefixes=tuple((name.removesuffix("*"), says[name]) for name in prefixes),
    )


def source_of_requests(required: Sql, provided: Sql, terms: Terms) -> Source:
    """Return the fields of a request whose tags stand in these two columns."""
    return {
        Tags.REQUIRED: _plain(required, ">=", terms),
        Tags.PROVIDED: provided,
        Amounts.MINIMUMS: _amounts(required, ">=", terms) if terms.numeric else _NO_AMOUNTS,
    }


def source_of_workers(provides: Sql, requires: Sql, terms: Terms) -> Source:
    """Return the fields of a worker whose tags stand in these two columns."""
    plain = _plain(provides, "=", terms)
    return {
        Tags.PROVIDES: plain,
        Tags.REQUIRES: requires,
        Tags.EXCLUSIVE: _exclusive(plain, terms),
        Amounts.NUMBERS: _amounts(provides, "=", terms),
    }


def compile_condition(condition: Condition, source: Source) -> Sql:
    """Return a condition as SQL of type boolean."""
    match condition:
        case Subset(part, whole):
            if isinstance(part, frozenset) and not all(map(is_storable, part)):
                return Sql("false")
            return weave("{} <@ {}", _set(part, source), _set(whole, source))
        case Reached(minimums, numbers):
            rows = _rows(minimums, source)
            if rows == _NO_AMOUNTS:
                return Sql("true")
            return weave(
                "NOT EXISTS (SELECT FROM {} AS m WHERE NOT EXISTS ("
                "SELECT FROM {} AS n WHERE n.name = m.name AND n.number >= m.number))",
                rows,
                _rows(numbers, source),
            )
        case And(parts):
            made = [compile_condition(part, source) for part in parts]
            return weave(" AND ".join(["true", *("{}" for _ in made)]), *made)
        case _:
            assert_never(condition)


def is_storable(text: str) -> bool:
    """Say whether PostgreSQL can store a text: no NUL, no lone surrogate."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def texts(tags: frozenset[str] | tuple[str, ...]) -> Sql:
    """Return a set of tags as a value; a tag that no column can hold is left out."""
    return Sql("%s::varchar[]", (sorted(filter(is_storable, tags)),))


def _set(given: Tags | frozenset[str], source: Source) -> Sql:
    return source[given] if isinstance(given, Tags) else texts(given)


def _rows(given: Amounts | Numbers, source: Source) -> Sql:
    if isinstance(given, Amounts):
        return source[given]
    names, numbers = [name for name, _ in given], [number for _, number in given]
    return Sql(
        "(SELECT * FROM unnest(%s::varchar[], %s::numeric[]) AS v(name, number))", (names, numbers)
    )


def _plain(column: Sql, sign: str, terms: Terms) -> Sql:
    if not terms.numeric:
        return column
    stated = _states_number(sign, terms)
    return weave("ARRAY(SELECT t FROM unnest({}) AS t WHERE NOT ({}))", column, stated)


def _amounts(column: Sql, sign: str, terms: Terms) -> Sql:
    stated = _states_number(sign, terms)
    # CASE keeps the cast away from what is no number; WHERE alone promises no order.
    return weave(
        "(SELECT split_part(t, {}, 1) AS name, "
        "CASE WHEN {} THEN split_part(t, {}, 2)::numeric END AS number "
        "FROM unnest({}) AS t WHERE {})",
        *(_value(sign), stated, _value(sign), column, stated),
    )


def _states_number(sign: str, terms: Terms) -> Sql:
    return weave(
        "split_part(t, {}, 1) = ANY({}) AND t ~ {}",
        *(_value(sign), texts(terms.numeric), _value(f"^[^<>=]*{sign}{_NUMBER}")),
    )


def _exclusive(column: Sql, terms: Terms) -> Sql:
    ruled = [
        weave("WHEN t = ANY({}) THEN true", texts(terms.exclusive)),
        weave("WHEN t = ANY({}) THEN false", texts(terms.shared)),
        *(
            weave(f"WHEN starts_with(t, {{}}) THEN {str(exclusive).lower()}", _value(prefix))
            for prefix, exclusive in terms.prefixes
        ),
    ]
    rules = weave(" ".join("{}" for _ in ruled), *ruled)
    return weave(
        "ARRAY(SELECT t FROM unnest({}) AS t WHERE CASE {} ELSE false END)", column, rules
    )


def _value(text: str) -> Sql:
    return Sql("%s", (text,))
