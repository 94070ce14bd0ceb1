"""Refuse what the fleet.yaml of a merge request could have this computer run, read or send.

Its author may be anybody. What the target branch's fleet.yaml has, word for word, is approved.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from fleet.errors import refusal
from fleet.schema.model import Fleet, commands_in, secrets_in
from fleet.schema.units import FileSecret

_MERGE_REQUEST = ("CI_MERGE_REQUEST_IID", "GITHUB_HEAD_REF", "FLEET_UNTRUSTED")
"""Set in the job of a merge request, by GitLab, by GitHub and Forgejo, or by who wrote the job."""
_HOLDS = "providers", "queues"


def is_untrusted() -> bool:
    """Say whether this runs for a merge request."""
    return any(os.environ.get(name) for name in _MERGE_REQUEST)


def refuse_untrusted(fleet: Fleet, base: Fleet | None, folder: Path) -> None:
    """Raise PlanRefused, exit code 4, for what a merge request's fleet.yaml may not name.

    `base` is the target branch's; None: there is none, so that nothing is approved.
    """
    found = list(dict.fromkeys(_findings(fleet, base, folder)))
    if found:
        raise refusal(
            "this is a merge request, and its fleet.yaml is not approved yet; use `--world FILE`\n"
            + "\n".join(found)
        )


def _findings(fleet: Fleet, base: Fleet | None, folder: Path) -> Iterator[str]:
    for path in commands_in(fleet):
        yield f"{path} would run a program"
    for path, secret in secrets_in(fleet):
        if isinstance(secret, FileSecret):
            file = (folder / secret.file).resolve()
            if not file.is_relative_to(folder.resolve()):
                yield f"{path} would read {secret.file}, which is outside this folder"
        section = _section(path)
        if _part(fleet, section) != _part(base, section):
            yield f"{path} would be sent where the target branch's {section} does not send it"
    for key in ("webhook", "command"):
        now, before = (each and getattr(each.notify, key) for each in (fleet, base))
        if now is not None and now != before:
            yield f"notify.{key} would be sent what the target branch's notify does not send there"
    if fleet.state != (base.state if base else type(fleet.state)()):
        yield "state would be read elsewhere than the target branch's"


def _section(path: str) -> str:
    names = path.split(".")
    return ".".join(names[:2] if names[0] in _HOLDS else names[:1])


def _part(fleet: Fleet | None, section: str) -> object:
    if fleet is None:
        return None
    key, _, name = section.partition(".")
    part = getattr(fleet, key)
    return part.get(name) if name else part
