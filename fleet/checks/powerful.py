"""Checks of the allow-list of builds that get powerful machines (`powerful`)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import takewhile

from fleet.schema.findings import Finding, Path, as_written, nearest, quoted, unwise, wrong
from fleet.schema.model import CoprQueue, DebusineQueue, Fleet, PowerfulRule, TicketQueue
from fleet.tagrules import allow
from fleet.tagrules.names import PARTS, RecordedNames, without_directory

_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?", re.DOTALL)
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_REFERENCE = re.compile(r"\\[1-9]|\(\?P=")
_IN_CLASS = "invalid character class range"
_WORDS = {
    "missing )": ("this group is not closed", r"close it, or write \( for the character"),
    "missing ]": ("this class is not closed", r"close it, or write \[ for the character"),
    "unexpected )": ("this closes no group", r"remove it, or write \) for the character"),
    "trailing \\": ("nothing follows this backslash", r"write \\ for the character"),
    "no argument for repetition operator": (
        "there is nothing before this to repeat",
        "patterns are not shell globs: .* matches anything",
    ),
    "bad repetition operator": ("this repeats a repetition", "keep one of them"),
    "invalid repetition size": (
        "this repeats too often",
        "use at most 1000 repetitions, nested ones multiplied",
    ),
    "invalid escape sequence": (
        "this escape has no meaning",
        "remove the backslash: only punctuation needs one",
    ),
    "invalid perl operator": ("RE2 has no such group", "use (?:…), (?i) or (?P<name>…)"),
    "invalid named capture group": ("invalid group name", "write (…) without a name"),
    _IN_CLASS: ("invalid character range", "write the lower character first, as in a-z"),
    "pattern too large - compile failed": (
        "it takes too much memory",
        "shorten it, or use smaller repetitions",
    ),
}


def invalid_pattern(fleet: Fleet) -> Iterator[Finding]:
    """Require that each pattern is valid in RE2."""
    for pattern, path in _patterns(fleet):
        try:
            allow.compile_pattern(pattern)
        except allow.BadPattern as bad:
            # RE2's own error about a named back-reference is unclear.
            named = "(?P=" in _without_classes(pattern, "")
            error = allow.BadPattern("invalid perl operator", "(?P=") if named else bad
            message, hint = _explain(error)
            yield wrong(message, path, hint=hint, part=_part(pattern, error))


def _patterns(fleet: Fleet) -> Iterator[tuple[str, Path]]:
    """Yield each pattern in the allow-list and in `durations`, with its path."""
    for number, rule in enumerate(fleet.powerful):
        yield rule.match, ("powerful", number, "match")
    for task, stated in fleet.durations.items():
        for number, each in enumerate(stated if isinstance(stated, list) else ()):
            if each.match is not None:
                yield each.match, ("durations", task, number, "match")


def _explain(error: allow.BadPattern) -> tuple[str, str]:
    if _LOOK_AROUND.match(error.part):
        return (
            f"{as_written(error.part)} is a look-around, which RE2 does not support",
            "match what is allowed; list names that must not match under `rejects`",
        )
    if _REFERENCE.match(error.part):
        return (
            f"{as_written(error.part)} is a back-reference, which RE2 does not support",
            "repeat the text instead",
        )
    message, hint = _WORDS.get(error.reason, (error.reason, "see docs/reference/allow-list.md"))
    return f"not an RE2 pattern: {message}", hint


def _part(pattern: str, error: allow.BadPattern) -> tuple[int, int] | None:
    """Return start and end of the wrong part of a pattern; None if RE2's error has no part."""
    match error.reason:
        case "missing )":
            return _find_unpaired(pattern, "(")
        case "unexpected )":
            return _find_unpaired(pattern, ")")
        case "missing ]":
            return _character_range(len(pattern) - len(error.part), 1)
        case "trailing \\":
            return _character_range(len(pattern) - 1, 1)
    plain = pattern if error.reason == _IN_CLASS else _without_classes(pattern, error.part)
    start = plain.find(error.part) if error.part else -1
    return None if start < 0 else _character_range(start, len(error.part))


def _character_range(start: int, length: int) -> tuple[int, int]:
    return start, start + length


def _find_unpaired(pattern: str, bracket: str) -> tuple[int, int] | None:
    """Return the position of the first `)` without `(`, or else of the last `(` without `)`."""
    opened: list[int] = []
    for place, character in enumerate(_without_classes(pattern, "")):
        if character == "(":
            opened.append(place)
        elif character == ")" and opened:
            opened.pop()
        elif character == ")":
            return _character_range(place, 1)
    return _character_range(opened[-1], 1) if opened and bracket == "(" else None


def _without_classes(pattern: str, sought: str) -> str:
    """Replace character classes and escaped characters in a pattern by spaces."""

    def blank(found: re.Match[str]) -> str:
        kept = bool(sought) and found[0].startswith("\\") and sought.startswith(found[0])
        return found[0] if kept else " " * len(found[0])

    return _CLASS.sub(blank, pattern)


def pattern_covered(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a rule whose builds get the same tags, at least as long, from another rule."""
    if not fleet.powerful:
        return  # without patterns, do not load RE2
    covering = dict(_covering(fleet))
    for number, others in covering.items():
        wider = next(
            (n for n in sorted(others) if _adds_nothing(fleet, number, n, covering)), None
        )
        if wider is not None:
            covers = fleet.powerful[wider]
            contact = f" ({covers.contact})" if covers.contact else ""
            yield unwise(
                f"rule {as_written(covers.match)}{contact} matches all of this and asks for the "
                "same tags",
                ("powerful", number, "match"),
                hint="remove this rule, or narrow the other",
            )


def _adds_nothing(fleet: Fleet, number: int, other: int, covering: Mapping[int, set[int]]) -> bool:
    rule, wider = fleet.powerful[number], fleet.powerful[other]
    if not _does_more(wider, rule):
        return False
    # If two rules are equal, only the second is reported.
    return other < number or not (number in covering[other] and _does_more(rule, wider))


def _does_more(wider: PowerfulRule, rule: PowerfulRule) -> bool:
    lasts = wider.expires is None or (rule.expires is not None and wider.expires >= rule.expires)
    is_for_all = wider.task in (None, rule.task)
    return lasts and is_for_all and set(rule.ask) <= set(wider.ask) and wider.dirs >= rule.dirs


def _covering(fleet: Fleet) -> Iterator[tuple[int, set[int]]]:
    """Yield each rule's index, and the rules that certainly match all names of this rule."""
    valid = {
        number: rule.match for number, rule in enumerate(fleet.powerful) if allow.is_valid(rule)
    }
    read = {number: allow.read_pattern(text) for number, text in valid.items()}
    simple = {
        n: text for n, pieces in read.items() if (text := allow.simplified(pieces)) is not None
    }
    in_plain, in_whole = [*simple], [*valid]
    plain, whole = allow.PatternSet([*simple.values()]), allow.PatternSet([*valid.values()])
    for number, pieces in read.items():
        found = {other for other, text in valid.items() if text == valid[number]}
        if pieces is not None and allow.is_word(pieces):
            found |= {in_whole[place] for place in whole.takers(allow.word_of(pieces))}
        elif samples := allow.samples_of(pieces):
            takers = [set(plain.takers(sample)) for sample in samples]
            found |= {in_plain[place] for place in set.intersection(*takers)}
        yield number, found - {number}


_STAR = re.compile(r"[\w/-]\*")
_BRACES = re.compile(r"[/-]\{([0-9]+),([0-9]+)\}")
_NOT_CLASS = re.compile(r"\[!.+\]")


def pattern_like_a_glob(fleet: Fleet) -> Iterator[Finding]:
    """Warn about `texlive*`, `fedora-{41,42}` and `[!a]`, which RE2 reads differently."""
    for number, rule in enumerate(fleet.powerful):
        for piece, meaning, instead in _globs(rule):
            better = rule.match[: piece.start] + instead + rule.match[piece.end :]
            yield unwise(
                f"{as_written(rule.match[piece.start : piece.end])} matches {meaning}: patterns "
                "are RE2, not shell globs",
                ("powerful", number, "match"),
                hint=f"did you mean '{better}'?",
                part=(piece.start, piece.end),
            )


def _globs(rule: PowerfulRule) -> Iterator[tuple[allow.Piece, str, str]]:
    for piece in (allow.is_valid(rule) and allow.read_pattern(rule.match)) or ():
        if piece.kind != "other":
            continue
        first = piece.text[0]
        if _STAR.fullmatch(piece.text):
            yield piece, f"any number of {quoted(first)}", f"{first}.*"
        elif braces := _BRACES.fullmatch(piece.text):
            meaning = f"{braces[1]} to {braces[2]} times {quoted(first)}"
            yield piece, meaning, f"{first}({braces[1]}|{braces[2]})"
        elif _NOT_CLASS.fullmatch(piece.text):
            yield piece, "'!' or one of the characters after it", f"[^{piece.text[2:]}"


def pattern_with_white_space(fleet: Fleet) -> Iterator[Finding]:
    """Warn about white space in a pattern, for example after `match: |`: no name has any."""
    for pattern, path in _patterns(fleet):
        if any(piece.isspace() for piece in allow.pieces(pattern)):
            written = "a line break" if "\n" in pattern else "white space"
            yield unwise(
                f"{as_written(pattern)} has {written}, and no name has any",
                path,
                hint=f"write it in quotes on one line: '{''.join(pattern.split())}'",
            )


_MIN_MATCH_LIMIT = 10
_SHOWN = 3


def pattern_matches_much(fleet: Fleet, recorded: RecordedNames, today: date) -> Iterator[Finding]:
    """Warn about a rule that matches more names than `at_most`, or than half by default."""
    if not fleet.powerful:
        return
    total = len(recorded.names)
    for number, names in allow.AllowList(fleet, today).count_names(recorded.tasks).items():
        rule = fleet.powerful[number]
        most = max(_MIN_MATCH_LIMIT, total // 2) if rule.at_most is None else rule.at_most
        if len(names) > most:
            limit = "more than half" if rule.at_most is None else f"at_most is {most}"
            yield unwise(
                f"this matches {len(names)} of {total} recorded names ({limit}): {_join(names)}",
                ("powerful", number, "match"),
                hint="narrow it" if rule.at_most is None else "narrow it, or raise at_most",
            )


def _join(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(quoted, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


_COMPARED = 200
"""Maximum names in which a similar name is searched."""


def pattern_matches_nothing(
    fleet: Fleet, recorded: RecordedNames, today: date
) -> Iterator[Finding]:
    """Warn about an active rule that matches no recorded name of a complete recording."""
    if not fleet.powerful or not recorded.names or not recorded.complete:
        return
    found = allow.AllowList(fleet, today).count_names(recorded.tasks)
    for number, names in found.items():
        if not names:
            yield unwise(
                f"this matches none of {len(recorded.names)} recorded names",
                ("powerful", number, "match"),
                hint=_hint(fleet.powerful[number], recorded),
            )


def _hint(rule: PowerfulRule, recorded: RecordedNames) -> str:
    pattern, names = allow.compile_pattern(rule.match), recorded.names
    other = next((name for name in names if allow.matches_name(rule, name)), "")
    if other:
        return f"{quoted(other)} waits only as task {', '.join(sorted(recorded.tasks[other]))}"
    if not rule.dirs:
        inside = next((n for n in names if ":" in n and pattern.takes(without_directory(n))), "")
        if inside:
            return f"with `dirs: true` it would match {quoted(inside)}"
    package = rule.match.rpartition("/")[2]
    alike = [name for name in names if name.rpartition("/")[2].startswith(package)]
    beginning = next((name for name in alike if pattern.takes_beginning(name)), "")
    if beginning:
        return f"it matches only the start of {quoted(beginning)}; patterns match whole names"
    close = nearest(rule.match, [*alike, *names][:_COMPARED])
    if close:
        return f"the nearest name is {quoted(close)}"
    ends = f"; it expires on {rule.expires}" if rule.expires else ""
    return (
        f"ask {rule.contact} whether it is still needed{ends}"
        if rule.contact
        else f"remove it if it is no longer needed{ends}"
    )


def pattern_misses_dirs(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a Copr rule without `dirs` that cannot match names like owner/project:pr:7/…."""
    for number, rule in enumerate(fleet.powerful):
        if "dirs" not in rule.model_fields_set:
            project = _project_without_dirs(fleet, rule)
            if project:
                yield unwise(
                    f"this matches no pull-request directory of {project}, such as {project}:pr:7",
                    ("powerful", number, "match"),
                    hint="add `dirs: true` to include them, or `dirs: false` to leave them out",
                )


def _project_without_dirs(fleet: Fleet, rule: PowerfulRule) -> str:
    """Return OWNER/PROJECT if a pattern for Copr contains both literally; else empty."""
    parts = allow.segments((allow.is_valid(rule) and allow.read_pattern(rule.match)) or ())
    if len(parts) < 3 or not (allow.is_word(parts[0]) and allow.is_word(parts[1])):  # noqa: PLR2004 - owner, project, rest
        return ""
    owner, project = allow.word_of(parts[0]), allow.word_of(parts[1])
    return f"{owner}/{project}" if ":" not in project and _is_copr(fleet, owner) else ""


def _is_copr(fleet: Fleet, owner: str) -> bool:
    queues = [*fleet.queues.values()]
    scopes = {scope for q in queues if isinstance(q, DebusineQueue) for scope in q.scopes}
    served = any(isinstance(queue, CoprQueue | TicketQueue) for queue in queues)
    return owner.startswith("@") or (served and owner not in scopes)


_BUILD = "[^/]+/[^/]+/[^/]+"
"""Pattern that matches any project, chroot and package."""


def pattern_too_wide(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a pattern that matches all builds of an owner or scope, or of all owners."""
    for number, rule in enumerate(fleet.powerful):
        pieces = allow.read_pattern(rule.match) if allow.is_valid(rule) else None
        builds = _describe_builds(rule.match, pieces) if pieces else ""
        if builds:
            ask = f"; ask {rule.contact} which" if rule.contact else ""
            yield unwise(
                f"this gives {', '.join(rule.ask)} to {builds}",
                ("powerful", number, "match"),
                hint=f"name the project and package that need it{ask}",
            )


def _describe_builds(pattern: str, pieces: Sequence[allow.Piece]) -> str:
    build = allow.read_pattern(_BUILD) or ()
    slash = allow.read_pattern("/") or ()
    anybody = allow.read_pattern("[^/]+") or ()
    if allow.takes_all_of(pieces, (*anybody, *slash, *build)):
        return "every build of every owner"
    owner = [*takewhile(lambda piece: piece.text != "/", pieces)]
    words = [*takewhile(lambda piece: piece.kind == "word", owner)]
    if allow.takes_all_of(pieces[len(owner) + 1 :], build):
        return f"every build of {as_written(pattern[: owner[-1].end])}" if owner else ""
    if words and allow.takes_all_of(pieces, (*words, *slash, *build)):
        return f"every build of every owner whose name begins with {quoted(allow.word_of(words))}"
    if owner and not words and all(piece.kind in ("any", "part") for piece in owner):
        return "builds of every owner: anyone can choose this package name"
    return ""


def powerful_case_fails(fleet: Fleet) -> Iterator[Finding]:
    """Require that a rule matches all names in `matches`, and no name in `rejects`."""
    for number, rule in enumerate(fleet.powerful):
        if allow.is_valid(rule):
            yield from _cases(("powerful", number), rule)


def _cases(path: Path, rule: PowerfulRule) -> Iterator[Finding]:
    for number, name in enumerate(rule.matches):
        if not allow.matches_name(rule, name):
            message = f"{as_written(rule.match)} must match this name, but does not"
            yield wrong(message, (*path, "matches", number), hint=_hint_to_match(rule, name))
    for number, name in enumerate(rule.rejects):
        if allow.matches_name(rule, name):
            message = f"{as_written(rule.match)} must not match this name, but does"
            yield wrong(
                message,
                (*path, "rejects", number),
                hint="narrow the pattern, or correct the case" + _ask_contact(rule),
            )


def _hint_to_match(rule: PowerfulRule, name: str) -> str:
    pattern = allow.compile_pattern(rule.match)
    if not rule.dirs and pattern.takes(without_directory(name)):
        return "the name is in a directory of the project: add `dirs: true`"
    if name.count("/") != PARTS - 1:
        return "write four parts: owner/project/chroot/package"
    beginning = pattern.takes_beginning(name)
    if beginning:
        return f"it matches only the start, {quoted(beginning)}; patterns match whole names"
    return "correct the pattern or the case" + _ask_contact(rule)


def _ask_contact(rule: PowerfulRule) -> str:
    return f"; ask {rule.contact}" if rule.contact else ""
