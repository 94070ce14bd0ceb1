"""This module writes fleet.yaml's rules as Debusine task-configuration entries (0.16.2).

An entry names a task, the tags that a request must have already, and the tags that are added to
what it requires and provides. Its tags are words, no patterns: a rule becomes one entry for each
combination of words that it stands for, and a rule that stands for no short list is a finding.
Debusine carries no numbers: a minimum becomes the class tag of the lowest rung that reaches it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import Any

import yaml

from fleet.exports.result import NOT_EXPORTED, Exported, header, origin
from fleet.schema.findings import Finding, Path
from fleet.schema.model import DebusineQueue, DeriveRule, Fleet, Pool, PowerfulRule
from fleet.tagrules import ask_of_tags, offer_of_pool, serves_queue
from fleet.tagrules.allow import ANY_ARCHITECTURE, SOURCE_ARCHITECTURE, is_expired
from fleet.tagrules.enforcement import is_workspace_tag
from fleet.tagrules.ladder import rung_of_minimum
from fleet.tagrules.parts import ANYTHING, NotFinite, alternatives, split_top, words
from fleet.tagrules.static import rungs_of, static_tags

DEFAULT_TASKS = ("sbuild",)
_MOST_ENTRIES = 100
_PARTS = 4

Entry = dict[str, Any]


@dataclass(frozen=True)
class _Names:
    """What a rule stands for, part by part; None where anything may stand."""

    scopes: Sequence[str] | None
    workspaces: Sequence[str] | None
    architectures: Sequence[str] | None
    sources: Sequence[str] | None


class CannotExpress(Exception):
    """A rule for which there is no list of entries."""


def export_debusine(
    fleet: Fleet, digest: str, today: date, tasks: Sequence[str] = DEFAULT_TASKS
) -> Exported:
    """Return the entries as YAML; what they cannot say becomes comments and warnings."""
    made, findings = entries_of(fleet, today, tasks)
    text = header(fleet, "debusine", digest) + _how_to() + _workers(fleet)
    text += "".join(f"# Not exported: {f.path[0]}[{f.path[1]}]: {f.message}\n" for f in findings)
    return Exported(text + listed([entry for _, entry in made]), findings)


def entries_of(
    fleet: Fleet, today: date, tasks: Sequence[str]
) -> tuple[tuple[tuple[Path, Entry], ...], tuple[Finding, ...]]:
    """Return the entries, each with the rule that it comes from, and what no entry can say."""
    made: list[tuple[Path, Entry]] = []
    findings: list[Finding] = []
    for index, rule in enumerate(fleet.powerful):
        if is_expired(rule, today):
            continue
        try:
            found = _entries_of(fleet, index, rule, tasks)
            made += [(("powerful", index), entry) for entry in found]
        except CannotExpress as reason:
            findings.append(_not_exported(("powerful", index, "match"), str(reason)))
    for index, derive in enumerate(fleet.derive):
        try:
            made.append((("derive", index), _entry_of_derive(fleet, index, derive)))
        except CannotExpress as reason:
            findings.append(_not_exported(("derive", index), str(reason)))
    return tuple(made), tuple(findings)


def _how_to() -> str:
    return (
        "# Debusine task-configuration: put it into a checkout made by `debusine task-config"
        " pull`,\n# then `debusine task-config push`. It acts on requests that become pending"
        " after that.\n"
    )


def listed(entries: Sequence[Entry]) -> str:
    """Return entries as the YAML of a file of task configuration."""
    if not entries:
        return "[]\n"
    return yaml.safe_dump(list(entries), sort_keys=False, allow_unicode=True, width=99)


def _entries_of(
    fleet: Fleet, index: int, rule: PowerfulRule, tasks: Sequence[str]
) -> Iterator[Entry]:
    found = [
        (provided, required)
        for pattern in alternatives(rule.match)
        for provided, required in _conditions(fleet, _names_of(pattern))
    ]
    if len(found) * len(tasks) > _MOST_ENTRIES:
        raise CannotExpress(f"it would take more than {_MOST_ENTRIES} entries")
    require, provide = _required(fleet, rule.ask), _provided(fleet, rule.ask)
    for task, (provided, required) in product(tasks, found):
        yield _entry(
            task,
            tags_provided=provided,
            tags_required=required,
            provide_tags=provide,
            require_tags=require,
            comment=f"fleet {fleet.fleet}, {origin(index, rule)}",
        )


def _entry(task: str, *, comment: str, **tags: Sequence[str]) -> Entry:
    named = {key: list(value) for key, value in tags.items() if value}
    return {"task_type": "Worker", "task_name": task} | named | {"comment": comment}


def _names_of(pattern: str) -> _Names:
    parts = split_top(pattern, "/")
    if parts[-1] in (".*", ".+"):
        parts += [".*"] * (_PARTS - len(parts))
    if len(parts) != _PARTS:
        raise CannotExpress("it does not name scope, workspace, architecture and source apart")
    try:
        return _Names(*(None if part in ANYTHING else words(part) for part in parts))
    except NotFinite:
        raise CannotExpress("it stands for no short list of words") from None


def _conditions(fleet: Fleet, names: _Names) -> Iterator[tuple[list[str], list[str]]]:
    special = {SOURCE_ARCHITECTURE, ANY_ARCHITECTURE} & {*(names.architectures or ())}
    if special:
        raise CannotExpress(f"no entry can tell the architecture {min(special)}")
    architectures = [[f"worker:build-arch:{each}"] for each in names.architectures or ()] or [[]]
    sources = [[f"task:source-package:{each}"] for each in names.sources or ()] or [[]]
    for place, source, required in product(_places(fleet, names), sources, architectures):
        yield place + source, required


def _places(fleet: Fleet, names: _Names) -> list[list[str]]:
    queues = [queue for queue in fleet.queues.values() if isinstance(queue, DebusineQueue)]
    known = {scope for queue in queues for scope in queue.scopes}
    if names.scopes is not None and known and not known & set(names.scopes):
        raise CannotExpress(f"no Debusine queue has the scope {', '.join(names.scopes)}")
    if names.workspaces is None:
        return [[f"task:scope:{scope}"] for scope in names.scopes or ()] or [[]]
    scopes = names.scopes
    if scopes is None:
        scopes = sorted(known)
    if not scopes:
        raise CannotExpress("it names a workspace, but no scope, and no queue names one")
    return [[f"task:workspace:{s}:{w}"] for s, w in product(scopes, names.workspaces)]


def _entry_of_derive(fleet: Fleet, index: int, rule: DeriveRule) -> Entry:
    if rule.source_build is not None:
        raise CannotExpress("no entry can tell a source build")
    if rule.history is not None:
        raise CannotExpress("no entry knows what earlier runs needed")
    if not rule.model_fields_set <= {"task", "tag", "ask"} or "{" in rule.ask:
        raise CannotExpress("Debusine itself derives tags from task data, entries cannot")
    if rule.task is None:
        raise CannotExpress("an entry is about one task, and this rule names none")
    if rule.tag and rule.tag.endswith("*"):
        raise CannotExpress("an entry names whole tags")
    place = "tags_provided" if (rule.tag or "").startswith("task:") else "tags_required"
    return _entry(
        rule.task,
        **{place: [rule.tag] if rule.tag else []},
        require_tags=_required(fleet, [rule.ask]),
        comment=f"fleet {fleet.fleet}, derive[{index}]",
    )


def _required(fleet: Fleet, tags: Iterable[str]) -> list[str]:
    """Return what a worker must provide, each minimum as the rung that reaches it."""
    ask = ask_of_tags(fleet, tags)
    rungs = rungs_of(fleet)
    climbed = [rung_of_minimum(name, least, rungs) for name, least in ask.minimums]
    return sorted({*ask.required, *filter(None, climbed)})


def _provided(fleet: Fleet, tags: Iterable[str]) -> list[str]:
    """Return what the workers of these tags require and only configuration can provide."""
    wanted = frozenset(tags)
    found: set[str] = set()
    for name, pool in _pools(fleet):
        if offer_of_pool(fleet, name, ()).provides & wanted:
            found |= {tag for tag in pool.requires if is_workspace_tag(tag)}
    return sorted(found)


def _pools(fleet: Fleet) -> list[tuple[str, Pool]]:
    queues = [name for name, queue in fleet.queues.items() if isinstance(queue, DebusineQueue)]
    return [
        (name, pool)
        for name, pool in sorted(fleet.pools.items())
        if isinstance(pool, Pool) and any(serves_queue(pool, queue) for queue in queues)
    ]


def _workers(fleet: Fleet) -> str:
    """Return, as comments, what only an administrator can say of the workers of each pool."""
    lines = []
    for name, _ in _pools(fleet):
        told = {key: list(tags) for key, tags in static_tags(fleet, name).items() if tags}
        if told:
            written = yaml.safe_dump(told, default_flow_style=True, width=10_000).strip()
            lines.append(f"#   {name}: {written}\n")
    heading = "# Static metadata that the workers of a pool need, set by an administrator:\n"
    return heading + "".join(lines) if lines else ""


def _not_exported(path: Path, reason: str) -> Finding:
    return Finding(
        NOT_EXPORTED,
        reason,
        path,
        severity="warning",
        hint="fleet goes on buying machines for it; write an entry by hand if Debusine is to "
        "assign by it",
    )
