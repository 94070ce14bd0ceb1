"""This module reads what earlier runs took, from Debusine's database: time, memory, disk.

Only the latest runs are looked at: the table of a server grows for ever, and nothing in it is in
the order of their end but, nearly, their ids.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.facts import TaskHistory
from fleet.queues.debusine.rows import PACKAGE_TAG, package_of

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

LOOKED_AT = 100_000
"""So many of the latest requests are looked at, beside as many as wait."""
_MOST_RUNS = 1000
_SUCCEEDED = """\
 r.id > (SELECT max(id) FROM db_workrequest) - %(latest)s AND r.status = 'completed'
   AND r.result = 'success' AND r.task_type = 'Worker'"""
_SECONDS = f"""\
SELECT r.task_name, r.scheduler_tags_required,
       CASE WHEN %(package)s THEN ARRAY(
            SELECT t FROM unnest(r.scheduler_tags_provided) t WHERE starts_with(t, %(prefix)s))
       END,
       count(*), sum(extract(epoch FROM r.completed_at - r.started_at))::float8
  FROM db_workrequest r WHERE {_SUCCEEDED} AND r.completed_at >= r.started_at
 GROUP BY 1, 2, 3"""  # noqa: S608 - constants of this module
_PEAKS = f"""\
SELECT u.task_name, u.tag, array_agg(u.memory ORDER BY u.id) FILTER (WHERE u.memory >= 0),
       array_agg(u.disk ORDER BY u.id) FILTER (WHERE u.disk >= 0)
  FROM (SELECT r.id, r.task_name, t AS tag, {{memory}} AS memory, {{disk}} AS disk,
               row_number() OVER (PARTITION BY r.task_name, t ORDER BY r.id DESC) AS nth
          FROM db_workrequest r CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t
         WHERE {_SUCCEEDED} AND t = ANY(%(tags)s::text[])) u
 WHERE u.nth <= %(most)s GROUP BY 1, 2"""  # noqa: S608 - constants of this module
_IN_MIB = (
    "CASE WHEN jsonb_typeof(r.output_data #> '{{runtime_statistics,{0}}}') = 'number' "
    "THEN ceil((r.output_data #>> '{{runtime_statistics,{0}}}')::numeric / 1048576)::bigint END"
)

_About = tuple[str, tuple[str, ...], str | None]
"""Task, required tags and package; None: whatever the package."""


@dataclass(frozen=True)
class Seconds:
    """How long runs took on average: of one package, else of all that required the same."""

    of: Mapping[_About, float] = field(default_factory=dict)

    def expected(self, task: str, required: tuple[str, ...], package: str | None) -> int | None:
        """Return how many seconds such a request is expected to run; None where nothing says."""
        found = self.of.get((task, required, package), self.of.get((task, required, None)))
        return None if found is None else round(found)


def read_seconds(connection: "Connection", *, waiting: int, by_package: bool) -> Seconds:
    """Return how long the latest runs took."""
    values = {"latest": LOOKED_AT + waiting, "package": by_package, "prefix": PACKAGE_TAG}
    runs: Counter[_About] = Counter()
    seconds: defaultdict[_About, float] = defaultdict(float)
    for task, required, packages, count, total in connection.execute(_SECONDS, values):
        kind = (task, tuple(sorted(set(required))))
        for package in {package_of(packages or ()), None}:
            runs[*kind, package] += count
            seconds[*kind, package] += total
    return Seconds({about: seconds[about] / runs[about] for about in runs})


def read_peaks(
    connection: "Connection", packages: Collection[str], *, waiting: int
) -> tuple[TaskHistory, ...]:
    """Return what the latest runs about these packages used at most, by task and package."""
    statement = _PEAKS.format(memory=_IN_MIB.format("memory"), disk=_IN_MIB.format("disk_space"))
    values = {
        "latest": LOOKED_AT + waiting,
        "tags": [PACKAGE_TAG + package for package in sorted(packages)],
        "most": _MOST_RUNS,
    }
    # The text is made of constants; nothing but placeholders comes from elsewhere.
    rows = connection.execute(statement.encode(), values).fetchall()
    return tuple(
        TaskHistory(
            task=task,
            package=tag.removeprefix(PACKAGE_TAG),
            memory_mib=_sizes(memory),
            disk_mib=_sizes(disk),
        )
        for task, tag, memory, disk in sorted(rows, key=lambda row: row[:2])
    )


def _sizes(found: Iterable[int] | None) -> tuple[int, ...]:
    return tuple(size for size in found or () if size <= 10**9)
