"""README, tutorial, how-to and reference pages show what the program really says.

A block after `<!-- file: NAME -->` is written to that file, `<!-- copy: PATH -->` brings a file
of the repository. Each `$ command` of a console block is run, all of a page in one folder, and
what follows must be what it printed.
`pytest --update-golden` rewrites it.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.rigs.golden import Golden
from tests.rigs.local_machines import end_machines
from tests.rigs.process import ROOT, clean_environment
from tests.rigs.warm import Warm

HOW_TO = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/how-to/*.md"))
REFERENCE = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/reference/*.md"))
NEED_ENGINE = ("docs/how-to/try-the-real-engine.md",)
# tests/live/test_how_to.py runs what needs a real Debusine, beside test_stand_ins.py.
NEED_LIVE = ("docs/how-to/connect-debusine.md",)
# tests/live/test_image.py bakes and boots for real, beside test_stand_ins.py.
NEED_BAKING = ("docs/how-to/bake-an-image.md",)


def _marks(name: str) -> Collection[pytest.MarkDecorator]:
    if name in NEED_ENGINE:
        return (pytest.mark.engine,)
    return (pytest.mark.slow,) if name in (*HOW_TO, "docs/tutorial.md") else ()


DOCUMENTS = [
    pytest.param(name, marks=_marks(name))
    for name in ("README.md", "docs/tour.md", "docs/tutorial.md", *HOW_TO, *REFERENCE)
    if name not in (*NEED_LIVE, *NEED_BAKING)
    and "```console\n" in (ROOT / name).read_text(encoding="utf-8")
]
BLOCK = re.compile(
    r"<!-- copy: (?P<copy>\S+) -->\n"
    r"|(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```\n",
    re.DOTALL,
)
BRINGS = re.compile(r"<!-- (?:copy|file): (?P<what>\S+) -->\n")
UNSEEN = re.compile(r"<!--.*?-->\n*|(?<=\])\([^)\s]*\)", re.DOTALL)
# What differs from run to run: the time, digests of it, ages in seconds, and how wide they are.
VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|\+00:00|Z)?)?"), "TIME"),
    (re.compile(r"(?<=\bby )\S+@\S+ until (TIME|(\d+ \w+ )?\d\d:\d\d UTC)"), "USER until TIME"),
    (re.compile(r"(?<=TIME \(in )[\dhms ]+(?=\))"), "N s"),
    (re.compile(r"\b\d{8}T\d{6}Z\b"), "VERSION"),
    (re.compile(r"\b\d+d \d+[hm]\b|\b\d+d(?= )"), "N d"),
    (re.compile(r" on Python \S+$|(?<=installed: ).*(\n {4}\S.*)*", re.MULTILINE), "HERE"),
    (re.compile(r"\b[0-9a-f]{12}\b|\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"(?<=\bp50 )\S.*?(, p95) [\d hms]*\d[hms]\b"), r"N s\1 N s"),
    (re.compile(r"\b\dm \d+s\b|\b\d+m \d+ s\b"), "N s"),
    (re.compile(r"\b\d+ s\b|\b(\d+ (?:seconds?|minutes?)|now) ago\b|\bnow(?=\s+\d)"), "N s"),
    (re.compile(r"\bserial \d+"), "serial N"),
    (re.compile(r"\b\d+ d old\b"), "N d old"),
    (re.compile(r"\b[2-9]\d{8}\b"), "TICKET"),
    (re.compile(r"cost so far 0\.00\d*"), "cost so far 0.00"),
    (re.compile(r"^Observed .*", re.MULTILINE), "Observed N ago"),
    (re.compile(r" +"), " "),
)


class Shell:
    """Runs commands in one folder, with `fleet` on PATH."""

    def __init__(self, folder: Path, fleet: Sequence[str]) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        (folder / "bin").mkdir()
        self.environment = clean_environment(folder / "home") | {"CI": "true"}
        # Like ids of today, and as long: pages mask them.
        self.environment["TICKETS_AFTER"] = "218000000"
        self.environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{self.environment['PATH']}"
        program = folder / "bin" / "fleet"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(fleet)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        self.project = folder / "project"
        self.project.mkdir()
        self._umask = 0o022
        for name in ("fleet.yaml", "world.json"):
            shutil.copy(ROOT / "examples/tutorial" / name, self.project)
        if pulumi := os.environ.get("FLEET_PULUMI"):
            (folder / "bin" / "pulumi").symlink_to(pulumi)
        else:  # what a page says is missing must not depend on this computer
            self.environment["FLEET_PULUMI"] = "/nowhere/pulumi"

    def run(self, command: str) -> str:
        """Return what a command prints, and its exit code when that is not 0."""
        if command.startswith("umask "):
            self._umask = int(command.removeprefix("umask "), 8)
        if moves := re.fullmatch(r"mkdir ([a-z]+) && cd \1", command):
            self.project /= moves[1]
            self.project.mkdir()
            return ""
        completed = subprocess.run(  # noqa: S602 - the documents' own commands
            command,
            shell=True,
            cwd=self.project,
            env=self.environment | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            umask=self._umask,
        )
        code = f"[exit code {completed.returncode}]\n" if completed.returncode else ""
        printed = completed.stdout
        for own in (str(self.project), quote(str(self.project))):
            printed = printed.replace(own, "/home/you/trial")
        return printed + code

    def write(self, name: str, content: str) -> None:
        """Write a file of the page, as an editor would that was started here."""
        path = self.project / name
        path.write_text(content, encoding="utf-8")
        path.chmod(0o666 & ~self._umask)


def replayed(text: str, shell: Shell, output: Callable[[str, str], str] | None = None) -> str:
    """Return a document with what its commands really print.

    `output` says what to show of a command in place of that, from the command and what is shown.
    """
    output = output or (lambda command, _: shell.run(command))

    def replay(match: re.Match[str]) -> str:
        if match["copy"]:
            shutil.copy(ROOT / match["copy"], shell.project)
        if match["file"]:
            shell.write(match["file"], match["body"])
        if match["kind"] != "console":
            return match[0]
        parts = (f"$ {command}\n{output(command, was)}" for command, was in told(match["body"]))
        return "```console\n" + "\n".join(parts) + "```\n"

    return BLOCK.sub(replay, text)


def told(body: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block, and what is shown below it."""
    for part in re.split(r"\n?^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def changed(text: str, words: Mapping[str, str]) -> str:
    """Return a text with other words in the place of some."""
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def steady(text: str) -> str:
    """Return what is the same in each run."""
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return text


def wording(text: str) -> str:
    """Return no more than the words: no figure, no age, no digest, however wide they are."""
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "DIGEST", text)
    text = re.sub(r"\bN (s|min|h|d)( N (min|h))?\b", "AGE", re.sub(r"\d+([.,]\d+)*", "N", text))
    return re.sub(r"[ -]+", " ", text)


def unnamed_files(text: str) -> Iterator[str]:
    """Yield each file that a page's comments bring and the paragraph before does not name."""
    for match in BRINGS.finditer(text):
        name = match["what"]
        paragraph = UNSEEN.sub("", text[: match.start()]).rstrip().rpartition("\n\n")[2]
        if name not in paragraph or "```" in paragraph:
            yield name


def test_page_names_each_file_that_it_uses() -> None:
    pages = ROOT.glob("docs/**/*.md")
    unnamed = {str(page): [*unnamed_files(page.read_text(encoding="utf-8"))] for page in pages}

    assert unnamed
    assert [page for page, files in unnamed.items() if files] == []


@pytest.mark.parametrize("comment", ["<!-- file: a.yaml -->", "<!-- copy: x/a.yaml -->"])
def test_file_is_named_next_to_its_content(comment: str) -> None:
    shown = f"Save as `x/a.yaml`:\n\n{comment}\n```yaml\n```\n"
    hidden = f"As in [this](x/a.yaml):\n\n<!-- file: x/a.yaml -->\n{comment}\n```yaml\n```\n"

    assert list(unnamed_files(shown)) == []
    assert len(list(unnamed_files(hidden))) == 2


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_shows_current_output(
    name: str, tmp_path: Path, golden: Golden, warm: Warm
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    try:
        now = replayed(text, Shell(tmp_path, warm.command()))
    finally:
        end_machines(tmp_path)

    golden.compare(ROOT / name, now, steady)
