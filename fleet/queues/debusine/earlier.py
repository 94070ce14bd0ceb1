"""This module reads what earlier runs took, from Debusine's database: time, memory, disk, machine.

Only the latest runs are looked at: the table of a server grows for ever, and nothing in it is in
the order of their end but, nearly, their ids.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from fleet.demand.runs import Run
from fleet.facts import Request, TaskHistory
from fleet.queues.debusine import marks
from fleet.queues.debusine.rows import PACKAGE_TAG, package_of

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

_LOOKED_AT = 200_000
"""So many of the latest requests are looked at, whatever became of them."""
_MOST_RUNS = 1000
_SECONDS = """\
SELECT r.task_name, r.scheduler_tags_required,
       CASE WHEN %(told_apart)s THEN ARRAY(
            SELECT t FROM unnest(r.scheduler_tags_provided) t WHERE t = ANY(%(tags)s::text[]))
       END,
       count(*), sum(extract(epoch FROM r.completed_at - r.started_at))::float8
  FROM db_workrequest r
 WHERE r.id > (SELECT max(id) FROM db_workrequest) - %(looked_at)s AND r.status = 'completed'
   AND r.result = 'success' AND r.task_type = 'Worker' AND r.completed_at >= r.started_at
 GROUP BY 1, 2, 3"""
_RUNS = """\
SELECT u.task_name, u.tag, u.machine, u.started_at, u.seconds
  FROM (SELECT r.task_name, t AS tag, w.static_metadata ->> %(machine)s AS machine,
               r.started_at, extract(epoch FROM r.completed_at - r.started_at)::int AS seconds,
               row_number() OVER (PARTITION BY r.task_name, t ORDER BY r.id DESC) AS nth
          FROM db_workrequest r JOIN db_worker w ON w.id = r.worker_id
               CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t
         WHERE r.id > (SELECT max(id) FROM db_workrequest) - %(looked_at)s
           AND r.status = 'completed' AND r.result = 'success' AND r.task_type = 'Worker'
           AND r.completed_at >= r.started_at AND t = ANY(%(tags)s::text[])
           AND w.static_metadata ->> %(mark)s = %(fleet)s) u
 WHERE u.nth <= %(most)s AND u.machine IS NOT NULL"""
_RUNNING = """\
SELECT DISTINCT t
  FROM db_workrequest r CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t
 WHERE r.worker_id IS NOT NULL AND r.status = 'running' AND r.task_type = 'Worker'
   AND starts_with(t, %(prefix)s)"""
_MIB = 1_048_576
_PEAKS = """\
SELECT u.task_name, u.tag, array_agg(u.memory) FILTER (WHERE u.memory >= 0),
       array_agg(u.disk) FILTER (WHERE u.disk >= 0)
  FROM (SELECT r.task_name, t AS tag,
               CASE WHEN jsonb_typeof(s.used -> 'memory') = 'number'
                    THEN (s.used ->> 'memory')::numeric END AS memory,
               CASE WHEN jsonb_typeof(s.used -> 'disk_space') = 'number'
                    THEN (s.used ->> 'disk_space')::numeric END AS disk,
               row_number() OVER (PARTITION BY r.task_name, t ORDER BY r.id DESC) AS nth
          FROM db_workrequest r
               CROSS JOIN LATERAL (SELECT r.output_data -> 'runtime_statistics') s(used)
               CROSS JOIN LATERAL unnest(r.scheduler_tags_provided) t
         WHERE r.id > (SELECT max(id) FROM db_workrequest) - %(looked_at)s
           AND r.status = 'completed' AND r.result = 'success' AND r.task_type = 'Worker'
           AND t = ANY(%(tags)s::text[])) u
 WHERE u.nth <= %(most)s GROUP BY 1, 2"""

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

    def expecting(self, request: Request) -> Request:
        """Return a request with how long it is expected to run."""
        found = self.expected(request.task, request.required, request.package)
        return request.model_copy(update={"expected_seconds": found})


def read_seconds(connection: "Connection", packages: Collection[str]) -> Seconds:
    """Return how long the latest runs took, those of these packages told apart."""
    values = {
        "looked_at": _LOOKED_AT,
        "tags": _tags(packages),
        "told_apart": bool(packages),
    }
    runs: Counter[_About] = Counter()
    seconds: defaultdict[_About, float] = defaultdict(float)
    for task, required, tags, count, total in connection.execute(_SECONDS, values):
        kind = (task, tuple(sorted(set(required))))
        for package in {package_of(tags or ()), None}:
            runs[*kind, package] += count
            seconds[*kind, package] += total
    return Seconds({about: seconds[about] / runs[about] for about in runs})


def read_runs(connection: "Connection", packages: Collection[str], fleet: str) -> tuple[Run, ...]:
    """Return the latest runs about these packages on machines of a fleet, by their names."""
    if not packages:
        return ()
    values = {
        "looked_at": _LOOKED_AT,
        "tags": _tags(packages),
        "most": _MOST_RUNS,
        "mark": marks.FLEET,
        "fleet": fleet,
        "machine": marks.MACHINE,
    }
    rows = connection.execute(_RUNS, values).fetchall()
    return tuple(Run(task, tag.removeprefix(PACKAGE_TAG), *ran) for task, tag, *ran in rows)


def running_packages(connection: "Connection") -> frozenset[str]:
    """Return the packages that workers are at work on."""
    rows = connection.execute(_RUNNING, {"prefix": PACKAGE_TAG})
    return frozenset(tag.removeprefix(PACKAGE_TAG) for (tag,) in rows)


def read_peaks(connection: "Connection", packages: Collection[str]) -> tuple[TaskHistory, ...]:
    """Return what the latest runs about these packages used at most, by task and package."""
    values = {"looked_at": _LOOKED_AT, "tags": _tags(packages), "most": _MOST_RUNS}
    rows = connection.execute(_PEAKS, values).fetchall()
    return tuple(
        TaskHistory(
            task=task,
            package=tag.removeprefix(PACKAGE_TAG),
            memory_mib=_sizes(memory),
            disk_mib=_sizes(disk),
        )
        for task, tag, memory, disk in sorted(rows, key=lambda row: row[:2])
    )


def _tags(packages: Iterable[str]) -> list[str]:
    return [PACKAGE_TAG + package for package in sorted(packages)]


def _sizes(found: Iterable[Decimal] | None) -> tuple[int, ...]:
    return tuple(-(-int(size) // _MIB) for size in found or () if size < _MIB * 10**9)
