"""A fleet of two pools whose machines own commands make, and one ticket that waits for any."""

from pathlib import Path

from tests.rigs.hook_machines import write_hooks
from tests.rigs.trial import Trial

YAML = """\
fleet: rack
providers:
  first:
    {{kind: hooks, new: [sh, first.sh], delete: [sh, delete.sh], list: [sh, list.sh]{more}}}
  works: {{kind: hooks, new: [sh, new.sh], delete: [sh, delete.sh], list: [sh, list.sh]}}
queues:
  t: {{kind: tickets}}
images:
  trixie: {{suite: trixie, architecture: amd64, provides: [any]}}
pools:
  first:
    provider: first
    machine: {{cores: 4, memory: 8GiB, price: 0.10 EUR/h}}
    image: trixie
    workers: {{max: {most}}}
    retire: {{at: once, idle_after: 1s}}
"""
WORKS = """\
  works:
    provider: works
    machine: {cores: 4, memory: 8GiB, price: 0.20 EUR/h}
    image: trixie
    workers: {max: 3}
"""


def a_rack(
    folder: Path, first: str, *, more: str = "", most: int = 3, other: str = WORKS, **scripts: str
) -> Trial:
    """Return a fleet of a cheap pool `first` whose `new` is this, and a `works` that works."""
    write_hooks(folder, first=first, **scripts)
    trial = Trial(folder)
    trial.write(YAML.format(more=more, most=most) + other)
    trial.init()
    trial.told("ticket", "open", "--tag", "any")
    return trial


def made(trial: Trial) -> list[str]:
    """Return the machines that exist."""
    return sorted(each.name for each in (trial.folder / "machines").glob("*"))
