"""Check names: classes, private functions, constants and tests; fail above the limits.

`tool.fleet.names` in pyproject.toml has the limit of each rule that is not at 0 yet. The rules are
about whole words of a name, so that `_midnight` is no participle and `_seed` no past tense.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MAX_TEST_NAME = 65
"""Characters of a test's name that fit into a line of pytest with the path of its module."""
_PARTICIPLES = (
    r"bought|brought|built|caught|found|given|held|hidden|kept|known|left|lost|made|meant|seen|"
    r"sent|shown|sought|taken|thought|told|written"
)
_FUNCTION_RULES = {
    "participle": rf"_((?!(seed|feed|need|speed|embed|shed)$)[a-z]+ed|{_PARTICIPLES})",
    "preposition": r"_(at|behind|beside|by|from|in|of|on|past|than|to|with)(_\w+)?",
    "question": r"_(what|when|where|who|whom|whose|why)(_\w+)?",
    "fragment": r"_(let|may|said|say|says|tell|would)(_\w+)?",
    "adjective": r"_(alike|anew|best|each|few|late|least|long|many|most|near|other|others|own|"
    r"same|short|whole)",
}
_CONSTANT = re.compile(
    r"_(AGAIN|AT_ONCE|BESIDE|DEAR|DEAREST|FEW|GONE|LACKING|LARGE|LATER|LEAST|LITTLE|LONGEST|MADE|"
    r"MANY|MOST|NEAR|NEXT|NOTHING|OFF|SMALL|TAKEN|TIMES|TINY|TRIES|WHOLE)"
)
_CLAUSE = re.compile(
    r"_(alike|anew|anybody|are_no|at_once|beside|is_no|nobody|so_many|so_much|told|what|who|"
    r"whoever|whom|whose)(?=_|$)"
)
_NO_SUBJECT = re.compile(r"test_(a|an|it|its|of|the|their|they|those|where)_")


class Hit(NamedTuple):
    """A name that breaks a rule."""

    rule: str
    place: str
    name: str

    def __str__(self) -> str:
        """Return the place, the name and the rule."""
        return f"{self.place}: {self.name} ({self.rule})"


def find_in_program(files: Mapping[str, ast.Module]) -> Iterator[Hit]:
    """Yield the private functions and constants of modules, and shared names of classes."""
    classes: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for file, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _check_function(file, node)
            elif isinstance(node, ast.Assign):
                yield from _check_constant(file, node)
            elif isinstance(node, ast.ClassDef):
                classes[node.name].setdefault(file, node.lineno)
    for name, places in classes.items():
        if len(places) > 1:
            where = ", ".join(f"{file}:{line}" for file, line in places.items())
            yield Hit("class-in-several-modules", where, name)


def find_in_tests(files: Mapping[str, ast.Module]) -> Iterator[Hit]:
    """Yield the tests whose name is too long, has a clause, or starts with an article."""
    for file, tree in files.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            place = f"{file}:{node.lineno}"
            if len(node.name) > MAX_TEST_NAME:
                yield Hit("test-too-long", place, node.name)
            if _CLAUSE.search(node.name):
                yield Hit("test-with-clause", place, node.name)
            if _NO_SUBJECT.match(node.name):
                yield Hit("test-without-subject", place, node.name)


def _check_function(file: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Hit]:
    for rule, pattern in _FUNCTION_RULES.items():
        if re.fullmatch(pattern, node.name):
            yield Hit(f"function-{rule}", f"{file}:{node.lineno}", node.name)


def _check_constant(file: str, node: ast.Assign) -> Iterator[Hit]:
    target, place = node.targets[0], f"{file}:{node.lineno}"
    names = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
    private = [name for name in names if re.match("_[A-Z]", name)]
    yield from (Hit("constant-adjective", place, n) for n in private if _CONSTANT.fullmatch(n))
    if isinstance(target, ast.Tuple) and private == names:
        yield Hit("constants-in-one-line", place, ", ".join(private))


def find_excess(hits: Iterable[Hit], limits: Mapping[str, int]) -> Iterator[str]:
    """Yield each hit of a rule above its limit, and each limit that can be lowered."""
    by_rule: defaultdict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_rule[hit.rule].append(hit)
    for rule in sorted(by_rule.keys() | limits.keys()):
        count, limit = len(by_rule[rule]), limits.get(rule, 0)
        print(f"{rule}: {count:,} (at most {limit:,})")
        if count > limit:
            yield from map(str, by_rule[rule])
        elif count < limit:
            yield f"lower tool.fleet.names.{rule} in pyproject.toml from {limit} to {count}"


def read_modules(folder: Path) -> dict[str, ast.Module]:
    """Return the syntax trees of a folder by path from the root."""
    files = sorted(folder.rglob("*.py"))
    return {
        file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in files
    }


def main() -> None:
    """Print the count of each rule with a limit, and exit with the names above the limits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    limits: dict[str, int] = project["tool"]["fleet"].get("names", {})
    hits = [
        *find_in_program(read_modules(ROOT / "fleet")),
        *find_in_tests(read_modules(ROOT / "tests")),
    ]
    if errors := [*find_excess(hits, limits)]:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
