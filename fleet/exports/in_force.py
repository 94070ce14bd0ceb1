"""This module compares the rules of fleet.yaml with those that a queue has.

Debusine and Copr give tags to requests by their own rules: one of fleet.yaml acts there only once
it was delivered. What cannot be read is `unseen`, which is neither in force nor missing.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from fleet.exports.copr import rules_for_copr
from fleet.exports.debusine import DEFAULT_TASKS, entries_of
from fleet.facts import Unknown, World
from fleet.facts.rules import HeldRules, QueueRule
from fleet.plan.rules import MissingRule, RulesVerdict
from fleet.schema.model import CoprQueue, CoprRulesFile, DebusineQueue, Fleet
from fleet.schema.units import write_count

Path = tuple[str | int, ...]
Expected = Sequence[tuple[Path, QueueRule]]
_SIMPLE = {"task_type", "task_name", "comment", "path", "position"}
_TAGS = {
    "tags_provided": "when_provided",
    "tags_required": "when_required",
    "provide_tags": "provides",
    "require_tags": "requires",
}


def judge_rules(fleet: Fleet, world: World) -> Iterator[RulesVerdict]:
    """Yield whether each place that fleet.yaml names has its rules; by queue and place."""
    for name in sorted(fleet.queues):
        expected = expected_rules(fleet, name, world.time.date())
        reading = world.queues.get(name)
        for place in places_of(fleet, name):
            held = reading.rules.get(place) if reading else None
            yield _verdict(fleet, name, place, expected, held or Unknown(unknown=_UNREAD))


_UNREAD = "they were not read"


def places_of(fleet: Fleet, queue: str) -> tuple[str, ...]:
    """Return where the rules of a queue are, as fleet.yaml says it."""
    match fleet.queues.get(queue):
        case DebusineQueue(rules=rules) if rules is not None:
            return tuple(sorted(set(rules.workspaces)))
        case CoprQueue(rules=rules) if rules is not None:
            return (rules.file if isinstance(rules, CoprRulesFile) else rules.url,)
        case _:
            return ()


def has_own_rules(fleet: Fleet, queue: str) -> bool:
    """Say whether a queue gives tags by rules of its own, and fleet.yaml has some for it."""
    match fleet.queues.get(queue):
        case DebusineQueue():
            return bool(fleet.powerful or fleet.derive)
        case CoprQueue():
            return bool(fleet.powerful)
        case _:
            return False


def expected_rules(fleet: Fleet, queue: str, today: date) -> Expected:
    """Return what a queue has to have for the rules of fleet.yaml to act there."""
    match fleet.queues.get(queue):
        case DebusineQueue(rules=rules):
            made, _ = entries_of(fleet, today, tuple(rules.tasks) if rules else DEFAULT_TASKS)
            found = [(path, rule_of_entry(entry)) for path, entry in made]
            return [(path, rule) for path, rule in found if rule is not None]
        case CoprQueue():
            return [
                (("powerful", index), QueueRule(pattern=pattern, requires=tags))
                for index, pattern, tags in rules_for_copr(fleet, today)
            ]
        case _:
            return []


def rule_of_entry(entry: Mapping[str, Any]) -> QueueRule | None:
    """Return an entry of Debusine as a rule; None where it does more than give tags."""
    said = {key: value for key, value in entry.items() if value not in (None, [], {}, "")}
    if said.keys() - _SIMPLE - _TAGS.keys() or said.get("task_type") != "Worker":
        return None
    tags = {_TAGS[key]: said[key] for key in said.keys() & _TAGS.keys()}
    if not all(isinstance(value, list) and all(map(_is_tag, value)) for value in tags.values()):
        return None  # an expression over tags
    return QueueRule(task=str(said.get("task_name", "")), **tags)


def _is_tag(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def say_whether_in_force(
    fleet: Fleet, verdicts: Sequence[RulesVerdict], queue: str, path: Path
) -> str:
    """Return whether one rule of fleet.yaml acts at a queue; empty where that has none."""
    if not has_own_rules(fleet, queue):
        return ""
    here = [verdict for verdict in verdicts if verdict.queue == queue]
    command = _command(fleet, queue)
    if not here:
        return (
            f"it has no effect at {queue} before somebody delivers it (`{command}`); whether that "
            f"was done cannot be seen without queues.{queue}.rules"
        )
    lacking = [v for v in here if any(each.path == path[:2] for each in v.missing)]
    if lacking:
        places = ", ".join(verdict.place for verdict in lacking)
        return f"it has no effect at {queue}: {places} does not have it; deliver it: `{command}`"
    unseen = [verdict for verdict in here if verdict.state == "unseen"]
    if unseen:
        return f"whether {queue} has it cannot be seen: {unseen[0].because}"
    if path[:2] not in {each for each, _ in expected_rules(fleet, queue, date.min)}:
        return f"it has no effect at {queue}, whose rules cannot express it"
    return f"{queue} has it {said_since(here)}: requests that wait since before keep their tags"


def said_since(verdicts: Sequence[RulesVerdict]) -> str:
    """Return since when rules are in force, as far as fleet saw it."""
    moments = [verdict.since for verdict in verdicts]
    known = [moment for moment in moments if moment is not None]
    return f"since {max(known):%Y-%m-%d %H:%M} UTC" if len(known) == len(moments) else "by now"


def standing_of(verdict: RulesVerdict) -> str:
    """Return whether rules are in force, in words."""
    match verdict.state:
        case "in-force":
            return f"{write_count(verdict.expected, 'rule')} in force {said_since([verdict])}"
        case "unseen":
            return f"cannot be seen: {verdict.because}"
        case _:
            rules = write_count(verdict.expected, "rule")
            parts = [f"{len(verdict.missing)} of {rules} missing"] if verdict.missing else []
            parts += [f"{len(verdict.extra)} superfluous"] if verdict.extra else []
            return f"differs: {', '.join(parts)}; deliver them: `{verdict.fix}`"


def _verdict(
    fleet: Fleet, queue: str, place: str, expected: Expected, held: HeldRules | Unknown
) -> RulesVerdict:
    if isinstance(held, Unknown):
        return RulesVerdict(
            queue=queue, place=place, state="unseen", expected=len(expected), because=held.unknown
        )
    there = {*held.written, *held.others}
    wanted = {rule for _, rule in expected}
    missing = tuple(
        MissingRule(path=path, entry=str(rule)) for path, rule in expected if rule not in there
    )
    extra = tuple(str(rule) for rule in held.written if rule not in wanted)
    differs = bool(missing or extra)
    return RulesVerdict(
        queue=queue,
        place=place,
        state="differs" if differs else "in-force",
        since=held.since,
        expected=len(expected),
        missing=missing,
        extra=extra,
        fix=_command(fleet, queue) if differs else "",
    )


def _command(fleet: Fleet, queue: str) -> str:
    match fleet.queues[queue]:
        case CoprQueue(rules=CoprRulesFile(file=file)):
            return f"fleet export copr --patch {shlex.quote(file)}"
        case CoprQueue():
            return "fleet export copr"
        case _:
            return "fleet export debusine --apply"
