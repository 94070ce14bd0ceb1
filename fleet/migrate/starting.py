"""Write the first files of a fleet: only the keys that a plan needs, each with a comment."""

import json
from dataclasses import dataclass
from typing import Literal

QUEUES = {
    "recorded": "a recording of three builds, to try fleet without a server",
    "debusine": "a Debusine server",
    "copr": "a Copr, whose backend gets machines by tickets (fleet serve)",
    "tickets": "tickets that clients of Resalloc ask for (fleet serve)",
}
CLOUDS = {
    "sim": "simulated machines, to try fleet without an account",
    "local": "processes on this computer",
    "hcloud": "servers at Hetzner",
    "aws": "instances at Amazon EC2",
}
SIZES = {
    "small": "2 cores",
    "medium": "8 cores",
    "big": "32 cores",
}
Queue = Literal["recorded", "debusine", "copr", "tickets"]
Cloud = Literal["sim", "local", "hcloud", "aws"]
Size = Literal["small", "medium", "big"]

PAID = frozenset({"hcloud", "aws"})
"""Clouds that `fleet init` does not combine with a recorded queue, because they cost money."""
URLS = {"debusine": "https://debusine.example.org", "copr": "https://copr.example.org"}
"""Kind of queue to the URL of an example server."""


@dataclass(frozen=True)
class StarterChoices:
    """The user's choices for a new fleet."""

    fleet: str
    queue: Queue = "recorded"
    cloud: Cloud = "sim"
    size: Size = "medium"
    url: str = ""
    scope: str = "debian"

    @property
    def address(self) -> str:
        """Return the URL of the queue's server; an example if the user gave no URL."""
        return self.url or URLS.get(self.queue, "")


def fleet_yaml(choice: StarterChoices) -> str:
    """Return a valid fleet.yaml, with a comment at each key."""
    return _fill("fleet.yaml", choice)


def files_beside(choice: StarterChoices) -> dict[str, str]:
    """Map the name of each file next to fleet.yaml to its content."""
    names = [".gitignore", ".gitlab-ci.yml", "README.md"]
    names += ["world.json"] if choice.queue == "recorded" else []
    return {name: _fill(name, choice) for name in names}


def steps(choice: StarterChoices) -> list[str]:
    """Return the steps to the first machine, in order: each is a command or an edit."""
    return _fill("steps", choice).splitlines()


def _fill(template: str, choice: StarterChoices) -> str:
    """Fill a template of the folder `templates` with the choices."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fleet.migrate"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - files of YAML and text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{template}.j2").render(
        fleet=choice.fleet,
        queue=choice.queue,
        cloud=choice.cloud,
        size=choice.size,
        cores=SIZES[choice.size],
        is_paid=choice.cloud in PAID,
        is_named=choice.address != URLS.get(choice.queue),
        url=json.dumps(choice.address),
        scope=json.dumps(choice.scope),
    )
