"""Explain objects of any kind by name: requests, packages, pools, workers, images, rules, tags."""

import re
from collections.abc import Callable, Iterator

from fleet.checks import CHECKS, DATED_CHECKS
from fleet.explain.case import Case
from fleet.explain.pool import explain_pool
from fleet.explain.request import explain_requests
from fleet.explain.tags import WORDS, list_tags
from fleet.explain.values import ExplainedReason, Explanation, Matches
from fleet.explain.worker import explain_worker
from fleet.planner.images import find_image_troubles, find_waiting
from fleet.schema.model import ExistingImage
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import recorded_names
from fleet.words import answers, notes
from fleet.words.images import describe_waiting


def explain_any(case: Case, name: str) -> Matches:
    """Return an explanation of each object of any kind that has this name."""
    found = tuple(each for explain in EXPLAINERS.values() for each in explain(case, name))
    return Matches(fleet=case.fleet.fleet, name=name, matches=found)


_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z+.-][a-z0-9+.-]*")


def suggest_build(case: Case, name: str) -> str:
    """Return how to see the tags of a build of this package; empty if it waits or is no package.

    The other parts of the build's name are those of a waiting build, if possible of one with which
    a rule of the allow-list matches.
    """
    if not _PACKAGE.fullmatch(name) or case.named(name):
        return ""
    allowed = AllowList(case.fleet, case.world.time.date())
    others = recorded_names(case.world).names or ("SCOPE/WORKSPACE/ARCHITECTURE/SOURCE",)
    builds = dict.fromkeys(f"{each.rpartition('/')[0]}/{name}" for each in others)
    rules = {
        each: [f"powerful[{rule.index}]" for rule in allowed.rules_for_name(each)]
        for each in builds
    }
    build = max(builds, key=lambda each: len(rules[each]))
    return answers.suggest_build(name, build, rules[build])


def _image(case: Case, name: str) -> Iterator[Explanation]:
    """Yield an explanation of an image: its versions, the pools that boot it, and its problems."""
    fleet, world, image = case.fleet, case.world, case.fleet.images.get(name)
    versions = [each for each in world.versions if each.image == name]
    if image is None and not versions:
        return
    pools = sorted(key for key, pool in fleet.dynamic_pools.items() if pool.image == name)
    troubles = find_image_troubles(fleet, world, case.inventory)
    waiting = find_waiting(fleet, world).get(name)
    steps = [f"`{waiting.command}`: {describe_waiting(waiting)}"] if waiting else []
    yield Explanation(
        kind="image",
        name=name,
        headline=answers.describe_image(name, pools, is_declared=image is not None),
        facts=tuple(f"version {each.version}: {each.state}" for each in reversed(versions))
        or (answers.NO_VERSION if not isinstance(image, ExistingImage) else answers.EXISTING,),
        reasons=tuple(
            ExplainedReason(
                because=notes.describe_image(pool, troubles[pool].problem),
                path=("images", name),
            )
            for pool in pools
            if pool in troubles
        ),
        next_steps=(*steps, f"`fleet image show {name}` has all records"),
    )


def _tag(case: Case, name: str) -> Iterator[Explanation]:
    """Yield an explanation of a tag: its pools, limits and waiting requests."""
    for each in list_tags(case.fleet).tags:
        if each.tag != name:
            continue
        asking = [s for s in case.plan.signatures if name in s.required]
        count = sum(signature.count for signature in asking)
        yield Explanation(
            kind="tag",
            name=name,
            headline=answers.describe_tag(name, each.pools),
            facts=(
                *(["on demand"] if each.on_demand else []),
                *(["exclusive"] if each.exclusive else []),
                *(f"at most {most} {per}" for per, most in sorted(each.limits.items())),
                answers.count_asking(count),
            ),
            reasons=tuple(
                ExplainedReason(
                    because=answers.describe_enforcement(
                        name, [claim.claim], WORDS[claim.by], claim.queue, claim.because
                    ),
                    path=claim.path,
                )
                for claim in each.enforcement
            ),
            next_steps=(answers.LIST_TAGS,),
        )


def _rule(case: Case, name: str) -> Iterator[Explanation]:
    """Yield the allow-list rules that match a name, or the `fleet validate` rule of this name."""
    word = re.compile(rf"(?<![\w.+-]){re.escape(name)}(?![\w+-])")
    for nth, rule in enumerate(case.fleet.powerful):
        key = f"powerful[{nth}]"
        if name not in (key, rule.match) and not word.search(rule.match):
            continue
        facts = (("reason", rule.reason), ("contact", rule.contact), ("expires", rule.expires))
        missing = "" if name in (key, rule.match) else suggest_build(case, name)
        only = f" of task {rule.task}" if rule.task else ""
        yield Explanation(
            kind="rule",
            name=key,
            headline=answers.RULE(key=key, only=only, match=rule.match, asked=rule.ask),
            facts=tuple(f"{about}: {text}" for about, text in facts if text),
            reasons=(ExplainedReason(because=answers.ALLOWED, path=("powerful", nth)),),
            next_steps=(missing,) if missing else (),
        )
    if name in {check.__name__.replace("_", "-") for check in (*CHECKS, *DATED_CHECKS)}:
        yield Explanation(
            kind="rule",
            name=name,
            headline=answers.CHECK(name=name),
            next_steps=(f"`fleet help {name}` has its page",),
        )


EXPLAINERS: dict[str, Callable[[Case, str], Iterator[Explanation]]] = {
    "request": lambda case, name: explain_requests(case, frozenset(case.named(name))),
    "pool": lambda case, name: filter(None, [explain_pool(case, name)]),
    "worker": lambda case, name: filter(None, [explain_worker(case, name)]),
    "image": _image,
    "rule": _rule,
    "tag": _tag,
}
"""Kind of object to the function that yields the explanations of a name."""


def names_of_kind(case: Case, kind: str) -> list[str]:
    """Return all known names of objects of a kind, such as `pool` or `image`."""
    fleet, plan = case.fleet, case.plan
    match kind:
        case "request":
            return [key for signature in plan.signatures for key in signature.requests]
        case "pool":
            return [pool.pool for pool in plan.pools]
        case "worker":
            return [worker.worker for worker in plan.workers]
        case "image":
            return sorted({*fleet.images, *(each.image for each in case.world.versions)})
        case "tag":
            return [each.tag for each in list_tags(fleet).tags]
    return [f"powerful[{nth}]" for nth in range(len(fleet.powerful))]
