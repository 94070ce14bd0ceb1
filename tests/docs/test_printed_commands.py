"""Each command that an output, a page or a message prints is one that the program accepts."""

import ast
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from fleet.program import REMOVED, VERBS, build_parser
from tests.architecture.source import files, tracked_files

COMMAND = re.compile(r"`(fleet [a-z{][^`\n]*)`|^ *fix: (fleet [a-z].*)$", re.MULTILINE)
OUTPUTS = ("tests/report/golden/", "tests/site/golden/", "tests/plans/", "tests/checks/", "docs/")
"""Folders of recorded outputs; the walks and guides of docs/ show outputs too."""
JOBS = {"fleet propose"}
"""Jobs of GitLab with the name of a command."""
FILLINGS = ("4h", "1", "demo", "copr", "plan")
"""Values in place of a figure or name of a message; one of them has to fit."""


def list_commands(text: str) -> Iterator[str]:
    for quoted, fix in COMMAND.findall(text):
        yield quoted or fix


@cache
def printed_commands() -> dict[str, str]:
    """Return each command of an output or page, and the file that has it."""
    found: dict[str, str] = {}
    for name, path in tracked_files().items():
        if name.startswith(OUTPUTS) and path.suffix in {".txt", ".md", ".yml", ".html"}:
            found |= dict.fromkeys(list_commands(path.read_text(encoding="utf-8")), name)
    return found


@cache
def written_commands() -> dict[str, str]:
    """Return each command in a string of fleet's own code, and the module that has it."""
    found: dict[str, str] = {}
    for name, path in files("fleet").items():
        for text in _strings(path):
            found |= dict.fromkeys(list_commands(text), name)
    return found


def _strings(path: Path) -> Iterator[str]:
    """Yield the strings that are no docstrings, with `{}` in place of each value."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in documents:
                yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (
                each.value if isinstance(each, ast.Constant) else "{}" for each in node.values
            )
            yield "".join(map(str, parts))


@pytest.mark.parametrize("commands", [printed_commands, written_commands])
def test_program_accepts_each_command_that_it_prints(
    commands: Callable[[], dict[str, str]],
) -> None:
    found = commands()
    refused = {
        command: place
        for command, place in found.items()
        if command not in JOBS and not _is_accepted(command)
    }

    assert len(found) > 50
    assert refused == {}


def _is_accepted(command: str) -> bool:
    """Return whether a user can type a command, or whether it only names an action or option."""
    _, verb, *rest = shlex.split(command)
    if " ".join((verb, *rest[:1])) in REMOVED or verb in REMOVED:
        return True
    if verb in VERBS and len(rest) < 2 and not "".join(rest).startswith("-"):
        return True
    return any(_parses([verb, *rest], filling) for filling in FILLINGS)


def _parses(arguments: list[str], filling: str) -> bool:
    filled = [each.replace("{}", filling) for each in arguments]
    errors = StringIO()
    try:
        with redirect_stdout(StringIO()), redirect_stderr(errors):
            _parser(filled[0]).parse_args(filled)
    except SystemExit as error:
        return error.code == 0 or "expected one argument" in errors.getvalue()
    return True


@cache
def _parser(verb: str) -> ArgumentParser:
    return build_parser(verb, alone=True)
