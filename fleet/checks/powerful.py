"""What is wrong or unwise in the allow-list, `powerful`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import takewhile
from typing import TYPE_CHECKING

from fleet.schema.findings import Finding, Path, as_written, nearest, quoted
from fleet.schema.model import CoprQueue, DebusineQueue, Fleet, PowerfulRule, TicketQueue

if TYPE_CHECKING:
    from fleet.tagrules.allow import BadPattern
    from fleet.tagrules.names import Recorded
    from fleet.tagrules.patterns import Piece


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
        "a pattern is no shell glob: .* stands for anything",
    ),
    "bad repetition operator": ("this repeats a repeat", "keep one of them; RE2 never backtracks"),
    "invalid repetition size": (
        "this repeats too often",
        "at most 1000 times, nested repeats multiplied",
    ),
    "invalid escape sequence": (
        "this backslash means nothing",
        "leave it out: only punctuation needs one",
    ),
    "invalid perl operator": ("RE2 has no such group", "use (?:…), (?i) or (?P<name>…)"),
    "invalid named capture group": ("this name of a group is wrong", "write (…) without a name"),
    _IN_CLASS: ("this is no range of characters", "write the lower character first, as in a-z"),
    "pattern too large - compile failed": (
        "it takes too much memory",
        "write it shorter, with smaller repeats",
    ),
}


def invalid_pattern(fleet: Fleet) -> Iterator[Finding]:
    """Require that every pattern is one that RE2 takes."""
    patterns = list(_patterns(fleet))
    if not patterns:
        return
    from fleet.tagrules.allow import BadPattern, compile_pattern

    for pattern, path in patterns:
        try:
            compile_pattern(pattern)
        except BadPattern as bad:
            error = _named_reference(pattern) or bad
            message, hint = _explained(error)
            yield Finding("invalid-pattern", message, path, hint=hint, part=_part(pattern, error))


def _patterns(fleet: Fleet) -> Iterator[tuple[str, Path]]:
    """Yield every pattern of the allow-list and of `durations`, and where it stands."""
    for number, rule in enumerate(fleet.powerful):
        yield rule.match, ("powerful", number, "match")
    for task, stated in fleet.durations.items():
        for number, each in enumerate(stated if isinstance(stated, list) else ()):
            if each.match is not None:
                yield each.match, ("durations", task, number, "match")


def _explained(error: "BadPattern") -> tuple[str, str]:
    if _LOOK_AROUND.match(error.part):
        return (
            f"{as_written(error.part)} looks around, which RE2 cannot",
            "write what the name may be; keep what it may not be as a case under rejects",
        )
    if _REFERENCE.match(error.part):
        return (
            f"{as_written(error.part)} refers back to a group, which RE2 cannot",
            "write the text out a second time",
        )
    message, hint = _WORDS.get(error.reason, (error.reason, "see docs/reference/allow-list.md"))
    return f"not an RE2 pattern: {message}", hint


def _named_reference(pattern: str) -> "BadPattern | None":
    """Return what RE2 says only half of: it names the beginning of any (?P that it refuses."""
    from fleet.tagrules.allow import BadPattern

    found = "(?P=" in _without_classes(pattern, "")
    return BadPattern("invalid perl operator", "(?P=") if found else None


def _part(pattern: str, error: "BadPattern") -> tuple[int, int] | None:
    """Return the characters that RE2 complains of; it names them, not where they stand."""
    match error.reason:
        case "missing )":
            return _unpaired(pattern, "(")
        case "unexpected )":
            return _unpaired(pattern, ")")
        case "missing ]":
            return _at(len(pattern) - len(error.part), 1)
        case "trailing \\":
            return _at(len(pattern) - 1, 1)
    plain = pattern if error.reason == _IN_CLASS else _without_classes(pattern, error.part)
    start = plain.find(error.part) if error.part else -1
    return None if start < 0 else _at(start, len(error.part))


def _at(start: int, length: int) -> tuple[int, int]:
    return start, start + length


def _unpaired(pattern: str, bracket: str) -> tuple[int, int] | None:
    """Return the first bracket that closes nothing, or the last one that nothing closes."""
    opened: list[int] = []
    for place, character in enumerate(_without_classes(pattern, "")):
        if character == "(":
            opened.append(place)
        elif character == ")" and opened:
            opened.pop()
        elif character == ")":
            return _at(place, 1)
    return _at(opened[-1], 1) if opened and bracket == "(" else None


def _without_classes(pattern: str, sought: str) -> str:
    """Return a pattern with classes and escaped characters blanked, place for place."""

    def blank(found: re.Match[str]) -> str:
        kept = bool(sought) and found[0].startswith("\\") and sought.startswith(found[0])
        return found[0] if kept else " " * len(found[0])

    return _CLASS.sub(blank, pattern)


def pattern_covered(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a rule whose builds get the same tags from another rule, for at least as long."""
    if len(fleet.powerful) < 2:  # noqa: PLR2004 - one rule has no other
        return
    covering = dict(_covering(fleet))
    for number, others in covering.items():
        wider = next(
            (n for n in sorted(others) if _adds_nothing(fleet, number, n, covering)), None
        )
        if wider is not None:
            yield _finding(number, fleet.powerful[wider])


def _finding(number: int, wider: PowerfulRule) -> Finding:
    whose = f" of {wider.contact}" if wider.contact else ""
    return Finding(
        "pattern-covered",
        f"the rule {as_written(wider.match)}{whose} takes all of this and asks for the same tags",
        ("powerful", number, "match"),
        severity="warning",
        hint="remove this rule, or narrow the other",
    )


def _adds_nothing(fleet: Fleet, number: int, other: int, covering: Mapping[int, set[int]]) -> bool:
    rule, wider = fleet.powerful[number], fleet.powerful[other]
    if not _does_more(wider, rule):
        return False
    # Of two rules that do the same, the first stays.
    return other < number or not (number in covering[other] and _does_more(rule, wider))


def _does_more(wider: PowerfulRule, rule: PowerfulRule) -> bool:
    lasts = wider.expires is None or (rule.expires is not None and wider.expires >= rule.expires)
    return lasts and set(rule.ask) <= set(wider.ask) and wider.dirs >= rule.dirs


def _covering(fleet: Fleet) -> Iterator[tuple[int, set[int]]]:
    """Yield each rule with those whose pattern plainly takes all that its own takes."""
    from fleet.tagrules.allow import PatternSet
    from fleet.tagrules.patterns import is_word, read_pattern, samples_of, simplified, word_of

    valid = _valid(fleet)
    read = {number: read_pattern(text) for number, text in valid.items()}
    simple = {n: text for n, pieces in read.items() if (text := simplified(pieces)) is not None}
    in_plain, in_whole = [*simple], [*valid]
    plain, whole = PatternSet([*simple.values()]), PatternSet([*valid.values()])
    for number, pieces in read.items():
        found = {other for other, text in valid.items() if text == valid[number]}
        if pieces is not None and is_word(pieces):
            found |= {in_whole[place] for place in whole.takers(word_of(pieces))}
        elif samples := samples_of(pieces):
            takers = [set(plain.takers(sample)) for sample in samples]
            found |= {in_plain[place] for place in set.intersection(*takers)}
        yield number, found - {number}


def _valid(fleet: Fleet) -> dict[int, str]:
    from fleet.tagrules.allow import is_valid

    return {number: rule.match for number, rule in enumerate(fleet.powerful) if is_valid(rule)}


_STAR = re.compile(r"[\w/-]\*")
_BRACES = re.compile(r"[/-]\{([0-9]+),([0-9]+)\}")
_NOT_CLASS = re.compile(r"\[!.+\]")


def pattern_like_a_glob(fleet: Fleet) -> Iterator[Finding]:
    """Warn of `texlive*`, `fedora-{41,42}` and `[!a]`, which mean something else here."""
    for number, rule in enumerate(fleet.powerful):
        for piece, meaning, instead in _globs(rule):
            better = rule.match[: piece.start] + instead + rule.match[piece.end :]
            yield Finding(
                "pattern-like-a-glob",
                f"{as_written(rule.match[piece.start : piece.end])} means {meaning} here: "
                "this is a pattern, no shell glob",
                ("powerful", number, "match"),
                severity="warning",
                hint=f"did you mean '{better}'?",
                part=(piece.start, piece.end),
            )


def _globs(rule: PowerfulRule) -> Iterator[tuple["Piece", str, str]]:
    from fleet.tagrules.allow import is_valid
    from fleet.tagrules.patterns import read_pattern

    for piece in (is_valid(rule) and read_pattern(rule.match)) or ():
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


_FEW = 10
_SHOWN = 3


def pattern_matches_much(fleet: Fleet, recorded: "Recorded", today: date) -> Iterator[Finding]:
    """Warn of a rule that takes more names than `at_most`, or without it more than half."""
    if not fleet.powerful:
        return
    from fleet.tagrules.allow import AllowList

    total = len(recorded.names)
    for number, names in AllowList(fleet, today).count_names(recorded.names).items():
        rule = fleet.powerful[number]
        most = max(_FEW, total // 2) if rule.at_most is None else rule.at_most
        if len(names) > most:
            meant = "more than half" if rule.at_most is None else f"at most {most} are meant"
            yield Finding(
                "pattern-matches-much",
                f"{len(names)} of the {total} names in the recorded queue match, {meant}: "
                f"{_listed(names)}",
                ("powerful", number, "match"),
                severity="warning",
                hint="narrow it" if rule.at_most is None else "narrow it, or raise at_most",
            )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(quoted, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


_COMPARED = 200
"""So many names are looked at for one that was meant."""


def pattern_matches_nothing(fleet: Fleet, recorded: "Recorded", today: date) -> Iterator[Finding]:
    """Warn of a rule that acts today and takes no name of a queue that was read in full."""
    if not fleet.powerful or not recorded.names or not recorded.complete:
        return
    from fleet.tagrules.allow import AllowList

    found = AllowList(fleet, today).count_names(recorded.names)
    for number, names in found.items():
        if not names:
            yield Finding(
                "pattern-matches-nothing",
                f"none of the {len(recorded.names)} names in the recorded queue matches",
                ("powerful", number, "match"),
                severity="warning",
                hint=_hint(fleet.powerful[number], recorded.names),
            )


def _hint(rule: PowerfulRule, names: Sequence[str]) -> str:
    from fleet.tagrules.allow import compile_pattern, without_directory

    pattern = compile_pattern(rule.match)
    if not rule.dirs:
        inside = next((n for n in names if ":" in n and pattern.takes(without_directory(n))), "")
        if inside:
            return f"with dirs: true it would match {quoted(inside)}"
    package = rule.match.rpartition("/")[2]
    alike = [name for name in names if name.rpartition("/")[2].startswith(package)]
    beginning = next((name for name in alike if pattern.takes_beginning(name)), "")
    if beginning:
        return f"it matches only the beginning of {quoted(beginning)}; a whole name must match"
    close = nearest(rule.match, [*alike, *names][:_COMPARED])
    if close:
        return f"the nearest name is {quoted(close)}"
    ends = f"; it ends by itself on {rule.expires}" if rule.expires else ""
    whom = f"ask {rule.contact} whether" if rule.contact else "remove it unless"
    return f"{whom} it is still needed{ends}"


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


_BUILD = "[^/]+/[^/]+/[^/]+"
"""A project's, a chroot's and a package's name, of any owner."""


def pattern_too_wide(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a pattern that takes every build of an owner (or scope), or is open to anybody."""
    for number, rule in enumerate(fleet.powerful):
        taken = _taken(rule)
        if taken:
            tags = ", ".join(rule.ask)
            knows = f"; {rule.contact} knows which" if rule.contact else ""
            yield Finding(
                "pattern-too-wide",
                f"this gives {tags} to {taken}",
                ("powerful", number, "match"),
                severity="warning",
                hint=f"name the project and the package that need it{knows}",
            )


def _taken(rule: PowerfulRule) -> str:
    """Return what a pattern takes in a person's words, where that is too much."""
    from fleet.tagrules.allow import is_valid
    from fleet.tagrules.patterns import read_pattern

    pieces = read_pattern(rule.match) if is_valid(rule) else None
    return _words(rule.match, pieces) if pieces else ""


def _words(pattern: str, pieces: "Sequence[Piece]") -> str:
    from fleet.tagrules.patterns import read_pattern, takes_all_of, word_of

    build = read_pattern(_BUILD) or ()
    slash = read_pattern("/") or ()
    anybody = read_pattern("[^/]+") or ()
    if takes_all_of(pieces, (*anybody, *slash, *build)):
        return "every build of everybody"
    owner = [*takewhile(lambda piece: piece.text != "/", pieces)]
    words = [*takewhile(lambda piece: piece.kind == "word", owner)]
    if takes_all_of(pieces[len(owner) + 1 :], build):
        return f"every build of {as_written(pattern[: owner[-1].end])}" if owner else ""
    if words and takes_all_of(pieces, (*words, *slash, *build)):
        return f"every build of every owner whose name begins with {quoted(word_of(words))}"
    if owner and not words and all(piece.kind in ("any", "part") for piece in owner):
        return "builds of every owner: whoever names a package so has it"
    return ""


def powerful_case_fails(fleet: Fleet) -> Iterator[Finding]:
    """Require that a rule takes what stands under `matches`, and nothing under `rejects`."""
    for number, rule in enumerate(fleet.powerful):
        if (rule.matches or rule.rejects) and _is_valid(rule):
            yield from _cases(("powerful", number), rule)


def _cases(path: Path, rule: PowerfulRule) -> Iterator[Finding]:
    from fleet.tagrules.allow import matches_name

    for number, name in enumerate(rule.matches):
        if not matches_name(rule, name):
            message = f"{as_written(rule.match)} does not match this name, and must"
            yield Finding(
                "powerful-case-fails",
                message,
                (*path, "matches", number),
                hint=_way_in(rule, name),
            )
    for number, name in enumerate(rule.rejects):
        if matches_name(rule, name):
            message = f"{as_written(rule.match)} matches this name, and must not"
            yield Finding(
                "powerful-case-fails", message, (*path, "rejects", number), hint=_way_out(rule)
            )


def _is_valid(rule: PowerfulRule) -> bool:
    from fleet.tagrules.allow import is_valid

    return is_valid(rule)  # what is not, invalid-pattern says


def _way_in(rule: PowerfulRule, name: str) -> str:
    from fleet.tagrules.allow import PARTS, compile_pattern, without_directory

    pattern = compile_pattern(rule.match)
    if not rule.dirs and pattern.takes(without_directory(name)):
        return "it is in a directory of the project: add dirs: true"
    if name.count("/") != PARTS - 1:
        return "a name has four parts: owner/project/chroot/package"
    beginning = pattern.takes_beginning(name)
    if beginning:
        return f"it matches only the beginning, {quoted(beginning)}; a whole name must match"
    return "correct the pattern or the case" + _asking(rule)


def _way_out(rule: PowerfulRule) -> str:
    return "narrow the pattern, or correct the case" + _asking(rule)


def _asking(rule: PowerfulRule) -> str:
    return f"; {rule.contact} knows what is meant" if rule.contact else ""
