"""Render explanations: the headline, facts, reasons and suggestions; and possible gains."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from fleet.explain.builds import UNUSED_AFTER, Gain, Gains, UnusedRule
from fleet.explain.request import OutcomeGroup
from fleet.explain.tags import (
    WORDS,
    ExplainedTag,
    ListedTag,
    TagList,
    TagsExplanation,
)
from fleet.explain.values import (
    EachRequest,
    ExplainedReason,
    Explanation,
    KeyChange,
    Matches,
    Suggestion,
)
from fleet.model.doctor import Diagnosis, QueueWait, Result
from fleet.model.facts import PlaceFacts
from fleet.report.document import (
    MAX_ROWS,
    Block,
    Items,
    Line,
    Section,
    Style,
    StyledText,
    Table,
    TableOf,
    bold,
    line,
)
from fleet.schema.findings import listed, some_of, yaml_key
from fleet.schema.units import write_duration
from fleet.words import figures as words
from fleet.words.answers import count_matches
from fleet.words.waiting import UNLESS

_CHANGEABLE = ("request", "pool", "worker")
_MAX_MATCHES = 8
_MAX_FACTS = 3
"""Maximum facts to show per match if a name has several matches."""


def explanation_blocks(explanation: Explanation) -> Iterator[Block]:
    """Yield the headline, the facts, the reasons and the suggestions of an explanation."""
    yield bold(explanation.headline)
    if explanation.plain:
        yield line("  ", " ".join(explanation.plain))
    yield Items(explanation.facts, StyledText("  - "))
    yield Section(title_places(explanation), [*_places(explanation)])
    yield Section("because:", [*_reasons(explanation)])
    steps = (text for each in explanation.suggestions for text in _suggestion(each))
    heading = "what would change it:" if explanation.kind in _CHANGEABLE else "more:"
    yield Section(heading, [*steps, Items(explanation.next_steps, StyledText("- "))])
    whom = [f"{each.name}: {each.about}" for each in explanation.contacts]
    yield Section("contact:", [Items(whom, StyledText("- "))])


def matches_blocks(found: Matches) -> Iterator[Block]:
    """Yield the explanation of the only match of a name, or a short explanation of each match."""
    if len(found.matches) == 1:
        yield from explanation_blocks(found.matches[0])
        return
    yield bold(count_matches(found.name, len(found.matches)))
    for each in found.matches[:_MAX_MATCHES]:
        yield Section("", [*_match(each)])
    if others := len(found.matches[_MAX_MATCHES:]):
        yield Section("", [line(f"… and {others:,} more: `fleet explain request --all`")])


def _match(each: Explanation) -> Iterator[Line]:
    """Yield a short explanation: headline, expected start or facts, first suggestion, command."""
    yield bold(each.headline)
    if each.kind == "request":
        yield _describe_start([each])
    else:
        yield from (line("  - ", fact) for fact in each.facts[:_MAX_FACTS])
    for suggestion in each.suggestions[:1]:
        yield line("  - ", suggestion.sentence)
    name = f"'{each.name}'" if "[" in each.name else each.name
    yield line(StyledText(f"  all of it: `fleet explain {each.kind} {name}`", Style.DIM))


def _draw_first(items: Sequence[Iterable[Line]]) -> Iterator[Line]:
    """Yield the lines of the first items, then a line with the number of hidden items."""
    yield from chain.from_iterable(items[:MAX_ROWS])
    if others := len(items[MAX_ROWS:]):
        yield line(f"  … and {others:,} more")


def _places(explanation: Explanation) -> Iterator[Line]:
    places = (place_in_words(each, explanation.currency) for each in explanation.places)
    yield from (
        line("  - ", text) for text in chain(places, words.rules_to_allow(explanation.places))
    )


def title_places(explanation: Explanation) -> str:
    """Return the heading of the places, which states whether a request waits for a machine."""
    if explanation.path:
        return "time and money, if it got a new machine now:"
    return "time and money, on a machine created now:"


def place_in_words(each: PlaceFacts, currency: str) -> str:
    """Return the start, end and cost of a build on a new machine of a pool, as text."""
    where = f"{'here, ' * each.is_chosen}new {words.place(each)}: "
    if each.seconds is None or each.end is None:
        said = f"from {words.time(each.start)}; duration {words.UNKNOWN}"
    else:
        takes = words.join(", ", write_duration(each.seconds), each.source)
        cost = f"about {words.bill(each.cost)} {currency}"
        cost = "price unknown" if each.cost is None else cost
        said = f"{words.time(each.start)} to {words.time(each.end)} ({takes}), {cost}"
    return words.join(", ", where + said, words.place_note(each))


def _reasons(explanation: Explanation) -> Iterator[Line]:
    reasons = explanation.reasons
    yield from _draw_first([_reason(each, never=explanation.never) for each in reasons])


def _reason(reason: ExplainedReason, *, never: bool) -> Iterator[Line]:
    place, by = place_of(reason), WORDS[reason.by] if reason.by else ""
    who = f"can change it: {reason.who}" if never and reason.who else ""
    yield line("  - ", reason.because)
    for note in filter(None, (words.join("; ", place and f"see {place}", by), who)):
        yield line(StyledText(f"    {note}", Style.DIM))


def _suggestion(suggestion: Suggestion) -> Iterator[Line]:
    yield line("  - ", suggestion.sentence)
    for change in suggestion.changes:
        if change.yaml:
            yield line("      ", change.yaml)
        if change.place:
            yield line(StyledText(f"    {where_to_write(change)}", Style.DIM))


def where_to_write(change: KeyChange) -> str:
    """Return the place for an edit as text, with the key to merge into if the key exists."""
    key = change.path[0]
    is_there = not change.place.startswith(yaml_key(change.path))
    merges = is_there and change.yaml.startswith(f"{key}:")
    return f"{f'merge into `{key}`, ' if merges else ''}see {change.place}"


def place_of(reason: ExplainedReason) -> str:
    """Return the position of a reason in fleet.yaml; empty if the reason has no key."""
    if reason.place:
        return reason.place
    return f"{yaml_key(reason.path)} in fleet.yaml" if reason.path else ""


def every_blocks(every: EachRequest, groups: Iterable[OutcomeGroup]) -> Iterator[Block]:
    """Yield all waiting requests, one block per group of requests with the same outcome."""
    verb = "waits" if len(every.requests) == 1 else "wait"
    yield bold(f"{words.many(len(every.requests), 'request')} of fleet {every.fleet} {verb}")
    requests = iter(every.requests)
    for group in groups:
        yield Section("", [*_group(group, [*islice(requests, len(group.keys))])])


def _group(group: OutcomeGroup, requests: Sequence[Explanation]) -> Iterator[Line]:
    signature, first, count = group.signature, requests[0], words.many(len(requests), "request")
    asked = listed(signature.required) or "no tags"
    yield bold(f"{count} at {signature.queue}, priority {signature.priority}, for {asked}")
    yield line("  ", f"{group.verdict}: {some_of(group.keys)}")
    yield _describe_start(requests)
    if first.never:
        yield from _reasons(first)
    if any(each.seconds is not None for each in first.places):
        whose = f"{first.name}, " if len(requests) > 1 else ""
        yield line("  ", f"{whose}{title_places(first)}")
        yield from _places(first)
    for suggestion in first.suggestions:
        yield from _suggestion(suggestion)
    yield from (line("  - ", step) for step in first.next_steps)


def _describe_start(answers: Sequence[Explanation]) -> Line:
    """Return the expected starts of requests with the same outcome."""
    starts = zip(*((each.expected, each.assumed) for each in answers), strict=True)
    said = UNLESS if answers[0].never else words.starts(*starts)
    return line("  ", f"expected start: {said}")


_TAG_VERDICTS = {
    "counts": ("+", "", Style.PLAIN),
    "refused": ("-", " (denied)", Style.YELLOW),
    "not-stored": ("~", " (not stored by the queue)", Style.YELLOW),
}
"""Mark, note and style of a tag."""


def tags_blocks(explanation: TagsExplanation) -> Iterator[Block]:
    """Yield each tag, then each pool, with the reasons and their lines in fleet.yaml."""
    yield bold(explanation.headline)
    yield from _draw_first([*map(_tag, explanation.tags)])
    for rule in explanation.other_tasks:
        yield from _cite("  ", rule, "  ")
    yield Section("pools:", [text for e in explanation.pools for text in _cite("  - ", e, "    ")])


def _tag(tag: ExplainedTag) -> Iterator[Line]:
    sign, note, style = _TAG_VERDICTS[tag.verdict]
    yield line("  ", StyledText(f"{sign} {tag.tag}{note}", style))
    yield from (text for each in tag.reasons for text in _cite("      ", each, "      "))


def _cite(mark: str, reason: ExplainedReason, indent: str) -> Iterator[Line]:
    """Yield a reason, then the position of its key."""
    yield line(mark, reason.because)
    if where := place_of(reason):
        yield line(StyledText(f"{indent}see {where}", Style.DIM))


def tag_list_to_lines(listed: TagList) -> Iterator[Line]:
    """Yield each tag and its rules: what enforces each rule at each queue, and the rule's line."""
    if not listed.tags:
        yield line(f"Fleet {listed.fleet}: no tags in `tags`, `powerful` or `provides` of pools")
    for tag in listed.tags:
        yield line(StyledText(tag.tag, Style.BOLD), f"  {_describe_tag(tag)}")
        for each in tag.enforcement:
            style = Style.PLAIN if each.by == "scheduler" else Style.YELLOW
            yield line(
                f"  {each.claim} at {each.queue}: ",
                StyledText(WORDS[each.by], style),
                " (",
                each.because,
                ")",
            )
            if each.place and each.claim != "tag":
                yield line(StyledText(f"      see {each.place}", Style.DIM))


def _describe_tag(tag: ListedTag) -> str:
    pools = ", ".join(tag.pools)
    return words.join(
        ", ",
        tag.kind if tag.kind != "plain" else "",
        "on demand" * tag.on_demand,
        "exclusive" * tag.exclusive,
        *(f"at most {count} {per}" for per, count in sorted(tag.limits.items())),
        f"provided by {pools}" if pools else "no pool provides it",
    )


_KINDS: tuple[tuple[Result, str, str, str, Style], ...] = (
    ("wrong", "wrong", "Wrong", "x", Style.RED),
    ("notice", "to note", "To note", "!", Style.YELLOW),
    ("unchecked", "not checked", "Not checked", "?", Style.DIM),
    ("ok", "fine", "Works", "+", Style.GREEN),
)


def diagnosis_blocks(diagnosis: Diagnosis) -> Iterator[Block]:
    """Yield the findings by result, each with a fix, then the waits per queue and next steps."""
    counts = Counter(finding.result for finding in diagnosis.findings)
    summary = ", ".join(f"{counts[kind]} {word}" for kind, word, *_ in _KINDS)
    yield bold(f"Fleet {diagnosis.fleet}: {summary}")
    for kind, _, heading, sign, style in _KINDS:
        found = [finding for finding in diagnosis.findings if finding.result == kind]
        if found:
            yield bold(heading)
        for finding in found:
            yield line("  ", StyledText(f"{sign} ", style), f"{finding.about}: {finding.said}")
            if finding.fix:
                yield line("      fix: ", StyledText(finding.fix, Style.CYAN))
    yield Section("", [_waits(diagnosis.waits)])
    steps: list[Line] = []
    for number, step in enumerate(diagnosis.next_steps, 1):
        steps.append(line(f"  {number}. ", StyledText(step.do, Style.CYAN)))
        if step.about:
            others = f" and {len(step.about) - 1} more" if step.about[1:] else ""
            steps.append(line(StyledText(f"       for {step.about[0]}{others}", Style.DIM)))
    yield Section("Next", steps)


def _waits(waits: Sequence[QueueWait]) -> Table:
    def write(count: int | None) -> str:
        return "-" if count is None else f"{count:,}"

    def figure(name: str) -> Callable[[QueueWait], str]:
        return lambda each: write(getattr(each.machinery, name, None))

    return (
        TableOf(waits)
        .name("QUEUE", lambda each: each.queue)
        .text("ARCHITECTURE", lambda each: each.architecture)
        .figure("WAITING", lambda each: write(each.waiting))
        .figure("LONGEST", lambda each: _duration(each.oldest_seconds))
        .figure("MEDIAN", lambda each: _duration(each.median_seconds), 3)
        .figure("RUNNING", figure("running"))
        .figure("WORKERS", figure("registered"), 1)
        .figure("CONNECTED", figure("connected"), 2)
        .figure("BUSY", figure("busy"))
    )


def _duration(seconds: int | None) -> str:
    return "-" if seconds is None else write_duration(seconds)


def gains_blocks(found: Gains) -> Iterator[Block]:
    """Yield the packages with figures and proposed rules, then the unused rules."""
    seconds = int((found.until - found.since).total_seconds())
    span = write_duration(seconds) if seconds else "one moment"
    days = write_duration(int(UNUSED_AFTER.total_seconds()))
    yield line(
        *bold(f"Fleet {found.fleet}: {found.builds:,} named builds in {span}"),
        f" ({words.many(found.moments, 'moment')}), {found.allowed:,} of them allowed by rules",
    )
    if found.unread:
        yield line(f"  a queue was unread in {words.many(found.unread, 'moment')}")
    if found.not_known:
        builds = words.many(found.not_known, "build")
        yield line(f"  {builds} not compared: duration or cost unknown")
    title = f"Packages that would gain most time per {found.currency} on a powerful machine"
    yield Section(title, [*_packages(found)] if found.packages else [line("  none")])
    title = f"Rules that no build used in {days if found.is_long_enough else span}"
    short = f"  only {span} recorded: a rule counts as unused after {days}"
    rules = [text for rule in found.unused for text in _rule(rule)] or [line("  none")]
    yield Section(title, [*([] if found.is_long_enough else [line(short)]), *rules])


def _packages(found: Gains) -> Iterator[Block]:
    def hours(gain: Gain) -> str:
        rate = gain.gain_per_money
        return "costs no more" if rate is None else f"{rate / 3600:,.1f}"

    yield (
        TableOf(found.packages)
        .name("package", lambda each: each.name + (f" ({each.task})" if each.task else ""))
        .figure("a month", lambda e: words.UNKNOWN if e.month is None else f"{e.month:,.1f}")
        .figure("here", lambda each: write_duration(each.seconds_here))
        .figure("there", lambda each: write_duration(each.seconds_there))
        .figure("cost here", lambda each: f"{each.cost_here:,.2f}")
        .figure("there", lambda each: f"{each.cost_there:,.2f}")
        .figure(f"h/{found.currency}", hours)
    )
    for gain in found.packages:
        yield line(f"  {gain.name}, on {gain.type} of {gain.pool}:")
        yield line(f"    powerful: [{gain.rule}]")
    if found.more:
        yield line(f"  … and {words.many(found.more, 'more package')}, all with less gain")


def _rule(rule: UnusedRule) -> Iterator[Line]:
    task = rule.task and f"task {rule.task}"
    whom = rule.contact and f"ask {rule.contact} whether it is still needed"
    yield line("  - ", words.join(", ", rule.match, task, whom))
    if rule.place:
        yield line(StyledText(f"    see {rule.place}", Style.DIM))
