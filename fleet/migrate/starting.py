"""Write the initial files of a fleet: the minimum of keys to plan, each with a comment."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from string import Template
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
"""Clouds that a recording does not use: they cost money, and no worker could register."""
URLS = {"debusine": "https://debusine.example.org", "copr": "https://copr.example.org"}
"""Example servers, by the kind of queue."""
_HETZNER = {"small": "ccx13", "medium": "ccx33", "big": "ccx53"}
_AMAZON = {
    "small": "{type: c7a.large, disk: 40GiB}",
    "medium": "{type: c7a.2xlarge, disk: 160GiB}",
    "big": "{type: c7a.8xlarge, disk: 280GiB}",
}
_OWN = {
    "small": "{cores: 2, memory: 4GiB}",
    "medium": "{cores: 8, memory: 16GiB}",
    "big": "{cores: 32, memory: 64GiB}",
}
_MACHINES = {"sim": _HETZNER, "hcloud": _HETZNER, "aws": _AMAZON, "local": _OWN}
_TAGS = (
    "worker:executor:unshare",
    "worker:cap:sbuild",
    "worker:task:worker:sbuild:version:1",
)
_COPR_TAGS = ("copr_builder", "arch_x86_64", "arch_noarch")
_EXISTING = {"hcloud": '"12345678"', "aws": "ami-0123456789abcdef0"}
_PLAIN = {"aws": "ami-0123456789abcdef0"}  # else the provider's own Debian, by its name
_WORKER = """\
    worker_version: "0.16.2~bpo13+1"  # that of trixie is too old for Debusine 0.16
    source: |  # where that version is
      Types: deb
      URIs: http://deb.debian.org/debian
      Suites: trixie-backports
      Components: main
      Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
_PUBLISH = "    publish: [cloud]  # where `fleet image publish` uploads it\n"
_LOGIN = {"hcloud": "ssh_keys", "aws": "key_pair and ssh_from"}
_MOMENT = "2026-11-21T08:00:00Z"


@dataclass(frozen=True)
class Choice:
    """The choices for a new fleet."""

    fleet: str
    queue: Queue = "recorded"
    cloud: Cloud = "sim"
    size: Size = "medium"
    url: str = ""
    scope: str = "debian"

    @property
    def address(self) -> str:
        """Return the server of the queue; an example if not named."""
        return self.url or URLS.get(self.queue, "")


def fleet_yaml(choice: Choice) -> str:
    """Return a fleet.yaml that validates, with a comment at each key."""
    return "\n".join(_blocks(choice)) + "\n"


def _blocks(choice: Choice) -> Iterator[str]:
    yield f"""\
# What this fleet has; `fleet plan` says what follows.
# All keys: `fleet schema`, or docs/reference/fleet-yaml.md of fleet itself.
fleet: {choice.fleet}  # names and marks all that belongs to this fleet; do not change it later
"""
    if choice.cloud in PAID:
        yield """\
state:
  passphrase: {env: FLEET_PASSPHRASE}  # encrypts secrets in the state; the variable's name
"""
    if choice.cloud == "aws":
        yield "money: {currency: USD}  # what all sums are in; Amazon's prices are, too\n"
    yield "providers:  # where machines come from\n  cloud:"
    yield _filled(_PROVIDERS[choice.cloud], choice)
    yield "queues:  # where work waits, and workers register\n  work:"
    yield _filled(_QUEUES[choice.queue], choice)
    name, image = _image(choice)
    yield f"images:  # what machines boot\n  {name}:\n{image}"
    yield f"""\
pools:  # machines of one kind
  builders:
    provider: cloud
    machine: {_MACHINES[choice.cloud][choice.size]}  # {SIZES[choice.size]}
    image: {name}
    workers: {{max: 4}}  # never more machines than this"""


_PROVIDERS = {
    "sim": """\
    kind: sim  # simulated, in a file below .fleet/; plans count with made-up prices
""",
    "local": """\
    kind: local  # processes on this computer
    run: $run  # the program that a machine consists of
""",
    "hcloud": """\
    kind: hcloud  # servers at Hetzner
    location: fsn1  # or nbg1, hel1, …
    token: {env: HCLOUD_TOKEN}  # the variable that holds the project's API token
""",
    "aws": """\
    kind: aws  # Amazon EC2; credentials come by AWS's own chain, as AWS_PROFILE
    region: eu-central-1
""",
}
_QUEUES = {
    "recorded": """\
    kind: world  # a recording; fleet observe makes one of a real queue
    path: world.json
""",
    "debusine": """\
    kind: debusine  # a Debusine server
    url: $url
    scopes: [$scope]  # whose work these machines do
    token: {env: DEBUSINE_TOKEN}  # the variable that holds a token with the role viewer
""",
    "copr": """\
    kind: copr  # builds that wait in a Copr; what it buys for
    url: $url  # its frontend
    tickets: backend  # a build that has a ticket there counts once
  backend:
    kind: tickets  # fleet serve takes them from Copr's backend, as Resalloc would
""",
    "tickets": """\
    kind: tickets  # fleet serve takes them from clients of Resalloc
""",
}


def _filled(text: str, choice: Choice) -> str:
    run = "[debusine-worker, --log-stderr]" if choice.queue == "debusine" else "[sleep, infinity]"
    url, scope = json.dumps(choice.address), json.dumps(choice.scope)
    return Template(text).substitute(run=run, url=url, scope=scope)


def _image(choice: Choice) -> tuple[str, str]:
    """Return the name of the boot image, and its comment."""
    if choice.queue == "copr":
        own = _EXISTING.get(choice.cloud, "copr-builder")
        made = (
            f"    existing: {{cloud: {own}}}  # an image of Copr's builders, by the cloud's id\n"
        )
        return "builder", made + _provides(_COPR_TAGS)
    if choice.queue == "tickets":
        made = f"""\
    existing: {{cloud: {_PLAIN.get(choice.cloud, "debian-13")}}}  # the cloud's own, by id or name
    architecture: amd64  # what it builds for; tickets ask for worker:build-arch:amd64
"""
        return "debian", made
    made = """\
    suite: trixie  # the Debian release in it
    architecture: amd64  # what it builds for
"""
    return "trixie", made + _WORKER + _PUBLISH * (choice.cloud in PAID) + _provides(_TAGS)


def _provides(tags: Iterable[str]) -> str:
    listed = "".join(f'      - "{tag}"\n' for tag in tags)
    return f"    provides:  # what its workers offer; requests ask for it\n{listed}"


def recording(fleet: str) -> str:
    """Return a world with three waiting builds in the queue `work`."""
    requests = [
        {
            "id": str(number),
            "task": "sbuild",
            "package": package,
            "scope": "debian",
            "pending_since": f"2026-11-21T07:5{number}:00Z",
            "required": ["worker:build-arch:amd64", *_TAGS],
        }
        for number, package in enumerate(("hello", "dash", "chromium"), 1)
    ]
    demand = {"demand": {"read_at": _MOMENT, "requests": requests}}
    head = {"format": "fleet-world-1", "fleet": fleet, "time": _MOMENT}
    return json.dumps(head | {"queues": {"work": demand}}, indent=1) + "\n"


CI = """\
# Judges fleet.yaml in merge requests, applies it from the default branch;
# docs/how-to/run-in-gitlab.md of fleet itself says what to set up first.
include:
  - component: $CI_SERVER_FQDN/debian/fleet/fleet@0.2.0  # the project fleet, a tag of it
    inputs:
      image: registry.example.org/debian/fleet@sha256:DIGEST  # an image with fleet in it
"""
IGNORED = """\
# what fleet keeps on this computer: store, stacks, simulated machines
/.fleet/
# what it writes for people to look at
/site/
"""


def readme(fleet: str) -> str:
    """Return a README of ten lines."""
    return f"""\
# Fleet {fleet}

The build machines that [`fleet.yaml`](fleet.yaml) declares; `fleet` makes and deletes them.

    fleet validate   # is the file right?
    fleet plan       # which machines should exist, at what cost and why
    fleet doctor     # does all that it names work, and what to do next?
    fleet apply      # plan and apply; in GitLab the default branch does (`.gitlab-ci.yml`)

A merge request on `fleet.yaml` shows what the change does. No secret belongs in here.
"""


def steps(choice: Choice) -> Iterator[str]:
    """Yield the steps before the first machine, in order: each a command or an edit."""
    if choice.queue in URLS and choice.address == URLS[choice.queue]:
        more = " and scopes" if choice.queue == "debusine" else ""
        yield f"edit queues.work.url{more} in fleet.yaml: name your server"
    if choice.queue == "debusine":
        yield "export DEBUSINE_TOKEN=…  (docs/how-to/connect-debusine.md)"
    if choice.cloud == "hcloud":
        yield "export HCLOUD_TOKEN=…"
    if choice.cloud == "aws":
        yield "export AWS_PROFILE=…  (docs/how-to/run-on-aws.md)"
    if choice.cloud in PAID:
        yield "export FLEET_PASSPHRASE=…  (a new one, and keep it: the state needs it)"
        yield from _image_steps(choice)
    if choice.queue == "tickets":
        yield "fleet ticket open --tag worker:build-arch:amd64  (docs/how-to/give-out-machines.md)"
    if choice.cloud in PAID or choice.queue in URLS:
        yield "fleet doctor"
    yield "fleet plan"
    if choice.queue == "copr":
        yield "fleet serve, for Copr's backend  (docs/how-to/serve-tickets.md)"
    else:
        yield "fleet apply"


def _image_steps(choice: Choice) -> Iterator[str]:
    match choice.queue:
        case "copr":
            yield "edit images.builder.existing in fleet.yaml: the id of an image of your builders"
        case "tickets":
            if choice.cloud in _PLAIN:
                yield "edit images.debian.existing in fleet.yaml: the id of an image"
            yield f"edit providers.cloud in fleet.yaml: add {_LOGIN[choice.cloud]}, who may log in"
        case _:
            yield "fleet image build trixie  (docs/how-to/bake-an-image.md)"
