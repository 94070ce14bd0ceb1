"""Sections of fleet.yaml on machines: images and pools."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from fleet.schema.sources import Hooks
from fleet.schema.units import (
    HOST_PATTERN,
    SPEED,
    Amount,
    ConfigSection,
    Cores,
    Count,
    LongText,
    Mebibytes,
    Name,
    Percent,
    PoolName,
    PricePerHour,
    Seconds,
    SomeShare,
    Speed,
    Text,
    WorkerTag,
    branch,
)

WINDOW_PATTERN = (
    r"^(mon|tue|wed|thu|fri|sat|sun)(-(mon|tue|wed|thu|fri|sat|sun))? "
    r"([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)"
    r"( [A-Za-z][A-Za-z0-9_+/-]{0,60})?$"
)

# Debian policy 5.6.1 defines names of packages, 5.6.12 defines versions.
PACKAGE_PATTERN = r"^[a-z0-9][a-z0-9+.-]+$"
VERSION_PATTERN = r"^[0-9][A-Za-z0-9.+:~-]*$"
SERVER_PATTERN = rf"^https?://{HOST_PATTERN}(/[^?#@\x00-\x20]*)?$"

Backend = Literal["unshare", "qemu", "incus", "incus-lxc", "incus-vm"]
Task = Literal["autopkgtest", "sbuild", "mmdebstrap", "simplesystemimagebuild"]
Market = Literal["spot", "on-demand"]
Window = Annotated[str, Field(pattern=WINDOW_PATTERN)]
PackageName = Annotated[str, Field(pattern=PACKAGE_PATTERN, max_length=100)]
PackageVersion = Annotated[str, Field(pattern=VERSION_PATTERN, max_length=100)]
PLACE_PATTERN = r"^([a-z]([a-z0-9-]{0,29}[a-z0-9])?|file:///[^?#\s]+|s3://[a-z0-9][a-z0-9.-]+(/[^#\s]*)?(\?\S+)?)$"
Place = Annotated[str, Field(pattern=PLACE_PATTERN, max_length=1000)]
PLAYBOOK_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)+\.ya?ml$"
ServerUrl = Annotated[str, Field(pattern=SERVER_PATTERN, max_length=1000)]


class Rebuild(ConfigSection):
    """Conditions under which fleet builds a new version of an image."""

    every: Seconds = Field(description="Maximum age of a version.")
    keep: Annotated[int, Field(ge=1, le=100)] = Field(2, description="Versions to keep.")


class Promote(ConfigSection):
    """The steps in which machines get an image version that passed its tests."""

    candidate: SomeShare = Field(
        20, description="Maximum share of each pool's workers that boot it first."
    )
    after: Seconds = Field(
        6 * 3600,
        description="Time until it becomes current, unless `guards.boot_failures` stops it.",
    )


PromoteRule = Annotated[
    Annotated[Literal["manual", "tested"], Tag("promote-word")]
    | Annotated[Promote, Tag("promote-steps")],
    branch(
        {"promote-word": str, "promote-steps": (dict, Promote)},
        "manual, tested, or a mapping like {candidate: 20%, after: 6h}",
    ),
]

_PROMOTE = (
    "How a new version is rolled out after it passed its test and is published everywhere: "
    "`manual`: with `fleet image promote`; `tested`: immediately; `{candidate: 20%, after: 6h}` "
    "(default): first on a share of each pool's workers."
)
_PIN = "The version that machines boot, for example 20261121T203000Z; default: the current one."


class ImageRecipe(ConfigSection):
    """An image that fleet builds from Debian packages."""

    suite: Text = Field(description="Debian suite, for example trixie.")
    architecture: Text = Field(description="Debian architecture, for example amd64.")
    provides: list[WorkerTag] = Field(
        [],
        description="Tags that no job of `fleet image test` can decide; proven ones need no line.",
    )
    source: LongText | None = Field(
        None, description="An additional APT source in deb822 form, with its key in `Signed-By`."
    )
    enable_backends: list[Backend] = Field(
        ["unshare"],
        description="Executors to set up, by Debusine's names; `incus` is incus-lxc and incus-vm.",
    )
    enable_tasks: list[Task] = Field(
        ["autopkgtest", "sbuild"], description="Tasks whose programs to install."
    )
    packages: list[PackageName] = Field([], description="Additional Debian packages.")
    worker_version: PackageVersion | None = Field(
        None, description="Version of debusine-worker; default: the newest."
    )
    swap: Mebibytes | None = Field(
        None, description="Size of the swap file, created at the first boot."
    )
    api_url: ServerUrl | None = Field(
        None,
        description="Debusine server to build in, as in `queues.*.url`; default: passed as user "
        "data at boot.",
    )
    mirror: ServerUrl | None = Field(
        None, description="Debian archive to build from; default: Debian's own."
    )
    snapshot: bool = Field(
        False, description="The archive is a snapshot; accept its expired package lists."
    )
    rebuild: Rebuild | None = Field(None, description="When fleet builds a new version.")
    publish: list[Place] = Field(
        [],
        description="Where to upload versions: providers, and stores such as "
        "`file:///srv/images` or `s3://BUCKET/PREFIX`.",
    )
    promote: PromoteRule | None = Field(None, description=_PROMOTE)
    version: Text | None = Field(None, description=_PIN)

    @property
    def promotion(self) -> Promote | Literal["manual", "tested"]:
        """Return the rule by which versions are promoted, or the default rule."""
        return self.promote or Promote()


class PlaybookRecipe(ConfigSection):
    """An image that fleet bakes from an existing image with your Ansible playbook."""

    kind: Literal["playbook"] = Field(description="Your own Ansible playbook.")
    provider: Name = Field(
        description="A provider of kind `hcloud`, where a machine is rented to bake it."
    )
    base: Text = Field(
        description="The provider's image to start from: a name, for example fedora-43, or an id."
    )
    playbook: Annotated[str, Field(pattern=PLAYBOOK_PATTERN, max_length=300)] = Field(
        description="Path of the playbook from fleet.yaml, in a folder of its own; a change of "
        "any file in that folder makes a new version due."
    )
    test: LongText = Field(
        description="Shell command that has to succeed on the machine after the playbook."
    )
    architecture: Text = Field("amd64", description="Debian architecture.")
    provides: list[WorkerTag] = Field([], description="Tags that its worker reports.")
    rebuild: Rebuild | None = Field(None, description="When fleet builds a new version.")
    promote: PromoteRule | None = Field(None, description=_PROMOTE)
    version: Text | None = Field(None, description=_PIN)

    @property
    def publish(self) -> list[str]:
        """Return the provider that builds the image: a snapshot exists only at its provider."""
        return [self.provider]

    @property
    def promotion(self) -> Promote | Literal["manual", "tested"]:
        """Return the rule by which versions are promoted, or the default rule."""
        return self.promote or Promote()


Recipe = ImageRecipe | PlaybookRecipe
"""The recipe of an image that fleet builds."""


class ExistingImage(ConfigSection):
    """An image that fleet did not build."""

    existing: Annotated[dict[Name, Text], Field(min_length=1)] = Field(
        description="Provider to the provider's image id."
    )
    architecture: Text = Field("amd64", description="Debian architecture.")
    provides: list[WorkerTag] = Field([], description="Tags that its worker reports.")
    version: Text | None = Field(
        None,
        description=f"{_PIN} While no version is remembered it names the ids of `existing`.",
    )


Image = Annotated[
    Annotated[ImageRecipe, Tag("image-recipe")]
    | Annotated[PlaybookRecipe, Tag("image-playbook")]
    | Annotated[ExistingImage, Tag("image-existing")],
    branch(
        {
            "image-existing": ExistingImage,
            "image-playbook": PlaybookRecipe,
            "image-recipe": (dict, ImageRecipe),
        },
        "an image: a mapping with suite and architecture, with kind: playbook, or with existing",
        keys={"existing": "image-existing", "kind": "image-playbook"},
    ),
]


Types = Annotated[
    Annotated[Text, Tag("one-type")]
    | Annotated[list[Text], Field(min_length=1), Tag("several-types")],
    branch(
        {"one-type": str, "several-types": list}, "a machine type like ccx33, or a list of types"
    ),
]


class MachineSettings(ConfigSection):
    """The machines of a pool. Figures here override the figures of the machine type."""

    type: Types | None = Field(
        None, description="The provider's name of the machine type, or a list of alternatives."
    )
    cores: Cores | None = Field(None, description="Processor cores.")
    speed: Speed | None = Field(None, description=SPEED)
    memory: Mebibytes | None = Field(None, description="Main memory.")
    disk: Mebibytes | None = Field(None, description="Disk.")
    swap: Mebibytes | None = Field(
        None, description="Swap on the machine's disk, in addition to `disk`."
    )
    price: PricePerHour | None = Field(None, description="On-demand price of one machine.")
    market: Annotated[list[Market], Field(min_length=1)] = Field(
        ["on-demand"], description="Markets to buy on; fleet uses the cheapest in stock."
    )


class Workers(ConfigSection):
    """Limits on the number of workers in a pool."""

    max: Count = Field(description="Maximum number of workers.")
    min: Count = Field(0, description="Minimum number of workers.")
    spare: Count = Field(0, description="Idle workers to keep ready beyond demand.")
    max_starting: Count | None = Field(
        None,
        description="Maximum number of machines that boot at the same time; default: no limit.",
    )


class BootFailure(ConfigSection):
    """Handling of machines that fail to boot: some are held for inspection."""

    hold: Annotated[int, Field(ge=0, le=10)] = Field(
        1, description="Maximum number to hold for a day (`fleet hold`); others are deleted."
    )
    log: Annotated[int, Field(ge=0, le=2000)] = Field(
        200, description="Number of last console lines to keep of a held machine."
    )


class Boot(ConfigSection):
    """Time from the creation of a machine to the registration of its worker."""

    expected: Seconds = Field(90, description="Usual boot time, for estimates.")
    deadline: Seconds = Field(600, description="Time after which the boot has failed.")
    on_failure: BootFailure | None = Field(
        None, description="Handling of machines that fail to boot; default: they are deleted."
    )


class Ready(ConfigSection):
    """Condition under which a ticket may get a cloud machine: its port accepts connections."""

    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        22, description="TCP port that must answer at the machine's address."
    )
    banner: Text | None = Field(
        None,
        description="Required start of the port's greeting, for example `SSH-`; default: a "
        "connection is enough.",
    )
    within: Seconds = Field(
        300,
        description="Time after creation when the boot has failed, instead of `boot.deadline`.",
    )


class Retire(ConfigSection):
    """Conditions under which a healthy worker is deleted or replaced."""

    idle_after: Seconds = Field(900, description="Idle time after which it is deleted.")
    at: Literal["paid-end", "once"] | None = Field(
        None,
        description="When a surplus machine is deleted: `paid-end` (default): in the last run "
        "before the next billing step; `once`: immediately.",
    )
    max_age: Seconds | None = Field(
        None,
        description="Age after which its machine is replaced (see `replace`); default: never.",
    )
    max_uses: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None,
        description="Finished requests after which its machine is replaced (see `replace`); "
        "default: never.",
    )


class Reuse(ConfigSection):
    """Time for which tickets of the same sandbox may reuse a machine."""

    opportunity: Seconds = Field(
        description="How long to keep it after its release, and at least to the paid hour's end."
    )
    max_uses: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Maximum number of tickets for one machine; default: no limit."
    )
    max_age: Seconds | None = Field(3600, description="Maximum time since its first ticket.")


class PoolBudget(ConfigSection):
    """A hard limit on the cost of a pool."""

    per_hour: Amount | None = Field(None, description="Money per hour.")
    per_day: Amount | None = Field(None, description="Money per calendar day.")
    per_month: Amount | None = Field(None, description="Money per calendar month.")


class Replace(ConfigSection):
    """Pace at which outdated or expired workers are replaced, never before their work ends."""

    at_a_time: Percent = Field(
        10,
        description="Maximum share of the pool under replacement, rounded up; `0%`: no machine.",
    )
    windows: list[Window] = Field(
        [],
        description='Times when replacing is allowed, for example "mon-fri 07:00-17:00 '
        'Europe/Berlin"; the default zone is `money.time_zone`; a window whose end is not after '
        "its start passes midnight; default: any time.",
    )


TypeOrMachine = Annotated[
    Annotated[Text, Tag("machine-type")] | Annotated[MachineSettings, Tag("machine-figures")],
    branch(
        {"machine-type": str, "machine-figures": (dict, MachineSettings)},
        "a machine type like ccx33, or a mapping like {type: ccx33}",
    ),
]

Mode = Literal["apply", "observe", "drain", "pause"]


class Pool(ConfigSection):
    """A pool of equal machines."""

    provider: Name = Field(description="Where its machines are created; a name of `providers`.")
    machine: TypeOrMachine = Field(description="A machine type, or its figures.")
    image: Name = Field(description="Image of its machines; a name of `images`.")
    serves: list[Name] | None = Field(
        None, description="Names of `queues` to serve; default: all."
    )
    provides: list[WorkerTag] = Field(
        [], description="Tags in addition to those of image and machine."
    )
    requires: list[WorkerTag] = Field([], description="Tags that a request must provide.")
    workers: Workers = Field(description="How many workers it may have.")
    boot: Boot = Field(
        default_factory=Boot.model_construct,
        description="How long a machine takes until its worker registers.",
    )
    ready: Ready | None = Field(
        None,
        description="For tickets on servers of a cloud: the port that must answer first; default: "
        "a machine is ready when it runs and has an address.",
    )
    retire: Retire = Field(
        default_factory=Retire.model_construct,
        description="When a healthy worker is deleted or replaced.",
    )
    reuse: Reuse | None = Field(
        None,
        description="For tickets: how a machine may be reused within a sandbox; default: one "
        "ticket per machine.",
    )
    priorities: dict[WorkerTag, Annotated[int, Field(ge=-100_000, le=100_000)]] = Field(
        {},
        description="For tickets: tag to preference for this pool; those of all tags of a ticket "
        "are added. They decide which free machine a ticket gets, and where fleet creates one "
        "(`queues.NAME.prefer`). (Resalloc: priority of a tag)",
    )
    target_wait: Seconds | None = Field(
        None, description="How long work may wait; default: one machine per waiting request."
    )
    budget: PoolBudget | None = Field(None, description="A hard limit on money of this pool.")
    replace: Replace = Field(
        default_factory=Replace.model_construct,
        description="How outdated or expired workers are replaced.",
    )
    mode: Mode = Field(
        "apply",
        description="`apply`: change machines; `observe`: plan only; `drain`: delete every worker "
        "when it is idle; `pause`: no change.",
    )
    previously: PoolName | None = Field(None, description="Former name of this pool.")

    @property
    def swap(self) -> int:
        """Return the swap in MiB that a machine creates at its first boot."""
        return (self.machine.swap or 0) if isinstance(self.machine, MachineSettings) else 0


class HooksPool(Pool):
    """A pool of machines that its own commands create, list and delete."""

    provider: Literal["hooks"] = Field(description="The word `hooks`.")
    hooks: Hooks = Field(description="The commands, as for a provider of kind `hooks`.")
    image: Name | Literal[""] = Field(
        "", description="Image of its machines; default: chosen by the commands."
    )
    workers: Workers = Field(
        default_factory=lambda: Workers(max=1),
        description="How many workers it may have; default: one.",
    )


class StaticPool(ConfigSection):
    """A pool of existing machines, which fleet counts as capacity and never changes."""

    static: Annotated[list[Text], Field(min_length=1)] = Field(description="Names of the workers.")
    provides: list[WorkerTag] = Field([], description="Tags that its workers provide.")
    serves: list[Name] | None = Field(
        None, description="Names of `queues` to serve; default: all."
    )


AnyPool = Annotated[
    Annotated[Pool, Tag("pool-dynamic")]
    | Annotated[StaticPool, Tag("pool-static")]
    | Annotated[HooksPool, Tag("pool-hooks")],
    branch(
        {"pool-static": StaticPool, "pool-hooks": HooksPool, "pool-dynamic": (dict, Pool)},
        "a pool: a mapping with provider, machine, image and workers, or static",
        keys={"static": "pool-static", "hooks": "pool-hooks"},
    ),
]
