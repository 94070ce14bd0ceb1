"""Have a class of Debusine's tasks obey the allow-list of a fleet.yaml: see README.md.

Task configuration, which `fleet export debusine` writes, holds words. Here patterns match as they
do in fleet, at the moment when the server computes the tags of a work request.
"""

from collections.abc import Callable
from datetime import date
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

from django.db.models import Q

from contrib.debusine.matching import workers_for
from contrib.debusine.sql import terms_of
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList
from fleet.tagrules.export import provided_by_rules, required_by_rules


def add_allow_list(task: Any, fleet: Fleet, today: Callable[[], date]) -> None:  # noqa: ANN401 - a class of Debusine
    """Add the rules of `powerful` to a class that `DBTask.class_from_name` returned.

    Its work requests then require and provide what the rules ask for. Its method `workers` returns
    the condition on the workers that can run one, to be used in place of a `can_run_on`.
    """
    compute = task.compute_scheduler_tags
    terms = terms_of(fleet)
    # The patterns are compiled once a day, and not for each request.
    rules_on = lru_cache(maxsize=1)(partial(AllowList, fleet))

    def compute_scheduler_tags(self: Any) -> tuple[Any, Any]:  # noqa: ANN401 - a task of Debusine
        from debusine.tasks.tags import ProvenanceProvided
        from debusine.worker.tags import ProvenanceRequired

        provided, required = compute(self)
        request = _described(self, _tags(provided), _tags(required))
        asked = [tag for each in rules_on(today()).rules_for(request) for tag in each.rule.ask]
        required.add(ProvenanceRequired.WORKSPACE, set(required_by_rules(fleet, asked)))
        provided.add(ProvenanceProvided.WORKSPACE, set(provided_by_rules(fleet, asked)))
        return provided, required

    def workers(self: Any) -> Q:  # noqa: ANN401 - a task of Debusine
        request = self.work_request
        required, provided = request.scheduler_tags_required, request.scheduler_tags_provided
        return workers_for(required, provided, terms) & _takes(self.name)

    task.compute_scheduler_tags = compute_scheduler_tags
    task.workers = workers


def _takes(task: str) -> Q:
    """Return what a worker has to fulfil to take requests of a task at all."""
    # Django does not know that what a missing key contains is NULL, and so is its negation.
    allowing, denying = (
        Q(static_metadata__has_key=f"tasks_{each}list") for each in ("allow", "deny")
    )
    allowed = Q(static_metadata__tasks_allowlist__contains=[task])
    denied = denying & Q(static_metadata__tasks_denylist__contains=[task])
    return (allowing & allowed) | (~allowing & ~denied)


def _tags(candidates: Any) -> tuple[str, ...]:  # noqa: ANN401 - of Debusine
    return tuple(tag for tags in candidates.sets.values() for tag in tags)


def _described(task: Any, provided: tuple[str, ...], required: tuple[str, ...]) -> Any:  # noqa: ANN401 - of Debusine
    """Return what the allow-list asks of a request, which is not in a queue yet."""
    request = task.work_request
    return SimpleNamespace(
        task=task.name,
        scope=request.workspace.scope.name,
        workspace=request.workspace.name,
        task_data=request.used_task_data,
        provided=provided,
        required=required,
        package=None,
        owner=None,
        project=None,
        chroot=None,
    )
