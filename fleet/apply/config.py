"""Load fleet.yaml for all commands: read and validate the file, and check keys together.

The author of a merge request is not trusted, so the fleet.yaml of its pipeline may name no
program, no connection and no secret. Only the location of the state is permitted if the target
branch has the same, since a connection alone already sends and returns facts.
"""

import argparse
import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from posixpath import dirname
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from fleet.checks import check_all
from fleet.clock import utc_now
from fleet.errors import ConfigInvalid, PlanRefused, WrongUsage, refusal
from fleet.model.values import Value
from fleet.report.findings import to_summary, to_text
from fleet.report.terminal import WIDTH
from fleet.schema.findings import At, Finding, has_errors, in_order
from fleet.schema.load import Loaded, load
from fleet.schema.model import Fleet, commands_in, connections_in, secrets_in
from fleet.schema.source import Document, Files
from fleet.schema.units import FileSecret, read_duration
from fleet.state.confined import is_untrusted
from fleet.state.files import LocalFiles
from fleet.state.revision import is_file_name
from fleet.state.storage import find_storage

if TYPE_CHECKING:
    from fleet.model.facts import World
    from fleet.model.plan import Plan, Warning_
    from fleet.ports import Console
    from fleet.state.store import Store
    from fleet.tagrules.names import RecordedNames


class Checked(NamedTuple):
    """A fleet.yaml with its findings. `fleet` is None if a finding is an error."""

    fleet: Fleet | None
    document: Document
    findings: tuple[Finding, ...]


def check_file(  # noqa: PLR0913 - every input that changes the findings
    name: str,
    today: date,
    files: Files | None = None,
    recorded: "RecordedNames | None" = None,
    world: "World | None" = None,
    *,
    changes: str = "",
) -> Checked:
    """Return fleet.yaml with all findings, including those about a recorded queue.

    `recorded` has the names that occur in a recorded queue. The checks use the price lists of
    `world`, as its plan does. `changes` is passed to `load`.
    """
    loaded = load(name, files or LocalFiles(within=dirname(name)), changes)
    if loaded.rest is not None and world is not None and world.prices:
        from fleet.model.price_lists import with_price_lists

        loaded = loaded._replace(rest=with_price_lists(loaded.rest, world))
    # If the file is partly invalid, only definite errors count.
    checked = [
        each
        for each in (check_all(loaded.rest, today, recorded) if loaded.rest is not None else ())
        if loaded.fleet is not None
        or (each.severity == "error" and not _can_be_defined(loaded, each))
    ]
    found = [*loaded.findings, *map(loaded.document.locate, checked)]
    findings = in_order(found, name)
    return Checked(None if has_errors(findings) else loaded.fleet, loaded.document, findings)


def _can_be_defined(loaded: Loaded, finding: Finding) -> bool:
    """Return True if an invalid part of the file may define a name reported as missing."""
    if not finding.rule.startswith("unknown-"):
        return False
    if finding.rule == "unknown-currency":
        return any(other.path[:1] == ("money",) for other in loaded.findings)
    value = loaded.document.value
    names = {
        name
        for section in (value.values() if isinstance(value, dict) else ())
        if isinstance(section, dict)
        for name in section
    }
    for step in finding.path:
        value = _get_entry(value, step)
    return finding.path[-1] in names or (isinstance(value, str) and value in names)


def _get_entry(value: object, step: str | int) -> object:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None


@dataclass(frozen=True)
class Config:
    """A valid fleet.yaml, with its warnings and the positions of its keys."""

    fleet: Fleet
    document: Document
    warnings: "tuple[Warning_, ...]"


@dataclass(frozen=True)
class PlanResult:
    """A plan with the configuration and the world on which it is based."""

    config: Config
    world: "World"
    plan: "Plan"
    recorded: str = ""
    """File of the recorded world; empty if the world was observed."""
    unread: str = ""
    """Reason why the file in `recorded` is unusable; the world is then unknown."""
    store: "Store | None" = None
    """Store with earlier worlds; None if `world` is a recording."""


def load_config(args: argparse.Namespace, console: "Console", changes: str = "") -> Config:
    """Load fleet.yaml; if it is invalid, print its findings and raise ConfigInvalid.

    In the pipeline of a merge request, raises PlanRefused for values that are not approved yet.
    """
    checked = check_file(args.file, utc_now().date(), changes=changes)
    config = to_config(checked)
    if config is None:
        width = console.columns(WIDTH)
        console.note(to_text(checked.findings, checked.document, width=width))
        raise ConfigInvalid(to_summary(checked.findings, checked.document))
    if is_untrusted() and not getattr(args, "world", None):
        base = getattr(args, "base", None) or ""
        # The job itself wrote a file; the merge request controls a git revision.
        is_written = is_file_name(base)
        approved = check_file(base, utc_now().date()).fleet if is_written else None
        refuse_untrusted(config.fleet, approved, Path(args.file).parent)
    return config


def to_config(checked: Checked) -> Config | None:
    """Return the configuration of a checked file, with its warnings; None if invalid."""
    if checked.fleet is None:
        return None
    # Import late: `fleet validate` starts 25 % faster without the model of plans.
    from fleet.model.plan import Warning_

    warnings = tuple(
        Warning_(
            rule=finding.rule,
            message=finding.message,
            place=checked.document.place(finding.path, finding.at),
        )
        for finding in checked.findings
    )
    return Config(checked.fleet, checked.document, warnings)


def refuse_throwaway_state(fleet: Fleet, config: str) -> None:
    """Raise PlanRefused if fleet's state is in a CI job's checkout, which the job deletes."""
    checkout = os.environ.get("CI_PROJECT_DIR")
    if not checkout:
        return
    for path in find_storage(fleet, config).local():
        if path.resolve().is_relative_to(Path(checkout).resolve()):
            raise PlanRefused(
                f"refused: state at {path} is inside this job's checkout and would be lost with "
                "it; set state.backend and state.store to a place that outlives the job "
                "(docs/how-to/run-in-gitlab.md)"
            )


def read_seconds(option: str, text: str) -> int:
    """Return the seconds of an option such as `--every 60s`. Raises WrongUsage if malformed."""
    seconds = read_duration(text)
    if seconds is None:
        raise WrongUsage(
            f"{option} {text}: expected a duration like 60s or 14m (units s, m, h, d)"
        )
    return seconds


def refuse_untrusted(fleet: Fleet, base: Fleet | None, folder: Path) -> None:
    """Raise PlanRefused for keys that are forbidden in the fleet.yaml of a merge request.

    `base` is the configuration of the target branch; None if it is missing.
    """
    found = [f"{path} would run a program" for path in commands_in(fleet)]
    found += [f"{path} would be connected to" for path in connections_in(fleet)]
    for path, secret in secrets_in(fleet):
        found.append(f"{path} would be read")
        if isinstance(secret, FileSecret):
            file = (folder / secret.file).resolve()
            if not file.is_relative_to(folder.resolve()):
                found.append(f"{path} would read {secret.file}, which is outside this folder")
    if fleet.state != (base.state if base else type(fleet.state)()):
        found.append("state would be read elsewhere than the target branch's")
    if found:
        raise refusal(
            "this is a merge request, and its fleet.yaml is not approved yet; use `--world FILE`\n"
            + "\n".join(dict.fromkeys(found))
        )


_Cites = TypeVar("_Cites", bound=Value)


def with_places(config: Config, value: _Cites, at: At = "value") -> _Cites:
    """Return a copy in which each part that cites a fleet.yaml key also has its file and line."""
    done: dict[int, object] = {}
    """Identity of a part to its copy, since thousands of parts share their reasons."""

    def placed(part: object) -> object:
        if id(part) in done:
            return done[id(part)]
        if isinstance(part, Value):
            fields = type(part).model_fields
            update = {name: placed(getattr(part, name)) for name in fields}
            if "place" in fields and (path := getattr(part, "path", None)):
                update["place"] = place_of(config, path, at)
            found: object = part.altered(**update)
        elif type(part) is tuple:
            found = tuple(map(placed, part))
        else:
            return part
        return done.setdefault(id(part), found)

    return cast("_Cites", placed(value))


def place_of(config: Config, path: tuple[str | int, ...], at: At = "value") -> str:
    """Return a key's position in fleet.yaml, or a text that says its value is a default."""
    document = config.document
    written = document.value if isinstance(document.value, dict) else {}
    if path[0] in written:
        return document.place(path, at)
    return f"{'.'.join(map(str, path))} (default, not set in {document.name})"
