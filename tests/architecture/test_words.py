"""Sentences of decisions are made in `fleet/words/` alone; other code only passes them on."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from tests.architecture.source import files

ROOMS = ("planner", "guard", "reconcile", "explain", "report", "apply", "model", "cli")
"""The rooms that decide, or show decisions.

Checks and tag rules write about fleet.yaml, edges about servers, and the satellites about their
own work.
"""
OTHER_TEXT = frozenset(
    {
        "fleet/apply/policies.py",  # tests of operators
        "fleet/apply/policy_plugin.py",
        "fleet/model/apt_sources.py",  # findings about fleet.yaml
        "fleet/report/findings.py",
        "fleet/model/tickets.py",  # the ends of tickets
        "fleet/cli/arguments.py",  # mistakes in a command
    }
)
"""Modules whose messages are about no decision."""
NO_DECISIONS = ("fleet.errors", "fleet.schema", "fleet.checks")
"""Rooms whose classes and functions take other messages."""
SENTENCES = frozenset({"because", "message"})

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass
class Module:
    """One module with its definitions and imports."""

    name: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    definitions: dict[str, ast.AST] = field(default_factory=dict)

    @classmethod
    def parsed(cls, path: str, source: str) -> "Module":
        """Return the module of a file."""
        made = cls(_name_of(path), ast.parse(source))
        for node in ast.walk(made.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    made.imports[each.asname or each.name] = node.module, each.name
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                made.definitions.setdefault(node.name, node)
        return made


def _name_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@dataclass(frozen=True)
class Text:
    """An expression that becomes a sentence, with its surroundings."""

    module: Module
    value: ast.expr
    scopes: tuple[_Scope, ...]


class Reader:
    """Finds where the sentences of decisions are made or read."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._paths = {_name_of(path): path for path in sources}
        self._sources = sources
        self._modules: dict[str, Module] = {}
        self._returns: dict[int, bool] = {}

    def places(self, path: str) -> set[int]:
        """Return the lines of a module that make or read a sentence."""
        module = self._module(_name_of(path))
        assert module is not None
        texts = self._texts(module, module.tree, ())
        return {*(each.value.lineno for each in texts if self._is_made(each)), *_read(module.tree)}

    def _texts(self, module: Module, node: ast.AST, scopes: tuple[_Scope, ...]) -> Iterator[Text]:
        """Yield the expressions in a node that become sentences."""
        if isinstance(node, _Scope):
            scopes = (*scopes, node)
        values: Iterable[ast.expr] = ()
        match node:
            case ast.Call():
                values = self._arguments(module, node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in SENTENCES:
                values = [value]
            case ast.AugAssign(target=ast.Name(id=name)) if name in SENTENCES:
                values = [ast.copy_location(ast.JoinedStr([]), node)]
        yield from (Text(module, value, scopes) for value in values)
        for child in ast.iter_child_nodes(node):
            yield from self._texts(module, child, scopes)

    def _arguments(self, module: Module, call: ast.Call) -> Iterator[ast.expr]:
        """Yield the arguments of a call that are sentences."""
        name = str(getattr(call.func, "id", getattr(call.func, "attr", "")))
        found = self._definition(module, name)
        if found is not None and found[0].name.startswith(NO_DECISIONS):
            return
        yield from (each.value for each in call.keywords if each.arg in SENTENCES)
        named = zip(_parameters(found[1]) if found else (), call.args, strict=False)
        yield from (value for parameter, value in named if parameter in SENTENCES)

    def _module(self, name: str) -> Module | None:
        if name not in self._modules and name in self._paths:
            path = self._paths[name]
            self._modules[name] = Module.parsed(path, self._sources[path])
        return self._modules.get(name)

    def _definition(self, module: Module, name: str) -> tuple[Module, ast.AST] | None:
        if name in module.definitions:
            return module, module.definitions[name]
        home, own = module.imports.get(name, ("", ""))
        found = self._module(home)
        return self._definition(found, own) if found else None

    def _is_made(self, text: Text) -> bool:
        """Return whether an expression is text that is written here."""
        match text.value:
            case ast.JoinedStr():
                return True
            case ast.Constant(value=str(constant)):
                return bool(constant)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join" | "format")):
                return True
            case ast.Call(func=ast.Name(id=name)):
                return self._returns_text(self._definition(text.module, name))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return self._returns_text(self._definition(text.module, name))
            case ast.Name(id=name):
                parts = [*_assigned(text.scopes, name)]
            case value:
                parts = _parts(value)
        return any(self._is_made(Text(text.module, part, text.scopes)) for part in parts)

    def _returns_text(self, found: tuple[Module, ast.AST] | None) -> bool:
        if found is None or found[0].name.startswith("fleet.words"):
            return False
        module, function = found
        if not isinstance(function, ast.FunctionDef):
            return False
        if id(function) not in self._returns:
            self._returns[id(function)] = False
            self._returns[id(function)] = any(
                self._is_made(Text(module, node.value, (module.tree, function)))
                for node in ast.walk(function)
                if isinstance(node, ast.Return | ast.Yield) and node.value is not None
            )
        return self._returns[id(function)]


def _parameters(definition: ast.AST) -> list[str]:
    """Return the positional parameters of a function, or the fields of a class."""
    if isinstance(definition, ast.ClassDef):
        targets = [each.target for each in definition.body if isinstance(each, ast.AnnAssign)]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    assert isinstance(definition, ast.FunctionDef)
    names = [each.arg for each in definition.args.args]
    return names[1:] if names[:1] == ["self"] else names


def _parts(value: ast.expr) -> list[ast.expr]:
    """Return the expressions whose text an expression may have."""
    match value:
        case ast.BinOp():
            return [value.left, value.right]
        case ast.IfExp():
            return [value.body, value.orelse]
        case ast.BoolOp():
            return value.values
        case ast.Tuple() | ast.List():
            return value.elts
        case ast.NamedExpr() | ast.Starred():
            return [value.value]
    return []


def _assigned(scopes: tuple[_Scope, ...], name: str) -> Iterator[ast.expr]:
    """Yield the values of a variable in the innermost scope that assigns it."""
    for scope in reversed(scopes):
        nodes = scope.body if isinstance(scope, ast.Module) else ast.walk(scope)
        found = [value for node in nodes for own, value in _assignments(node) if own == name]
        if found:
            yield from found
            return


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pairs = zip(targets, values, strict=False)
        case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
            pairs = zip([target], [value], strict=True)
        case _:
            return
    yield from ((each.id, value) for each, value in pairs if isinstance(each, ast.Name))


def _read(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that put a sentence into another one, cut it, or decide by it."""
    for node in ast.walk(tree):
        parts: Iterable[ast.AST] = ()
        match node:
            case ast.BinOp():
                parts = [node.left, node.right]
            case ast.Compare():
                parts = [node.left, *node.comparators]
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[value]):
                parts = ast.walk(value)
            case (
                ast.FormattedValue(value=value)
                | ast.Attribute(value=value)
                | ast.Subscript(value=value)
            ):
                parts = [value]
        for part in parts:
            name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
            if name in SENTENCES and isinstance(node, ast.expr):
                yield node.lineno


@pytest.fixture(scope="module")
def reader() -> Reader:
    sources = {path: text.read_text(encoding="utf-8") for path, text in files("fleet").items()}
    return Reader(sources)


def test_sentences_of_decisions_are_created_in_fleet_words(reader: Reader) -> None:
    own = [path for path in files("fleet") if path.split("/")[1].removesuffix(".py") in ROOMS]
    found = {path: reader.places(path) for path in own if path not in OTHER_TEXT}

    assert {path: sorted(lines) for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "Blocked(because=f'pool {pool} is full')",
        "Blocked(because='; '.join(parts))",
        "because = 'full' if full else why",
        "because += why",
        "def say():\n    return f'{pool} is full'\nBlocked(because=say())",
        "class Cause:\n    path: str\n    because: str\nCause(path, f'{pool} is full')",
        "def plan():\n    text = f'{pool} is full'\n    return each.altered(message=text)",
    ],
)
def test_sentence_is_found_when_created_elsewhere(source: str) -> None:
    assert Reader({"fleet/planner/own.py": source}).places("fleet/planner/own.py")


@pytest.mark.parametrize(
    "source",
    [
        "if 'is full' in blocked.because: pass",
        "text = f'waits: {blocked.because}'",
        "name = blocked.because.removeprefix('pool ')",
        "text = '; '.join(each.because for each in blocked)",
        "text = each.message[:80]",
    ],
)
def test_sentence_is_found_when_parsed_elsewhere(source: str) -> None:
    assert Reader({"fleet/planner/own.py": source}).places("fleet/planner/own.py")


@pytest.mark.parametrize(
    "source",
    [
        "from fleet.words.limits import explain_max\nBlocked(because=explain_max(key, 3, 3))",
        "Reason(because=blocked.because)",
        "from fleet.errors import refusal\nraise refusal(f'{pool} is full')",
        "why = unserved.because if unserved else ''",
    ],
)
def test_sentence_is_not_found_when_only_passed_on(source: str) -> None:
    sources = {
        "fleet/planner/own.py": source,
        "fleet/words/limits.py": "def explain_max(key, most, held):\n    return f'{key} ({most})'",
        "fleet/errors.py": "def refusal(because):\n    return PlanRefused(because)",
    }

    assert not Reader(sources).places("fleet/planner/own.py")
