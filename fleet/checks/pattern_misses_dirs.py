"""This module finds rules of the allow-list that no build of a pull request falls under."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import CoprQueue, DebusineQueue, Fleet, PowerfulRule, TicketQueue


def pattern_misses_dirs(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a Copr rule that says nothing of `dirs` and cannot match owner/project:pr:7/…."""
    for number, rule in enumerate(fleet.powerful):
        if "dirs" not in rule.model_fields_set:
            project = _project_without_dirs(fleet, rule)
            if project:
                yield Finding(
                    "pattern-misses-dirs",
                    f"this matches no pull-request directory of {project} (as {project}:pr:7)",
                    ("powerful", number, "match"),
                    severity="warning",
                    hint="add dirs: true, or dirs: false if builds of pull requests shall not "
                    "have it",
                )


def _project_without_dirs(fleet: Fleet, rule: PowerfulRule) -> str:
    """Return owner/project where the pattern spells both out, and they are Copr's."""
    from fleet.tagrules.allow import is_valid
    from fleet.tagrules.patterns import is_word, read_pattern, segments, word_of

    parts = segments((is_valid(rule) and read_pattern(rule.match)) or ())
    if len(parts) < 3 or not (is_word(parts[0]) and is_word(parts[1])):  # noqa: PLR2004 - owner, project, rest
        return ""
    owner, project = word_of(parts[0]), word_of(parts[1])
    return f"{owner}/{project}" if ":" not in project and _is_copr(fleet, owner) else ""


def _is_copr(fleet: Fleet, owner: str) -> bool:
    queues = [*fleet.queues.values()]
    scopes = {scope for q in queues if isinstance(q, DebusineQueue) for scope in q.scopes}
    served = any(isinstance(queue, CoprQueue | TicketQueue) for queue in queues)
    return owner.startswith("@") or (served and owner not in scopes)
