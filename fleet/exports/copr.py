r"""This module writes the allow-list as Copr's EXTRA_BUILDCHROOT_TAGS.

Copr matches with `re.match`, from the start only, so every pattern ends in `\Z`: the same names
match there and here. The tags of a build are stored, joined by spaces, in 50 characters.
"""

import re
import warnings
from collections.abc import Iterable, Iterator
from datetime import date

from fleet.exports.result import NOT_EXPORTED, Exported, header, origin
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, PowerfulRule
from fleet.tagrules.allow import is_expired, rules_for_name
from fleet.tagrules.parts import ANYTHING, alternatives, never_takes, pieces, split_top, with_brace

WIDTH = 50
"""Characters of the column that keeps the tags of one build."""

_DIRECTORY = "(?::[^/]*)?"
_PYTHON_ONLY_ASCII = re.compile(r"\\[dDwWsSbB]|\(\?[a-z]*i")
_LEADING_FLAGS = re.compile(r"\(\?(?P<flags>[ims]+)\)")
_OTHER_MEANING = re.compile(r"\\[pPQECx]|\[\[:|\[\^?[^\]]*\[:|\(\?[a-zA-Z]*[UL]|\(\?<[^=!]")


class CannotWrite(Exception):
    """A pattern that Copr cannot match the way fleet does."""


def export_copr(fleet: Fleet, digest: str, today: date) -> Exported:
    """Return the option as Python text; its findings are errors where it would not be true."""
    rows: list[str] = []
    findings: list[Finding] = []
    for index, rule in enumerate(fleet.powerful):
        if is_expired(rule, today):
            rows.append(f"    # {origin(index, rule)} (expired, so it is left out)\n")
            continue
        try:
            pattern = pattern_for_copr(rule)
        except CannotWrite as reason:
            findings.append(_refused(index, str(reason)))
            continue
        findings += _too_wide(index, rule)
        rows.append(_row(index, rule, pattern))
    findings += _too_wide_together(fleet, today)
    body = "EXTRA_BUILDCHROOT_TAGS = [\n" + "".join(rows) + "]\n"
    return Exported(header(fleet, "copr", digest) + body, tuple(findings))


def rules_for_copr(fleet: Fleet, today: date) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield what Copr has to have: the rule, its pattern and its tags; expired ones left out."""
    for index, rule in enumerate(fleet.powerful):
        if not is_expired(rule, today):
            try:
                yield index, pattern_for_copr(rule), tuple(rule.ask)
            except CannotWrite:
                continue


def pattern_for_copr(rule: PowerfulRule) -> str:
    """Return what `re.match` takes exactly the rule's names with; raises CannotWrite."""
    strange = _OTHER_MEANING.search(rule.match)
    if strange:
        raise CannotWrite(f"'{strange[0]}' means something else in Python's patterns")
    match = "".join(r"\Z" if piece == r"\z" else piece for piece in pieces(rule.match))
    match = with_brace(match, r"\{")
    pattern = _with_directories(match) if rule.dirs else match
    written = _grouped(pattern) + r"\Z"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(written)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise CannotWrite(f"Python's patterns do not know it: {error}") from None
    return written


def _grouped(pattern: str) -> str:
    """Return a pattern as one piece, its leading flags inside, its classes ASCII as in RE2."""
    leading = _LEADING_FLAGS.match(pattern)
    flags = leading["flags"] if leading else ""
    if _PYTHON_ONLY_ASCII.search(pattern):
        flags = f"a{flags}"
    rest = pattern[leading.end() :] if leading else pattern
    return f"(?{flags}:{rest})" if flags or "|" in rest else rest


def _with_directories(match: str) -> str:
    """Return a pattern that also takes the directories of its projects."""
    return "|".join(map(_with_directory, alternatives(match)))


def _with_directory(pattern: str) -> str:
    owner, *rest = split_top(pattern, "/")
    if not rest or len(rest) < 2 or not _stays_within(owner):  # noqa: PLR2004 - project and more
        raise CannotWrite(
            "with `dirs`, owner and project must be written out, as in owner/project/.*"
        )
    project, *more = rest
    if project not in ANYTHING:
        if not never_takes(project, "/:"):
            raise CannotWrite("with `dirs`, the project must not match a slash or a colon itself")
        project += _DIRECTORY
    return "/".join([owner, project, *more])


def _stays_within(part: str) -> bool:
    return part in ("[^/]*", "[^/]+") or never_takes(part, "/")


def _row(index: int, rule: PowerfulRule, pattern: str) -> str:
    tags = ", ".join(map(_quoted, rule.ask))
    return (
        f"    # {origin(index, rule)}\n"
        f'    {{"pattern": {_quoted_pattern(pattern)}, "tags": [{tags}]}},\n'
    )


def _quoted(text: str) -> str:
    plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return f'"{text}"' if plain else ascii(text)


def _quoted_pattern(pattern: str) -> str:
    plain = pattern.isascii() and pattern.isprintable() and '"' not in pattern
    return f'r"{pattern}"' if plain else ascii(pattern)


def _refused(index: int, reason: str) -> Finding:
    return Finding(
        NOT_EXPORTED,
        f"Copr cannot match this the way fleet does: {reason}",
        ("powerful", index, "match"),
        hint="write it with letters, . * + ? [ ] ( | ) and \\ before signs only",
    )


def _too_wide(index: int, rule: PowerfulRule) -> Iterator[Finding]:
    width = len(" ".join(rule.ask))
    if width > WIDTH:
        yield Finding(
            NOT_EXPORTED,
            f"the tags of this rule take {width} characters, and Copr keeps {WIDTH} per build",
            ("powerful", index, "ask"),
            hint="ask for fewer tags, or for one tag with a shorter name",
        )


def _too_wide_together(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Look at the names that the file gives: Copr joins the tags of all rules that match."""
    for name in _known_names(fleet.powerful):
        found = rules_for_name(fleet, name, today)
        width = len(" ".join(tag for match in found for tag in match.rule.ask))
        widest = max((len(" ".join(match.rule.ask)) for match in found), default=0)
        if width > WIDTH >= widest:
            places = ", ".join(f"powerful[{match.index}]" for match in found)
            yield Finding(
                NOT_EXPORTED,
                f"{places} all match {name}: their tags take {width} characters together, "
                f"and Copr keeps {WIDTH} per build",
                ("powerful", found[-1].index, "ask"),
                hint="Copr keeps repeats too: let one rule match each build",
            )


def _known_names(rules: Iterable[PowerfulRule]) -> list[str]:
    return sorted({name for rule in rules for name in rule.matches})


__all__ = ["WIDTH", "CannotWrite", "export_copr", "pattern_for_copr", "rules_for_copr"]
