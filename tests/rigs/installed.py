"""The built wheel in an environment of its own, with what it requires and nothing else.

No registry is asked: what the wheel requires is linked, file by file, from the environment that
the tests run in, where the locks have put it.
"""

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as InZip

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.rigs.process import ROOT, clean_environment, run_process


@dataclass(frozen=True)
class Installed:
    """An environment."""

    program: Path
    site: Path
    names: frozenset[str]
    """The distributions in it, fleet's own too."""

    def size(self, *, bytecode: bool) -> int:
        """Return how many bytes packages and pages have, with their bytecode or without."""
        return sum(
            each.stat().st_size
            for folder in (self.site, self.program.parents[1] / "share")
            for each in folder.rglob("*")
            if each.is_file() and (bytecode or each.suffix != ".pyc")
        )


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this checkout, built in a folder."""
    built = run_process(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT),
        cwd=folder,
        env=clean_environment(folder, {"PYTHONWARNINGS": "ignore"}),
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("*.whl"))


def install(wheel: Path, folder: Path, extras: Collection[str] = ()) -> Installed:
    """Install a wheel into a new environment in `folder`, with these extras."""
    environment = clean_environment(folder, {"PYTHONWARNINGS": "ignore"})
    for command in (
        (sys.executable, "-m", "venv", "--without-pip", folder / "venv"),
        (
            *(sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python"),
            *("install", "--quiet", "--no-index", "--no-deps", wheel),
        ),
    ):
        done = run_process(*command, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
    site = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    about = next(each for each in InZip(wheel).iterdir() if each.name.endswith(".dist-info"))
    needed = _needed(PathDistribution(about), extras)
    for each in needed.values():
        _link(each, site)
        _write_commands(each, folder / "venv" / "bin")
    return Installed(
        folder / "venv" / "bin" / "fleet", site, frozenset(needed) | {"fleet-reconciler"}
    )


def _needed(root: Distribution, extras: Collection[str]) -> dict[str, Distribution]:
    """Return what a distribution requires with these extras, and what that requires."""
    own = canonicalize_name(root.metadata["Name"])
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(root, frozenset(extras))]
    while todo:
        each, wanted = todo.pop()
        for requirement in _requirements(each, wanted):
            name, more = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if (name, more) not in seen:
                seen.add((name, more))
                which = root if name == own else distribution(name)
                todo.append((which, more))
                if name != own:
                    found[name] = which
    return found


def _requirements(each: Distribution, extras: Collection[str]) -> Iterator[Requirement]:
    for text in each.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        ):
            yield requirement


def _link(each: Distribution, site: Path) -> None:
    for file in each.files or ():
        if ".." not in file.parts:  # its commands run another Python
            place = site.joinpath(*file.parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(Path(str(file.locate())).resolve())


def _write_commands(each: Distribution, folder: Path) -> None:
    for point in each.entry_points.select(group="console_scripts"):
        command = folder / point.name
        if not command.exists():
            command.write_text(
                f"#!{folder / 'python'}\nimport sys\n"
                f"from {point.module} import {point.attr}\nsys.exit({point.attr}())\n",
                encoding="utf-8",
            )
            command.chmod(0o755)
