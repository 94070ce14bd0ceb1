"""Checks of tags, and of the rules that derive tags."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from operator import methodcaller

from fleet.model.prices import find_types, sold_types
from fleet.model.tickets import SANDBOX
from fleet.schema.findings import Finding, Path, did_you_mean, nearest, quoted, unwise, wrong
from fleet.schema.model import (
    CoprQueue,
    DebusineQueue,
    DeriveRule,
    Fleet,
    Pool,
    TicketQueue,
    WorldQueue,
    serves_queue,
)
from fleet.schema.rules import Otherwise
from fleet.schema.units import write_duration
from fleet.tagrules.derive import (
    ENVIRONMENTS,
    find_cycle,
    is_placeholder,
    number_of,
    parts_of,
    placeholders,
)
from fleet.tagrules.offers import find_doubts
from fleet.tagrules.sources import (
    SYSTEM_ONLY,
    enforcement_of,
    is_workspace_tag,
    limits_of,
    native_architectures,
    nearest_tag,
    pool_sources,
    provided_tags,
)
from fleet.tagrules.vocabulary import (
    Mention,
    Vocabulary,
    mentions,
    read_minimums,
    read_numbers,
    tag_name,
)

_FOREVER = "wait forever"
_DEBUSINE = ("worker:", "task:")
"""Prefixes of tags that Debusine's workers or tasks bring by themselves."""
_DIGITS = re.compile(r"[0-9]+")


def unknown_tag(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a tag that no pool or request provides, or that looks misspelt.

    A rule of the allow-list may not ask for such a tag unless `tags` declares it, and no pool may
    misspell the tag of a rule.
    """
    if not fleet.pools:
        return
    missing = tuple(_check_required(fleet))
    yield from missing
    found = {finding.path for finding in missing}
    mentioned = tuple(each for each in mentions(fleet) if each.path not in found)
    asked = {tag_name(m.tag) for m in mentioned if m.role == "asked"}
    declared = {name for name in fleet.tags if not name.endswith("*")}
    prefers = any(pool.priorities for pool in fleet.dynamic_pools.values())
    if not (asked or fleet.tags or fleet.derive or prefers):
        return
    sources = [each for name in fleet.pools for each in pool_sources(fleet, name, ())]
    provided = provided_tags(fleet)
    written = {tag_name(each.tag) for each in sources if each.source != "machine"}
    meant = _find_misspelt(fleet, mentioned, provided)
    yield from _check_misspelt(fleet, mentioned, meant)
    provided |= {*meant.values()}
    mentioned = tuple(each for each in mentioned if tag_name(each.tag) not in meant)
    yield from _check_unprovided(fleet, mentioned, provided)
    lacking = asked - provided
    for name in sorted(fleet.tags):
        for finding in _check_declared(fleet, name, provided, written):
            lacking.add(name)
            yield finding
    yield from _check_unasked(mentioned, asked | declared, lacking)
    for number in range(len(fleet.derive)):
        yield from _check_derived(Vocabulary(fleet), number, provided, asked | declared | provided)
    yield from _check_preferred(fleet)


def _check_required(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a tag that a pool requires but no request of the pool's queues can have."""
    for name, pool in fleet.dynamic_pools.items():
        served = [queue for key, queue in fleet.queues.items() if serves_queue(pool, key)]
        if not served or not all(isinstance(each, TicketQueue | CoprQueue) for each in served):
            continue
        for number, tag in enumerate(pool.requires):
            if not tag.startswith(SANDBOX):
                message = f"no ticket or build of Copr provides {tag}, so pool {name} serves none"
                hint = f"remove it; they provide only `{SANDBOX}NAME`"
                yield unwise(message, ("pools", name, "requires", number), hint=hint)


def _find_misspelt(
    fleet: Fleet, mentioned: Iterable[Mention], provided: AbstractSet[str]
) -> dict[str, str]:
    """Map each tag that pools misspell to the tag of a rule that no pool provides.

    The rules are right if `tags` declares their tag, or if more rules than pools write it. A tag
    of Debusine is no typo: its workers may report it.
    """
    vocabulary, uses = Vocabulary(fleet), Counter((m.role, tag_name(m.tag)) for m in mentioned)
    asked = {name for role, name in uses if role == "asked"}
    lacking = {
        name
        for name in asked - provided
        if not name.startswith(_DEBUSINE) and not _is_reported(vocabulary, name)
    }
    return {
        name: near
        for name in provided - asked - {*fleet.tags}
        if (count := uses["provided", name])
        and (near := nearest_tag(name, lacking))
        and (near in fleet.tags or uses["asked", near] > count)
    }


def _check_misspelt(
    fleet: Fleet, mentioned: Iterable[Mention], meant: Mapping[str, str]
) -> Iterator[Finding]:
    """Forbid a misspelt tag of a pool; warn if requests may later run without the tag."""
    for mention in mentioned:
        if near := meant.get(name := tag_name(mention.tag)):
            waits = f"so requests for it {_describe_wait(Vocabulary(fleet), near)}"
            report = wrong if waits.endswith(_FOREVER) else unwise
            message = f"nothing asks for {name}; no pool provides {near}, {waits}"
            yield report(message, mention.path, hint=f"did you mean '{near}'?")


def _check_unprovided(
    fleet: Fleet, mentioned: Iterable[Mention], provided: Collection[str]
) -> Iterator[Finding]:
    """Warn about a required tag that no pool provides; forbid it in an undeclared tag of a rule.

    A tag under `tags` is no typo: its workers may report it.
    """
    vocabulary = Vocabulary(fleet)
    for mention in mentioned:
        name = tag_name(mention.tag)
        if mention.role != "asked" or name in provided or _is_reported(vocabulary, name):
            continue
        message = f"no pool provides {name}, so requests for it {_describe_wait(vocabulary, name)}"
        near, hint = _similar(name, provided), "add it to `provides` of a pool that has it"
        if mention.path[0] == "powerful" and not any(vocabulary.names_of(name)):
            hint += ", or declare it under `tags` if only workers report it"
            yield wrong(message, mention.path, hint=near or hint)
        else:
            yield unwise(message, mention.path, hint=near or hint)


def _check_unasked(
    mentioned: Iterable[Mention], known: Collection[str], lacking: Collection[str]
) -> Iterator[Finding]:
    """Warn about a tag, provided or required by a pool, that looks like a misspelt known tag.

    If no pool provides the known tag (`lacking`), another finding reports that.
    """
    for mention in mentioned:
        name = tag_name(mention.tag)
        if mention.role == "asked" or name in known:
            continue
        near = nearest_tag(name, known)
        if near and not (mention.role == "provided" and near in lacking):
            message = f"nothing asks for {name} or declares it"
            yield unwise(message, mention.path, hint=f"did you mean '{near}'?")


def _check_declared(
    fleet: Fleet, name: str, provided: Collection[str], written: Collection[str]
) -> Iterator[Finding]:
    """Warn about a rule under `tags` that has no effect, because no pool provides its tag."""
    rule, vocabulary, start = fleet.tags[name], Vocabulary(fleet), name.removesuffix("*")
    found = any(
        map(start.__eq__ if start == name else methodcaller("startswith", start), provided)
    )
    # Each machine has a value of every number.
    if found or _is_reported(vocabulary, start) or rule.kind == "number":
        return
    near = _similar(name, provided) if start == name else ""
    keys = [f"`{key}`" for key in _find_idle_keys(vocabulary, name)]
    is_waived = isinstance(rule.otherwise, Otherwise)
    if keys or near or is_waived:
        message = (
            f"no pool provides {start if start == name else f'a tag that begins with {start}'}"
        )
        if is_waived:
            message += f", so requests for it {_describe_wait(vocabulary, start)}"
        if keys:
            verb = "has" if len(keys) == 1 else "have"
            message += f", {'and' if is_waived else 'so'} {' and '.join(keys)} {verb} no effect"
        hint = near or _provided_hint(name, written)
        yield unwise(message, ("tags", name), at="key", hint=hint)


def _is_reported(vocabulary: Vocabulary, tag: str) -> bool:
    """Return True if only running workers report a tag, so that no pool states it."""
    return "worker" in (vocabulary.provided_by(tag)[0] or ())


def _describe_wait(vocabulary: Vocabulary, tag: str) -> str:
    """State how long requests wait for a tag that no pool provides."""
    rules = (vocabulary.fleet.tags[name].otherwise for name in vocabulary.names_of(tag))
    after = min((rule.after for rule in rules if isinstance(rule, Otherwise)), default=None)
    return _FOREVER if after is None else f"wait {write_duration(after)}, then run without it"


def _find_idle_keys(vocabulary: Vocabulary, name: str) -> Iterator[str]:
    """Yield the keys without effect on requests for a tag that no pool provides.

    A key may be of a rule for a prefix.
    """
    rule = vocabulary.fleet.tags[name]
    inherited = {
        "on_demand": vocabulary.is_on_demand(name),
        "exclusive": vocabulary.is_exclusive(name),
    }
    # `asked_by: [system]` forbids a tag to users. That is no typo, even if no pool provides it.
    has_effect = {"asked_by"} if rule.asked_by == ["system"] else set()
    if isinstance(rule.otherwise, Otherwise):
        # Such requests run without the tag, in the order that these keys give.
        has_effect = {"asked_by", "priority"}
    for key in ("on_demand", "exclusive", "asked_by", "limits", "priority"):
        if key not in has_effect and (key in rule.model_fields_set or inherited.get(key)):
            yield key


def _check_preferred(fleet: Fleet) -> Iterator[Finding]:
    """Warn about `priorities` of a pool for tags that the pool does not provide."""
    for name, pool in fleet.dynamic_pools.items():
        if pool.priorities:
            own = {tag_name(each.tag) for each in pool_sources(fleet, name, ())}
            for tag in sorted(pool.priorities.keys() - own):
                message = f"pool {name} does not provide {tag}, so it serves no ticket for it"
                path = ("pools", name, "priorities", tag)
                yield unwise(message, path, at="key", hint=_provided_hint(tag, own))


_MAX_HINTS = 5
"""Maximum number of tags in a hint."""


def _provided_hint(tag: str, written: Collection[str]) -> str:
    """Return a hint: the probably intended tag, or else the tags that pools provide."""
    shape = _DIGITS.sub("0", tag)
    close = nearest(tag, [each for each in written if _DIGITS.sub("0", each) != shape])
    if close:
        return f"did you mean '{close}'?"
    told = ", ".join(sorted(written)[:_MAX_HINTS]) + (", …" if len(written) > _MAX_HINTS else "")
    ways = "add it to `provides` of a pool, or remove it"
    return f"{ways}; provided: {told}" if told else ways


def _check_derived(
    vocabulary: Vocabulary, number: int, provided: Collection[str], known: Collection[str]
) -> Iterator[Finding]:
    """Warn about a derived tag that no pool provides, and a condition that looks misspelt."""
    rule = vocabulary.fleet.derive[number]
    start, brace, _ = rule.ask.partition("{")
    name = tag_name(start)
    if brace and name and not any(each.startswith(name) for each in provided):
        waits = _describe_wait(vocabulary, name)
        message = f"no pool provides a tag that begins with {name}, so such requests {waits}"
        path = ("derive", number, "ask")
        yield unwise(message, path, hint="add it to `provides` of a pool that has it")
    if rule.tag and rule.tag not in known and (near := _similar(rule.tag, known)):
        yield unwise(
            f"nothing asks for {rule.tag} or declares it", ("derive", number, "tag"), hint=near
        )


def _similar(tag: str, known: Collection[str]) -> str:
    """Return a hint if a tag resembles a known tag; else an empty text."""
    near = nearest_tag(tag, known)
    return f"did you mean '{near}'?" if near else ""


def forbidden_tag(fleet: Fleet) -> Iterator[Finding]:
    """Require that `asked_by` and `provided_by` permit the tags of rules and of pools."""
    if all(rule.asked_by is None and rule.provided_by is None for rule in fleet.tags.values()):
        return
    vocabulary = Vocabulary(fleet)
    for mention in mentions(fleet):
        allowed, path = vocabulary.asked_by(mention.tag)
        word = "rules" if mention.path[0] == "powerful" else "task"
        if mention.role == "asked" and allowed is not None and word not in allowed:
            yield wrong(
                f"{mention.tag} is not allowed here: {'.'.join(map(str, path))} does not list "
                f"{word}",
                mention.path,
                hint=f"add {word} there, or remove the tag here",
            )
    for name in fleet.pools:
        for doubt in find_doubts(fleet, name, ()):
            # No file contains the tags that follow from a machine's type.
            if doubt.kind == "not-permitted" and doubt.path[-1:] != ("machine",):
                hint = "remove it here, or add this source to provided_by"
                yield wrong(doubt.because, doubt.path, hint=hint)
    for name, rule in fleet.tags.items():
        if rule.asked_by == []:
            message = f"asked_by is empty, so no request may ask for {name}"
            hint = "list who may, for example asked_by: [rules]"
            yield wrong(message, ("tags", name, "asked_by"), hint=hint)


def plain_tag_only(fleet: Fleet) -> Iterator[Finding]:
    """Forbid keys for plain tags on a numeric tag, which every machine provides."""
    for name, rule in fleet.tags.items():
        if rule.kind != "number":
            continue
        for key, written, word in (
            ("exclusive", rule.exclusive, "be exclusive"),
            ("on_demand", rule.on_demand, "be on demand"),
            ("limits", bool(limits_of(rule)), "have limits"),
            ("priority", rule.priority != "normal", "have a priority"),
            ("otherwise", rule.otherwise != "wait", "be dropped"),
        ):
            if written:
                yield wrong(
                    f"{name} is a number, and only plain tags can {word}",
                    ("tags", name, key),
                    at="key",
                    hint=f"remove {key}, and give it to a plain tag",
                )


def minimum_on_plain_tag(fleet: Fleet) -> Iterator[Finding]:
    """Forbid minimums of tags that are not numeric."""
    numeric = Vocabulary(fleet).numeric
    for mention in mentions(fleet):
        name = tag_name(mention.tag)
        if ">=" not in mention.tag or name in numeric:
            continue
        yield _no_minimum(name, numeric, mention.path)


def _no_minimum(name: str, numeric: Collection[str], path: Path) -> Finding:
    near, declare = did_you_mean(name, numeric), f"declare it: tags: {{{name}: {{kind: number}}}}"
    hint = near if near.startswith("did") else declare
    return wrong(f"{name} is a plain tag and has no minimum", path, hint=hint)


def contradicting_sources(fleet: Fleet) -> Iterator[Finding]:
    """Require that image, pool and machine agree on architecture, size class and numbers."""
    # Many pools are equal: skip a pool that is equal to one already checked.
    agreeing: set[object] = set()
    for name, pool in fleet.pools.items():
        alike = None
        if isinstance(pool, Pool):
            yield from _check_architecture(fleet, name, pool)
            if isinstance(pool.machine, str):
                alike = (pool.provider, pool.machine, pool.image, tuple(pool.provides))
        if alike in agreeing:
            continue
        doubts = find_doubts(fleet, name, ())
        if alike is not None and not doubts:
            agreeing.add(alike)
        for doubt in doubts:
            if doubt.kind == "contradiction":
                yield wrong(doubt.because, doubt.path, hint="keep the correct one")


def _check_architecture(fleet: Fleet, name: str, pool: Pool) -> Iterator[Finding]:
    image = fleet.images.get(pool.image)
    for machine in find_types(fleet, pool) if image is not None else ():
        native = native_architectures((machine,))
        if image is None or image.architecture in native:
            continue
        runs = _architectures(fleet)
        if image.architecture not in runs:
            close = nearest(image.architecture, runs)
            yield wrong(
                f"no machine type of the providers runs {quoted(image.architecture)}; they run "
                f"{', '.join(runs)}",
                ("images", pool.image, "architecture"),
                hint=f"did you mean '{close}'?" if close else "choose one of these",
            )
            return
        yield wrong(
            f"image {pool.image} is for {image.architecture}, but machine {machine.name} runs "
            f"{' and '.join(native)}",
            ("pools", name, "image"),
            hint="choose an image for the machine's architecture, or another machine",
        )


def _architectures(fleet: Fleet) -> list[str]:
    """Return the architectures of all providers' machine types, sorted."""

    def find() -> list[str]:
        sold = (each for name in fleet.providers for each in sold_types(fleet, name))
        return sorted({native for each in sold for native in native_architectures((each,))})

    return fleet.cached("architectures", (), find)


def derivation_cycle(fleet: Fleet) -> Iterator[Finding]:
    """Forbid rules that derive, directly or through other rules, a tag of their own condition."""
    if not any(rule.tag for rule in fleet.derive):
        return
    cycle = find_cycle(fleet.derive)
    if cycle:
        steps = [f"{fleet.derive[place].tag} gives {fleet.derive[place].ask}" for place in cycle]
        yield wrong(
            f"these rules form a cycle: {', '.join(steps)}",
            ("derive", cycle[0], "tag"),
            hint="derive one of them from the task data with `from`",
        )


def wrong_derivation(fleet: Fleet) -> Iterator[Finding]:
    """Require that a rule has one source of its value, and a declared look-up table."""
    for number, rule in enumerate(fleet.derive):
        yield from _check_value(number, rule)
        yield from _check_history(fleet, number, rule)
        if rule.lookup is not None and rule.from_ is None:
            message = "lookup needs `from`, the value to look up"
            yield wrong(message, ("derive", number, "lookup"), hint="add from: PATH")
        elif rule.lookup is not None and rule.lookup not in _tables(fleet):
            yield wrong(
                f"there is no table '{rule.lookup}' under lookups",
                ("derive", number, "lookup"),
                hint=did_you_mean(rule.lookup, _tables(fleet))
                or f"add lookups: {{{rule.lookup}: …}}",
            )
    yield from _check_rows(fleet)


def _check_rows(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a misspelt key in a look-up table, because rules would ignore its row."""
    read: defaultdict[str, set[str]] = defaultdict(set)
    for rule in fleet.derive:
        if rule.lookup is not None:
            read[rule.lookup].update(parts_of(rule.ask))
    for table, parts in read.items():
        for name, row in fleet.lookups.get(table, {}).items():
            lacking = parts - row.keys()
            for key in sorted(row.keys() - parts) if lacking else ():
                if near := nearest(key, sorted(lacking)):
                    message = f"no rule of derive reads {quoted(key)}, and {near} is missing"
                    path = ("lookups", table, name, key)
                    yield unwise(message, path, at="key", hint=f"did you mean '{near}'?")


def _tables(fleet: Fleet) -> tuple[str, ...]:
    """Return the names of the look-up tables in the file and of the queues' own table."""
    has_own = any(isinstance(q, DebusineQueue | WorldQueue) for q in fleet.queues.values())
    return (*fleet.lookups, *((ENVIRONMENTS,) if has_own else ()))


def _check_history(fleet: Fleet, number: int, rule: DeriveRule) -> Iterator[Finding]:
    """Require that a rule with `history` has one value and requires a minimum of a number."""
    if rule.history is None:
        return
    if rule.from_ is not None or rule.tag is not None:
        word = "from" if rule.from_ is not None else "tag"
        message = f"`history` and `{word}` both set {{value}}"
        yield wrong(message, ("derive", number, word), hint="keep one of them")
    name = number_of(rule.ask)
    if name is None:
        message = "a rule with `history` must ask for a minimum of a number"
        hint = f"write ask: '{rule.history.of}_gib>={{value}}'"
        yield wrong(message, ("derive", number, "ask"), hint=hint)
    elif name not in Vocabulary(fleet).numeric:
        yield _no_minimum(name, Vocabulary(fleet).numeric, ("derive", number, "ask"))


def _check_value(number: int, rule: DeriveRule) -> Iterator[Finding]:
    path = ("derive", number, "ask")
    if rule.tag is not None and rule.from_ is not None:
        message = "`from` and `tag` both set {value}"
        yield wrong(message, ("derive", number, "tag"), hint="keep one of them")
    for part in placeholders(rule.ask):
        if not is_placeholder(part):
            message = f"unknown placeholder '{part}'"
            yield wrong(message, path, hint="write {value}, or {value.KEY} for a part")
        elif rule.from_ is None and rule.tag is None and rule.history is None:
            message = f"'{part}' has no value: the rule has no `from`, `tag` or `history`"
            yield wrong(message, path, hint="add from: PATH, a path in the task data")


_RANGE = "use a number from 0 to below 10^12 with at most six decimal places"


def wrong_number(fleet: Fleet) -> Iterator[Finding]:
    """Require that a number in a tag is valid: `name>=64` in requests, `name=128` in pools."""
    numeric = Vocabulary(fleet).numeric
    for mention in mentions(fleet):
        name = tag_name(mention.tag)
        if name in numeric:
            yield from _check_number(mention, name)
    for name in numeric:
        if name.endswith("*"):
            message = "a numeric tag cannot have a `*` in its name"
            hint = "declare each numeric tag by its full name"
            yield wrong(message, ("tags", name, "kind"), hint=hint)


def _check_number(mention: Mention, name: str) -> Iterator[Finding]:
    asks = mention.role == "asked"
    read = read_minimums if asks else read_numbers
    if read([mention.tag], [name])[1]:
        return
    form = f"{name}>=64" if asks else f"{name}=128"
    sign = ">=" if asks else "="
    rest = mention.tag.removeprefix(name)
    if rest.startswith(sign) and not rest.startswith(f"{sign}="):
        yield wrong(f"{mention.tag} is out of range", mention.path, hint=_RANGE)
    else:
        word = "minimum" if asks else "number"
        message = f"{mention.tag} is not a valid {word} of {name}"
        yield wrong(message, mention.path, hint=f"write it like {form}")


def protection_by_workspace_tag(fleet: Fleet) -> Iterator[Finding]:
    """Warn if each tag in `requires` can be set on requests by the owner of a workspace."""
    servers = {name for name, queue in fleet.queues.items() if isinstance(queue, DebusineQueue)}
    for name, pool in fleet.dynamic_pools.items():
        if not servers & set(pool.serves or servers):
            continue
        if all(map(is_workspace_tag, pool.requires)):
            for number, tag in enumerate(pool.requires):
                yield unwise(
                    f"any owner of a Debusine workspace can make requests provide '{tag}', so it "
                    "protects nothing",
                    ("pools", name, "requires", number),
                    hint=f"also require a tag that begins with {', '.join(SYSTEM_ONLY)}",
                )


def enforced_by_capacity_alone(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a permission, exclusivity or limit that the queue does not enforce itself."""
    for each in enforcement_of(fleet):
        if each.claim != "tag" and each.by == "capacity":
            yield unwise(
                f"queue '{each.queue}' does not enforce '{each.claim}' of '{each.tag}': "
                f"{each.because}",
                each.path,
                at="key",
                hint="it limits cost, not who gets machines; see `fleet tags list`"
                if each.claim == "limits"
                else "add to its pools `requires` with a tag of these requests and one that only "
                "Debusine sets, for example [task:fleet:NAME, task:scope:SCOPE]",
            )
